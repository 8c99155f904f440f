// SPDX-License-Identifier: Apache-2.0
#include "serving/conformance/mock_llm.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/idle_memory.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "serving/core/input_values.h"

namespace inflight::serving {
namespace {

using SteadyClock = std::chrono::steady_clock;
using SenderPtr = std::shared_ptr<ResponseSender>;

constexpr int64_t kMaxRepetition = 1'000'000;
constexpr size_t kMaxTextBytes = size_t{64} << 20;  // of a response
constexpr double kMaxDelaySeconds = 3600;
constexpr std::chrono::milliseconds kCancelInterval{50};  // between looks for clients that left

std::optional<double> Number(const ParameterValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

// A number from 0 to `max`; `otherwise` where there is no such parameter.
Result<double> NumberOr(const Parameters& parameters, const char* name, double otherwise,
                        double max) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return otherwise;
  const auto number = Number(found->second);
  if (number && *number >= 0 && *number <= max) return *number;
  return InvalidArgument(std::string(name) + ": should be a number from 0 to " +
                         std::to_string(static_cast<int64_t>(max)));
}

Result<bool> FlagOr(const Parameters& parameters, const char* name, bool otherwise) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return otherwise;
  if (const auto* flag = std::get_if<bool>(&found->second)) return *flag;
  return InvalidArgument(std::string(name) + ": should be true or false");
}

struct Wishes {
  int64_t repetition = 1;
  SteadyClock::duration delay{};
  bool fails_last = false;
  bool is_empty = false;
};

Result<Wishes> WishesOf(const Request& request) {
  const Parameters& parameters = request.parameters;
  ASSIGN_OR_RETURN(const double repetition,
                   NumberOr(parameters, "REPETITION", 1, static_cast<double>(kMaxRepetition)));
  ASSIGN_OR_RETURN(const double delay_s, NumberOr(parameters, "DELAY", 0, kMaxDelaySeconds));
  Wishes wishes{.repetition = static_cast<int64_t>(repetition),
                .delay = std::chrono::nanoseconds(std::llround(delay_s * 1e9))};
  ASSIGN_OR_RETURN(wishes.fails_last, FlagOr(parameters, "FAIL_LAST", false));
  ASSIGN_OR_RETURN(wishes.is_empty, FlagOr(parameters, "OUTPUT_0_DIM", false));
  return wishes;
}

Tensor NoText() { return Tensor::FromStrings("TEXT", {1, 0}, {}); }

// Shares the prompt's bytes.
Tensor SameText(const Tensor& prompt) {
  Tensor text = prompt;
  text.name = "TEXT";
  return text;
}

Result<Tensor> RepeatedText(const Tensor& prompt, int64_t count) {
  ASSIGN_OR_RETURN(const auto elements, prompt.Strings());
  if (prompt.data.size() * static_cast<size_t>(count) > kMaxTextBytes) {
    return InvalidArgument("REPETITION: got " + std::to_string(count) +
                           ", which makes TEXT more than " + std::to_string(kMaxTextBytes) +
                           " bytes");
  }
  std::vector<std::string> texts;
  for (const std::string_view element : elements) {
    texts.insert(texts.end(), static_cast<size_t>(count), std::string(element));
  }
  return Tensor::FromStrings("TEXT", {1, static_cast<int64_t>(texts.size())}, texts);
}

struct Stream {
  SenderPtr sender;
  Tensor text;
  Wishes wishes;
  int64_t num_left = 0;
  SteadyClock::time_point due;  // of the next response
};

// The streams under way and the thread that advances them.
class Rounds {
 public:
  void Add(Stream stream) {
    {
      const std::lock_guard lock(mutex_);
      added_.push_back(std::move(stream));
    }
    wake_.notify_one();
  }

  void Close() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    wake_.notify_one();
  }

