// SPDX-License-Identifier: Apache-2.0
// What a client may ask of OpenAI's API and of Anthropic's, and what a model may say to it: bodies
// of every endpoint, conversations, tools, guides, log-probs, whole answers and streams. What is
// answered has a status and is JSON, events one by one.
//
// The first byte chooses the endpoint and the second the pieces in which the model speaks; then
// comes the body (of a GET: the rest of its target), a zero byte, and what the model says.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/worker_pool.h"
#include "json/json_reader.h"
#include "json/valid_text.h"
#include "protocol/anthropic/messages.h"
#include "protocol/kserve/http/fake_server.h"
#include "protocol/openai/openai_handler.h"
#include "tokenizer/test_files.h"

namespace {

using namespace inflight;                 // NOLINT: a fuzzer's main file
using namespace inflight::http_listener;  // NOLINT

constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxPieces = 256;  // of an answer, or so many sequences
constexpr std::array kCalls = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"POST", "/v1/chat/completions"},
     {"POST", "/v1/completions"},
     {"POST", "/v1/responses"},
     {"POST", "/v1/messages"},
     {"POST", "/v1/messages/count_tokens"},
     {"POST", "/tokenize"},
     {"POST", "/detokenize"},
     {"POST", "/v1/embeddings"},
     {"GET", "/v1/responses/resp_1/input_items"},
     {"GET", "/v1/"}});

void Require(bool condition) {
  if (!condition) abort();
}

// A template whose models reason and call tools (Hermes' form of calls).
constexpr std::string_view kTemplate =
    "{% if tools %}<tool_call>{{ tools | tojson }}</tool_call>{% endif %}"
    "{% for m in messages %}<s>{{ m.role }} {{ m.content }} {{ m.reasoning_content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }} {{ c.function.arguments }}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}!{% if enable_thinking %}<think>{% endif %}"
    "{% endif %}{# </think> #}";

std::shared_ptr<const serving::TextModel> LoadText() {
  std::string name = std::filesystem::temp_directory_path() / "openai_calls_XXXXXX";
  const std::filesystem::path dir = mkdtemp(name.data());
  Require(WriteFile(dir / "tokenizer.json", tokenizer::ByteLevelJson().dump()).ok());
  Require(WriteFile(dir / "chat_template.jinja", kTemplate).ok());
  serving::TextModel text{.tokenizer = *Tokenizer::Load(dir),
                          .limits = {.vocab_size = 12,
                                     .max_batch_size = 8,
                                     .max_num_tokens = 4096,
                                     .max_seq_len = 4096,
                                     .max_input_len = 2048,
                                     .block_size = 16,
                                     .num_blocks = 1024},
                          .chat_template = *ChatTemplate::Load(dir),
                          .no_chat_template = {},
                          .defaults = {}};
  std::filesystem::remove_all(dir);
  return std::make_shared<const serving::TextModel>(std::move(text));
}

// Says what the input has, in pieces, to each sequence that is asked for.
class Speaker final : public serving::Model {
 public:
  Speaker()
      : Model(kserve_http::ConfigFromText("name: 'm' backend: 'b'"), "1"), text_(LoadText()) {}

  std::shared_ptr<const serving::TextModel> text() const override { return text_; }

  void Infer(serving::Request request, serving::ResponseHandler handler) override {
    Require(request.generation != nullptr);
    const serving::Generation& asked = *request.generation;
    if (asked.make_prompt) {
      const auto prompt = asked.make_prompt();
      if (!prompt.ok()) return handler({.status = prompt.status(), .is_final = true});
    }
    for (size_t i = 0; i < std::min<size_t>(asked.num_shorter_prompts, 3); ++i)
      (void)asked.make_shorter_prompt(i);
    const int num_sequences = asked.llm.sampling.num_return_sequences.value_or(1);
    for (int i = 0; i < num_sequences; ++i) Speak(asked, i, num_sequences, handler);
  }

  std::string says;  // valid UTF-8
  size_t piece_bytes = 1;

