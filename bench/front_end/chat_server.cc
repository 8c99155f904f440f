// SPDX-License-Identifier: Apache-2.0
// front_end_chat_server PORT MODEL_DIR [DELAY_S]: OpenAI's API, as `inflight serve` has it, over a
// model without weights: an answer is max_tokens times " word", of one token each, and one thread
// gives each stream its next response in turn, as mock_llm does. MODEL_DIR has the tokenizer and
// the chat template. What a chunk then takes is the front end's own: writing the event, the
// connection, the system. Ends with its standard input.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/kserve/http/fake_server.h"
#include "protocol/openai/openai_handler.h"
#include "serving/core/generation.h"

namespace inflight::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Stream {
  serving::ResponseHandler handler;
  std::shared_ptr<serving::CancelToken> cancel;
  int num_left;
  Clock::time_point due;
};

class MockChat final : public serving::Model {
 public:
  MockChat(serving::TextModel text, Clock::duration delay)
      : Model(kserve_http::ConfigFromText(R"(name: "mock_llm")"), "1"),
        text_(std::make_shared<const serving::TextModel>(std::move(text))),
        delay_(delay),
        thread_([this] { Run(); }) {
    thread_.detach();  // for as long as the process
  }

  std::shared_ptr<const serving::TextModel> text() const override { return text_; }

  void Infer(serving::Request request, serving::ResponseHandler handler) override {
    {
      const std::lock_guard lock(mutex_);
      added_.push_back({std::move(handler), request.cancel, request.generation->llm.max_tokens,
                        Clock::now() + delay_});
    }
    wake_.notify_one();
  }

 private:
  void Run() {
    std::vector<Stream> streams;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (streams.empty()) wake_.wait(lock, [this] { return !added_.empty(); });
        for (Stream& stream : added_) streams.push_back(std::move(stream));
        added_.clear();
      }
      const auto now = Clock::now();
      auto next = Clock::time_point::max();
      std::erase_if(streams, [&](Stream& stream) {
        if (stream.due <= now && !Step(stream)) return true;
        next = std::min(next, stream.due);
        return false;
      });
      if (next > now && next != Clock::time_point::max()) std::this_thread::sleep_until(next);
    }
  }

  bool Step(Stream& stream) const {
    stream.due += delay_;
    const bool is_final = --stream.num_left <= 0 || stream.cancel->cancelled();
    auto generated = std::make_shared<serving::Generated>();
    generated->text = " word";
    generated->response.output_ids = {1};
    generated->response.is_final = generated->response.is_sequence_final = is_final;
    generated->finish_reason = is_final ? FinishReason::kLength : FinishReason::kNotFinished;
    stream.handler({.generated = std::move(generated), .is_final = is_final});
    return !is_final;
  }

  const std::shared_ptr<const serving::TextModel> text_;
  const Clock::duration delay_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Stream> added_;
  std::thread thread_;
};

class MockServer final : public kserve_http::FakeServer {
 public:
  explicit MockServer(std::shared_ptr<serving::Model> model) : model_(std::move(model)) {}

  Result<std::shared_ptr<serving::Model>> FindModel(std::string_view,
                                                    std::string_view) const override {
    return model_;
  }
  std::vector<std::shared_ptr<serving::Model>> models() const override { return {model_}; }
  void Infer(std::shared_ptr<serving::Model> model, serving::Request request,
             serving::ResponseHandler handler) override {
    model->Infer(std::move(request), std::move(handler));
  }

 private:
  const std::shared_ptr<serving::Model> model_;
};

int Serve(std::span<char*> args) {
  auto tokenizer = Tokenizer::Load(args[2]);
  auto chat_template = ChatTemplate::Load(args[2]);
  if (!tokenizer.ok() || !chat_template.ok()) {
    fprintf(stderr, "MODEL_DIR: %s has no tokenizer or no chat template\n", args[2]);
    return 1;
  }
  const std::chrono::duration<double> delay(args.size() > 3 ? std::atof(args[3]) : 0);
  serving::TextModel text{.tokenizer = *tokenizer, .chat_template = *std::move(chat_template)};
  text.limits.vocab_size = (*tokenizer)->vocab_size();
  text.limits.max_seq_len = text.limits.max_input_len = 1 << 20;
  MockServer server(std::make_shared<MockChat>(std::move(text),
                                               std::chrono::duration_cast<Clock::duration>(delay)));
  const auto started =
      openai::OpenAiServer::Start(server, {.address = "127.0.0.1", .port = std::atoi(args[1])}, {});
  if (!started.ok()) {
    fprintf(stderr, "%s\n", started.status().message().c_str());
    return 1;
  }
  while (getchar() != EOF) {
  }
  std::_Exit(0);  // streams may run
}

}  // namespace
}  // namespace inflight::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: front_end_chat_server PORT MODEL_DIR [DELAY_S]\n");
    return 1;
  }
  return inflight::bench::Serve({argv, static_cast<size_t>(argc)});
}
