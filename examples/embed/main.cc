// SPDX-License-Identifier: Apache-2.0
// Opens a model in this process and streams its answer to a prompt: docs/embedding.md.
#include <inflight/log.h>
#include <inflight/open.h>

#include <cstdio>
#include <future>

// Called on a thread of the executor, once per token and at the end.
struct Printer : inflight::ResponseSink {
  explicit Printer(const inflight::OpenedModel& model) : text(model.tokenizer, true) {}
  void OnResponse(inflight::Response response) override {
    std::fputs(text.Append(response.output_ids).c_str(), stdout);
    std::fflush(stdout);
    if (!response.is_final) return;
    std::puts(text.Finish().c_str());
    done.set_value(response.status);
  }
  inflight::Detokenizer text;
  std::promise<inflight::Status> done;
};

inflight::Status Answer(const char* directory, const char* prompt) {
  const auto model = inflight::Open(directory);
  if (!model.ok()) return model.status();
  if (model->tokenizer == nullptr) return inflight::NotFound("the model has no tokenizer");
  const auto ids = model->tokenizer->Encode(prompt, /*add_special_tokens=*/true);
  if (!ids.ok()) return ids.status();
  auto printer = std::make_shared<Printer>(*model);
  const auto& end_ids = model->info.end_ids;
  const auto id = model->executor->Enqueue(
      {.input_ids = *ids, .max_tokens = 64, .streaming = true, .end_ids = end_ids}, printer);
  return id.ok() ? printer->done.get_future().get() : id.status();
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("usage: embed DIRECTORY PROMPT\n", stderr), 2;
  inflight::SetLogLevel(inflight::LogLevel::kWarning);
  const inflight::Status status = Answer(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