 private:
  void Speak(const serving::Generation& asked, int sequence, int num_sequences,
             const serving::ResponseHandler& handler) const {
    const size_t in_all = says.size() * static_cast<size_t>(num_sequences);
    const size_t size = std::max(piece_bytes, in_all / kMaxPieces + 1);
    size_t at = 0;
    do {
      size_t end = std::min(at + size, says.size());
      while (end < says.size() && (says[end] & 0xC0) == 0x80) ++end;  // of a character
      auto said = std::make_shared<serving::Generated>();
      said->text = says.substr(at, end - at);
      said->num_prompt_tokens = 3;
      inflight::Response& response = said->response;
      response.sequence_index = sequence;
      response.output_ids = {static_cast<TokenId>(at % 11)};
      if (asked.llm.output.return_log_probs) response.output_log_probs = {-0.5F};
      at = end;
      const bool is_end = at == says.size();
      response.is_sequence_final = is_end;
      response.is_final = is_end && sequence + 1 == num_sequences;
      if (is_end) said->finish_reason = response.finish_reason = FinishReason::kEndId;
      handler({.model_name = "m",
               .model_version = "1",
               .generated = said,
               .is_final = response.is_final});
    } while (at < says.size());
  }

  const std::shared_ptr<const serving::TextModel> text_;
};

class Server final : public kserve_http::FakeServer {
 public:
  Result<std::shared_ptr<serving::Model>> FindModel(std::string_view name,
                                                    std::string_view) const override {
    if (name != "m") return NotFound("unknown model");
    return std::shared_ptr<serving::Model>(speaker);
  }
  std::vector<std::shared_ptr<serving::Model>> models() const override { return {speaker}; }
  void Infer(std::shared_ptr<serving::Model> model, serving::Request request,
             serving::ResponseHandler handler) override {
    model->Infer(std::move(request), std::move(handler));
  }

  const std::shared_ptr<Speaker> speaker = std::make_shared<Speaker>();
};

// What the handler's threads would do is done here, without waiting for them.
struct World {
  World() {
    logging::SetLevel(logging::Level::kError);
    handler = openai::MakeHandler(
        server, {.max_input_bytes = kMaxBytes,
                 .responses = std::make_shared<openai::ResponseStore>(size_t{1} << 16, 60, nullptr),
                 .more_routes = anthropic::Routes()});
  }

  PoolPump pump;
  Server server;
  std::unique_ptr<PathHandler> handler;
};

class Answer final : public HttpResponder {
 public:
  ~Answer() override { done_.set_value(); }

  void Send(HttpResponse response) override {
    CheckHead(response.status, response.headers);
    if (!response.body.empty()) Require(json::Value::Parse(response.body).ok());
    is_answered_ = true;
  }
  void StartStream(int status, const Headers& headers) override { CheckHead(status, headers); }
  void WriteChunk(std::string_view bytes) override { events_.append(bytes); }
  void Finish() override {
    for (std::string_view left = events_; !left.empty();) {
      std::string_view line = left.substr(0, left.find('\n'));
      left.remove_prefix(std::min(line.size() + 1, left.size()));
      constexpr std::string_view kData = "data: ";
      if (!line.starts_with(kData)) continue;
      line.remove_prefix(kData.size());
      Require(line == "[DONE]" || json::Value::Parse(line).ok());
    }
    is_answered_ = true;
  }
  void OnDisconnect(std::function<void()>) override {}
  void OnSent(std::function<void()>) override {}

  std::future<void> done() { return done_.get_future(); }

 private:
  void CheckHead(int status, const Headers& headers) {
    Require(!is_answered_ && status >= 100 && status < 600);
    for (const auto& [name, value] : headers)
      Require(value.find_first_of("\r\n") == std::string::npos);
  }

  std::string events_;
  bool is_answered_ = false;
  std::promise<void> done_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World& world = *new World;
  constexpr size_t kBefore = 2;
  if (size < kBefore) return 0;
  const auto& [method, path] = kCalls[data[0] % kCalls.size()];
  const std::string_view input(reinterpret_cast<const char*>(data + kBefore), size - kBefore);
  const size_t end = std::min(input.find('\0'), input.size());
  HttpRequest request{.method = std::string(method), .target = std::string(path)};
  if (method == "GET") {
    request.target += input.substr(0, end);
  } else {
    request.headers.emplace_back("Content-Type", "application/json");
    request.body = std::make_shared<const std::string>(input.substr(0, end));
  }
  world.server.speaker->piece_bytes = size_t{1} + data[1];
  world.server.speaker->says = json::ValidText(input.substr(std::min(end + 1, input.size())));
  if (const auto refusal = world.handler->RefuseHead(request)) return 0;
  auto answer = std::make_shared<Answer>();
  const auto done = answer->done();
  world.handler->Handle(std::move(request), std::move(answer));
  while (world.pump.RunOne(0)) {
  }
  Require(done.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  return 0;
}
