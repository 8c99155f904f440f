// SPDX-License-Identifier: Apache-2.0
// Kinds of the conformance backend that answer with several responses.
#include <chrono>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "serving/configuration/model_config.h"
#include "serving/conformance/background.h"
#include "serving/conformance/conformance.h"
#include "serving/core/input_values.h"
#include "serving/tensors/tensor_values.h"

namespace inflight::serving {
namespace {

using SenderPtr = std::shared_ptr<ResponseSender>;

void SleepMs(uint32_t ms) {
  if (ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

class Repeat final : public Executable {
 public:
  void Execute(const Request& request, const SenderPtr& sender) override {
    const Tensor* in = request.FindInput("IN");
    const Tensor* delay = request.FindInput("DELAY");
    auto values = in == nullptr ? std::vector<int32_t>() : ValuesOf<int32_t>(*in);
    auto delays_ms = delay == nullptr ? std::vector<uint32_t>() : ValuesOf<uint32_t>(*delay);
    delays_ms.resize(values.size(), 0);
    responses_.Run([sender, values = std::move(values), delays_ms = std::move(delays_ms)] {
      SendAll(*sender, values, delays_ms);
    });
    SleepMs(FirstOr<uint32_t>(request, "WAIT", 0));
  }

 private:
  static void SendAll(ResponseSender& sender, const std::vector<int32_t>& values,
                      const std::vector<uint32_t>& delays_ms) {
    for (uint32_t i = 0; i < values.size(); ++i) {
      SleepMs(delays_ms[i]);
      if (sender.cancelled()) {
        return sender.Fail(Cancelled("request was cancelled"), /*is_final=*/true);
      }
      sender.Send({Tensor::FromValues<int32_t>("OUT", DataType::kInt32, {1}, {&values[i], 1}),
                   Tensor::FromValues<uint32_t>("IDX", DataType::kUint32, {1}, {&i, 1})},
                  {}, /*is_final=*/false);
    }
    sender.Finish();
  }

  Background responses_;
};

class Words final : public Executable {
 public:
  explicit Words(const ::inference::ModelConfig& config)
      : ends_with_last_(FindParameter(config, "final").value_or("separate") == "together"),
        shape_(config.max_batch_size() > 0 ? 2 : 1, 1) {}

  void Execute(const Request& request, const SenderPtr& sender) override {
    const auto fail_at = FirstOr<int32_t>(request, "fail_at", -1);
    const auto delay_us = FirstOr<int32_t>(request, "delay_us", 0);
    const std::vector<std::string> texts = Texts(request);
    for (size_t i = 0; i < texts.size(); ++i) {
      if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
      if (sender->cancelled()) {
        return sender->Fail(Cancelled("request was cancelled"), /*is_final=*/true);
      }
      const bool is_final = ends_with_last_ && i + 1 == texts.size();
      if (static_cast<int64_t>(i) == fail_at) {
        sender->Fail(Internal("failure requested at this response"), is_final);
      } else {
        sender->Send({Tensor::FromStrings("text_output", shape_, {&texts[i], 1})}, {}, is_final);
      }
    }
    if (!ends_with_last_ || texts.empty()) sender->Finish();
  }

 private:
  // One text for each response.
  static std::vector<std::string> Texts(const Request& request) {
    const auto max_words = FirstOr<int32_t>(request, "max_tokens", std::numeric_limits<int>::max());
    const Tensor* input = request.FindInput("text_input");
    std::string_view text;
    if (input != nullptr) {
      const auto strings = input->Strings();
      if (strings.ok() && !strings->empty()) text = strings->front();
    }
    std::vector<std::string> words;
    while (!text.empty() && static_cast<int64_t>(words.size()) < max_words) {
      const size_t length = std::min(text.find(' '), text.size());
      if (length > 0) words.emplace_back(text.substr(0, length));
      text.remove_prefix(std::min(length + 1, text.size()));
    }
    if (FirstOr<uint8_t>(request, "stream", 0) != 0) return words;
    std::string joined;
    for (const std::string& word : words) joined += (joined.empty() ? "" : " ") + word;
    return {joined};
  }

  const bool ends_with_last_;
  const std::vector<int64_t> shape_;
};

}  // namespace

std::unique_ptr<Executable> MakeRepeat() { return std::make_unique<Repeat>(); }

std::unique_ptr<Executable> MakeWords(const ::inference::ModelConfig& config) {
  return std::make_unique<Words>(config);
}

}  // namespace inflight::serving
