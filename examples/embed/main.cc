// SPDX-License-Identifier: Apache-2.0
// Opens a model in this process and streams its answer to a prompt: docs/embedding.md.
#include <inflight/log.h>
#include <inflight/open.h>

#include <cstdio>
#include <future>

// Called on a thread of the executor, once per token and at the end.
class Printer : public inflight::ResponseSink {
 public:
  explicit Printer(std::shared_ptr<const inflight::Tokenizer> tokenizer)
      : text_(std::move(tokenizer), /*skip_special_tokens=*/true) {}

  void OnResponse(inflight::Response response) override {
    std::string piece = text_.Append(response.output_ids);
    if (response.is_final) piece += text_.Finish();
    std::fputs(piece.c_str(), stdout);
    std::fflush(stdout);
    if (response.is_final) done.set_value(response.status);
  }

  std::promise<inflight::Status> done;

 private:
  inflight::Detokenizer text_;
};

inflight::Status Answer(const char* directory, const char* prompt) {
  ASSIGN_OR_RETURN(const inflight::OpenedModel model, inflight::Open(directory));
  if (model.tokenizer == nullptr) return inflight::NotFound("the model has no tokenizer");
  inflight::Request request;
  request.max_tokens = 64;
  request.streaming = true;
  request.end_ids = model.info.end_ids;
  ASSIGN_OR_RETURN(request.input_ids, model.tokenizer->Encode(prompt, /*add_special_tokens=*/true));
  auto printer = std::make_shared<Printer>(model.tokenizer);
  RETURN_IF_ERROR(model.executor->Enqueue(std::move(request), printer).status());
  return printer->done.get_future().get();
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: embed DIRECTORY PROMPT\n"), 2;
  inflight::SetLogLevel(inflight::LogLevel::kWarning);
  const inflight::Status status = Answer(argv[1], argv[2]);
  std::puts("");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
