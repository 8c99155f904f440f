// SPDX-License-Identifier: Apache-2.0
#include "serving/conformance/conformance.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "serving/configuration/model_config.h"
#include "serving/conformance/mock_llm.h"
#include "serving/core/input_values.h"
#include "serving/tensors/tensor_values.h"

namespace inflight::serving {
namespace {

using SenderPtr = std::shared_ptr<ResponseSender>;

// The classes of errors in the order of docs/reference/protocol/common.md, by which models and
// configurations number them.
constexpr std::array kErrorClasses = {StatusCode::kUnknown,       StatusCode::kInternal,
                                      StatusCode::kNotFound,      StatusCode::kInvalidArgument,
                                      StatusCode::kUnavailable,   StatusCode::kUnimplemented,
                                      StatusCode::kAlreadyExists, StatusCode::kCancelled};

StatusCode ErrorClass(int64_t number) {
  const bool is_known = number >= 0 && number < static_cast<int64_t>(kErrorClasses.size());
  return is_known ? kErrorClasses[static_cast<size_t>(number)] : StatusCode::kUnknown;
}

std::string OutputName(const std::string& input) {
  return input.starts_with("INPUT") ? "OUTPUT" + input.substr(5) : input + "_OUT";
}

// `count` elements with the same text, as a tensor of `shape`.
Tensor SameText(std::string name, const std::vector<int64_t>& shape, const std::string& text) {
  Tensor shaped{.shape = shape};
  const auto count = static_cast<size_t>(std::max<int64_t>(shaped.num_elements(), 0));
  const std::vector<std::string> texts(count, text);
  return Tensor::FromStrings(std::move(name), shape, texts);
}

class Identity : public Executable {
 public:
  bool never_waits() const override { return true; }
  void Execute(const Request& request, const SenderPtr& sender) override {
    sender->Send(Copies(request), {}, /*is_final=*/true);
  }

 protected:
  static std::vector<Tensor> Copies(const Request& request) {
    std::vector<Tensor> outputs = request.inputs;
    for (Tensor& output : outputs) output.name = OutputName(output.name);
    return outputs;
  }
};

class Slow final : public Identity {
 public:
  bool never_waits() const override { return false; }
  void Execute(const Request& request, const SenderPtr& sender) override {
    const auto delay_ms = FirstOr<int32_t>(request, "DELAY", 0);
    if (delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    std::vector<Tensor> outputs = Copies(request);
    std::erase_if(outputs, [](const Tensor& output) { return output.name == "DELAY_OUT"; });
    sender->Send(std::move(outputs), {}, /*is_final=*/true);
  }
};

// OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, of INT32 (which wraps) or of decimal texts.
class AddSub final : public Executable {
 public:
  void Execute(const Request& request, const SenderPtr& sender) override {
    const Tensor* a = request.FindInput("INPUT0");
    const Tensor* b = request.FindInput("INPUT1");
    if (a == nullptr || b == nullptr) {
      return sender->Fail(InvalidArgument("addsub needs INPUT0 and INPUT1"), /*is_final=*/true);
    }
    auto outputs = a->datatype == DataType::kBytes ? OfTexts(*a, *b) : OfInts(*a, *b);
    if (!outputs.ok()) return sender->Fail(outputs.status(), /*is_final=*/true);
    sender->Send(*std::move(outputs), {}, /*is_final=*/true);
  }

 private:
  static Result<std::vector<Tensor>> OfInts(const Tensor& a, const Tensor& b) {
    const auto x = ValuesOf<uint32_t>(a);
    const auto y = ValuesOf<uint32_t>(b);
    if (x.size() != y.size()) return InvalidArgument("INPUT0 and INPUT1 differ in size");
    std::vector<uint32_t> sum(x.size()), difference(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      sum[i] = x[i] + y[i];
      difference[i] = x[i] - y[i];
    }
    return std::vector<Tensor>{
        Tensor::FromValues<uint32_t>("OUTPUT0", a.datatype, a.shape, sum),
        Tensor::FromValues<uint32_t>("OUTPUT1", a.datatype, a.shape, difference)};
  }

  static Result<std::vector<Tensor>> OfTexts(const Tensor& a, const Tensor& b) {
    ASSIGN_OR_RETURN(const auto x, a.Strings());
    ASSIGN_OR_RETURN(const auto y, b.Strings());
    if (x.size() != y.size()) return InvalidArgument("INPUT0 and INPUT1 differ in size");
    std::vector<std::string> sum, difference;
    for (size_t i = 0; i < x.size(); ++i) {
      ASSIGN_OR_RETURN(const int32_t left, Number(x[i]));
      ASSIGN_OR_RETURN(const int32_t right, Number(y[i]));
      int32_t result = 0;
      (void)__builtin_add_overflow(left, right, &result);  // wraps
      sum.push_back(std::to_string(result));
      (void)__builtin_sub_overflow(left, right, &result);
      difference.push_back(std::to_string(result));
    }
    return std::vector<Tensor>{Tensor::FromStrings("OUTPUT0", a.shape, sum),
                               Tensor::FromStrings("OUTPUT1", a.shape, difference)};
  }