  // Until closed; by then no stream is left, since each keeps its model.
  void Run() {
    std::vector<Stream> streams;
    SteadyClock::time_point next_due = SteadyClock::time_point::max();
    while (TakeAdded(streams, next_due)) {
      const auto now = SteadyClock::now();
      std::erase_if(streams, [now](Stream& stream) {
        return (stream.due <= now || stream.sender->cancelled()) && !Step(stream);
      });
      next_due = SteadyClock::time_point::max();
      for (const Stream& stream : streams) next_due = std::min(next_due, stream.due);
    }
  }

 private:
  // Waits until a stream is due or one was added; false once closed.
  bool TakeAdded(std::vector<Stream>& streams, SteadyClock::time_point next_due) {
    std::unique_lock lock(mutex_);
    const auto has_news = [this] { return is_closed_ || !added_.empty(); };
    if (next_due == SteadyClock::time_point::max()) {
      WaitForTask(wake_, lock, has_news);
    } else {
      wake_.wait_until(lock, std::min(next_due, SteadyClock::now() + kCancelInterval), has_news);
    }
    for (Stream& stream : added_) streams.push_back(std::move(stream));
    added_.clear();
    return !is_closed_;
  }

  // Sends a stream's next response; false when that was its last.
  static bool Step(Stream& stream) {
    ResponseSender& sender = *stream.sender;
    if (sender.cancelled()) {
      sender.Fail(Cancelled("request was cancelled"), /*is_final=*/true);
      return false;
    }
    if (stream.num_left > 0) {
      --stream.num_left;
      std::vector<Tensor> outputs;
      outputs.push_back(stream.text);
      sender.Send(std::move(outputs), {}, /*is_final=*/false);
      stream.due += stream.wishes.delay;
      if (stream.num_left > 0) return true;
    }
    if (stream.wishes.fails_last) {
      sender.Fail(Internal("An Error Occurred"), /*is_final=*/true);
    } else {
      sender.Finish();
    }
    return false;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_closed_ = false;
  std::vector<Stream> added_;
};

class MockLlm final : public Executable {
 public:
  explicit MockLlm(bool is_decoupled) : is_decoupled_(is_decoupled) {
    thread_ = std::thread([rounds = rounds_] {
      NameThisThread("mock_llm");
      rounds->Run();
    });
  }

  // The last response of a request may let go of its model, on the thread that sent it.
  ~MockLlm() override {
    rounds_->Close();
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }

  bool never_waits() const override { return true; }

  void Execute(const Request& request, const SenderPtr& sender) override {
    if (const Status status = Answer(request, sender); !status.ok()) {
      sender->Fail(status, /*is_final=*/true);
    }
  }

 private:
  Status Answer(const Request& request, const SenderPtr& sender) {
    const Tensor* prompt = request.FindInput("PROMPT");
    if (prompt == nullptr) return InvalidArgument("mock_llm needs PROMPT");
    ASSIGN_OR_RETURN(Wishes wishes, WishesOf(request));
    const bool is_stream = FirstOr<uint8_t>(request, "STREAM", 0) != 0;
    if (is_stream && !is_decoupled_) {
      return Internal("STREAM only supported in decoupled mode");
    }
    if (is_stream) {
      const auto first_due = SteadyClock::now() + wishes.delay;
      rounds_->Add({.sender = sender,
                    .text = wishes.is_empty ? NoText() : SameText(*prompt),
                    .wishes = wishes,
                    .num_left = wishes.repetition,
                    .due = first_due});
      return Status::Ok();
    }
    // A decoupled one answers once, whatever REPETITION says.
    ASSIGN_OR_RETURN(Tensor text,
                     wishes.is_empty
                         ? Result<Tensor>(NoText())
                         : RepeatedText(*prompt, is_decoupled_ ? 1 : wishes.repetition));
    std::vector<Tensor> outputs;
    outputs.push_back(std::move(text));
    sender->Send(std::move(outputs), {}, /*is_final=*/true);
    return Status::Ok();
  }

  const bool is_decoupled_;
  const std::shared_ptr<Rounds> rounds_ = std::make_shared<Rounds>();
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Executable> MakeMockLlm(const ::inference::ModelConfig& config) {
  return std::make_unique<MockLlm>(config.model_transaction_policy().decoupled());
}

}  // namespace inflight::serving
