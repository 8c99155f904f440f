// SPDX-License-Identifier: Apache-2.0
// Calls each function that include/inflight declares and does not define, so that linking this
// program with the installed library fails where one is not exported. Ends with 0 where what they
// say of small inputs is so.
#include <inflight/bad_texts.h>
#include <inflight/chat_template.h>
#include <inflight/executor.h>
#include <inflight/log.h>
#include <inflight/open.h>
#include <inflight/request.h>
#include <inflight/request_stats.h>
#include <inflight/status.h>
#include <inflight/tokenizer.h>
#include <inflight/version.h>

#include <cstdio>
#include <stdexcept>

namespace {

int failures = 0;

void Expect(bool is_so, const char* what) {
  if (is_so) return;
  std::fprintf(stderr, "not so: %s\n", what);
  ++failures;
}
#define EXPECT(condition) Expect(condition, #condition)

void Statuses() {
  using namespace inflight;
  const Status status =
      InvalidArgument("top_k", "got -1, must be at least 0").WithPrefix("request");
  EXPECT(StatusCodeName(status.code()) == "INVALID_ARGUMENT");
  EXPECT(status.ToString().starts_with("INVALID_ARGUMENT: request: top_k: got -1"));
  EXPECT(status.WithField("a").field() == "a");
  EXPECT(status.WithMessage("b").message() == "b");
  EXPECT(status.WithReason(Reason::kQueueFull).reason() == Reason::kQueueFull);
  Status copy = status;
  EXPECT(copy == status);
  copy = Status::Ok();
  EXPECT(copy.ok());
  EXPECT(Unimplemented("field", "what").code() == StatusCode::kUnimplemented);
  EXPECT(OutOfMemory("no room").reason() == Reason::kOutOfMemory);
  EXPECT(!Caught("a call", std::runtime_error("fault")).ok());
  EXPECT(FinishReasonName(FinishReason::kLength) == std::string("length"));
  EXPECT(RequestStageName(RequestStage{}) != nullptr);
}

void Texts(const char* directory) {
  using namespace inflight;
  const std::string texts[] = {"a", "bad", ""};
  const auto tokens = MakeTokenTexts(texts);
  EXPECT(tokens->Of(1) == "bad");
  EXPECT(MakeBadTexts(std::span(texts).subspan(1, 1), tokens).ok());

  const auto tokenizer = Tokenizer::Load(directory);
  EXPECT(tokenizer.ok());
  if (!tokenizer.ok()) return;
  EXPECT(!Tokenizer::FromJson("{").ok());
  EXPECT(!Tokenizer::FromSentencePiece("").ok());
  EXPECT(!Tokenizer::FromGguf({}).ok());
  const auto ids = (*tokenizer)->Encode("Once upon a time", false);
  Detokenizer first(*tokenizer, true);
  Detokenizer moved(std::move(first));
  first = Detokenizer(*tokenizer, true);
  EXPECT(moved.Append(*ids) + moved.Finish() == (*tokenizer)->Decode(*ids, true));

  const auto chat = ChatTemplate::Load(directory);
  EXPECT(chat.ok());
  const ChatMessage messages[] = {{"user", "Hi"}};
  EXPECT(chat->Render(messages)->find("Hi") != std::string::npos);
  EXPECT(
      *chat->RenderJson(
          R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true})") ==
      *chat->Render(messages));
}

void Models(const char* directory) {
  using namespace inflight;
  SetLogLevel(LogLevel::kError);
  const auto devices = FindDevices("cpu", 1);
  EXPECT(devices.ok());
  const auto info = Inspect(directory, {.devices = *devices});
  const auto model = Open(directory, {.devices = *devices});
  EXPECT(info.ok() && model.ok());
  EXPECT(info->limits.num_blocks == model->executor->limits().num_blocks);
  EXPECT(info->memory.total_bytes ==
         static_cast<uint64_t>(model->executor->stats().cpu_memory_bytes));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Statuses();
  Texts(argv[1]);
  Models(argv[1]);
  std::puts(inflight::kVersion);
  return failures == 0 ? 0 : 1;
}