  static Result<int32_t> Number(std::string_view text) {
    int32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
      return InvalidArgument("element is not a decimal number");
    }
    return value;
  }
};

// Fails with the class of number CODE and the text MESSAGE; answers OUT = ok below 0.
class Fail final : public Executable {
 public:
  void Execute(const Request& request, const SenderPtr& sender) override {
    const Tensor* code = request.FindInput("CODE");
    const auto number = FirstOr<int32_t>(request, "CODE", -1);
    if (number < 0) {
      std::vector<Tensor> outputs;
      outputs.push_back(
          SameText("OUT", code == nullptr ? std::vector<int64_t>{1} : code->shape, "ok"));
      return sender->Send(std::move(outputs), {}, /*is_final=*/true);
    }
    std::string text = "no message";
    if (const Tensor* message = request.FindInput("MESSAGE")) {
      const auto texts = message->Strings();
      if (texts.ok() && !texts->empty()) text = texts->front();
    }
    sender->Fail({ErrorClass(number), std::move(text)}, /*is_final=*/true);
  }
};

// Shows what reached the model besides tensors: OUTPUT0 is "key=type:value;...|timeout=..,flags=..,
// corrid=..", and the parameters come back as response parameters.
class EchoParameters final : public Executable {
 public:
  void Execute(const Request& request, const SenderPtr& sender) override {
    std::string text;
    for (const auto& [key, value] : request.parameters) text += Describe(key, value);
    text += fmt::format("|timeout={},flags={},corrid=", request.timeout_us,
                        (request.sequence_start ? 1 : 0) + (request.sequence_end ? 2 : 0));
    text +=
        request.sequence_name.empty() ? std::to_string(request.sequence_id) : request.sequence_name;
    const Tensor* input = request.FindInput("INPUT0");
    std::vector<Tensor> outputs;
    outputs.push_back(
        SameText("OUTPUT0", input == nullptr ? std::vector<int64_t>{1} : input->shape, text));
    sender->Send(std::move(outputs), request.parameters, /*is_final=*/true);
  }

 private:
  static std::string Describe(const std::string& key, const ParameterValue& value) {
    if (const auto* flag = std::get_if<bool>(&value)) {
      return fmt::format("{}=bool:{};", key, *flag);
    }
    if (const auto* number = std::get_if<int64_t>(&value)) {
      return fmt::format("{}=int:{};", key, *number);
    }
    if (const auto* number = std::get_if<uint64_t>(&value)) {
      return fmt::format("{}=int:{};", key, *number);
    }
    if (const auto* real = std::get_if<double>(&value)) {
      std::array<char, 32> digits{};
      snprintf(digits.data(), digits.size(), "%g", *real);
      return fmt::format("{}=double:{};", key, digits.data());
    }
    return fmt::format("{}=string:{};", key, std::get<std::string>(value));
  }
};

// The running sum of INPUT in each sequence.
class Accumulate final : public Executable {
 public:
  void Execute(const Request& request, const SenderPtr& sender) override {
    const Tensor* input = request.FindInput("INPUT");
    if (input == nullptr) {
      return sender->Fail(InvalidArgument("accumulate needs INPUT"), /*is_final=*/true);
    }
    const uint32_t sum = Add(request, ValuesOf<uint32_t>(*input));
    const auto count = static_cast<size_t>(std::max<int64_t>(input->num_elements(), 0));
    std::vector<Tensor> outputs;
    outputs.push_back(Tensor::FromValues<uint32_t>("OUTPUT", input->datatype, input->shape,
                                                   std::vector<uint32_t>(count, sum)));
    sender->Send(std::move(outputs), {}, /*is_final=*/true);
  }

 private:
  uint32_t Add(const Request& request, const std::vector<uint32_t>& values) {
    std::lock_guard lock(mutex_);
    const SequenceKey key = request.sequence_key();
    uint32_t& sum = sums_[key];
    if (FirstOr<int32_t>(request, "START", 0) != 0) sum = 0;
    for (const uint32_t value : values) sum += value;
    const uint32_t result = sum;
    if (FirstOr<int32_t>(request, "END", 0) != 0) sums_.erase(key);
    return result;
  }

  std::mutex mutex_;
  std::map<SequenceKey, uint32_t> sums_;
};

Status LoadError(const ::inference::ModelConfig& config) {
  const auto text = FindParameter(config, "load_error");
  if (!text) return Status::Ok();
  const std::string code = FindParameter(config, "load_error_code").value_or("1");
  int number = 0;
  std::from_chars(code.data(), code.data() + code.size(), number);
  return {ErrorClass(number), *text};
}

}  // namespace

Result<std::unique_ptr<Executable>> MakeConformance(const ::inference::ModelConfig& config) {
  RETURN_IF_ERROR(LoadError(config));
  const std::string kind = FindParameter(config, "kind").value_or("identity");
  using Made = std::unique_ptr<Executable>;
  if (kind == "identity") return Made(std::make_unique<Identity>());
  if (kind == "addsub") return Made(std::make_unique<AddSub>());
  if (kind == "fail") return Made(std::make_unique<Fail>());
  if (kind == "params") return Made(std::make_unique<EchoParameters>());
  if (kind == "slow") return Made(std::make_unique<Slow>());
  if (kind == "accumulate") return Made(std::make_unique<Accumulate>());
  if (kind == "repeat") return MakeRepeat();
  if (kind == "words") return MakeWords(config);
  if (kind == "mock_llm") return MakeMockLlm(config);
  return InvalidArgument("kind: got '" + kind +
                         "', backend conformance has identity, addsub, fail, params, slow, "
                         "accumulate, repeat, words and mock_llm");
}

}  // namespace inflight::serving
