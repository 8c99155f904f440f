// SPDX-License-Identifier: Apache-2.0
// The backend `conformance` in NVIDIA's server: the behaviours of ours of that name
// (src/serving/conformance/conformance.h), written anew over Triton's interface, so that what is
// recorded is the server's doing. A model says its kind in the parameter `kind`.
//
// Threads: requests run one by one on the instance's thread; `repeat` answers on threads of its
// own.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "triton_calls.h"

namespace recorder {
namespace {

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void SleepMs(int64_t ms) {
  if (ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

TRITONSERVER_Error_Code ErrorCodeOf(int number) {
  const bool is_known = number >= 0 && number <= TRITONSERVER_ERROR_CANCELLED;
  return is_known ? static_cast<TRITONSERVER_Error_Code>(number) : TRITONSERVER_ERROR_UNKNOWN;
}

std::vector<std::string> SameText(const std::vector<int64_t>& shape, const std::string& text) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return std::vector<std::string>(static_cast<size_t>(std::max<int64_t>(count, 0)), text);
}

// A model of one kind. Throws a Failure that answers the request.
class Kind {
 public:
  virtual ~Kind() = default;
  virtual void Execute(const std::shared_ptr<Call>& call) = 0;
};

class Identity : public Kind {
 public:
  void Execute(const std::shared_ptr<Call>& call) override {
    std::vector<Tensor> outputs;
    for (Tensor input : call->inputs) {
      if (is_slow_ && input.name == "DELAY") continue;
      const bool is_numbered = input.name.rfind("INPUT", 0) == 0;
      input.name = is_numbered ? "OUTPUT" + input.name.substr(5) : input.name + "_OUT";
      outputs.push_back(std::move(input));
    }
    if (is_slow_) SleepMs(call->FirstOr<int32_t>("DELAY", 0));
    call->Send(outputs, /*is_final=*/true);
  }
  explicit Identity(bool is_slow) : is_slow_(is_slow) {}

 private:
  const bool is_slow_;
};

class AddSub final : public Kind {
 public:
  void Execute(const std::shared_ptr<Call>& call) override {
    const Tensor* a = call->Find("INPUT0");
    const Tensor* b = call->Find("INPUT1");
    if (a == nullptr || b == nullptr)
      throw Failure{TRITONSERVER_ERROR_INVALID_ARG, "addsub needs INPUT0 and INPUT1"};
    const std::vector<uint32_t> x = Numbers(*a);
    const std::vector<uint32_t> y = Numbers(*b);
    std::vector<uint32_t> sum;
    std::vector<uint32_t> difference;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {  // unsigned: it wraps
      sum.push_back(x[i] + y[i]);
      difference.push_back(x[i] - y[i]);
    }
    call->Send({Made("OUTPUT0", *a, sum), Made("OUTPUT1", *a, difference)}, /*is_final=*/true);
  }

 private:
  static std::vector<uint32_t> Numbers(const Tensor& tensor) {
    if (tensor.type != TRITONSERVER_TYPE_BYTES) return tensor.Values<uint32_t>();
    std::vector<uint32_t> numbers;
    for (const std::string& text : tensor.Texts()) {
      int32_t number = 0;
      const char* const end = text.data() + text.size();
      const auto [read, error] = std::from_chars(text.data(), end, number);
      if (error != std::errc{} || read != end)
        throw Failure{TRITONSERVER_ERROR_INVALID_ARG, "element is not a decimal number"};
      numbers.push_back(static_cast<uint32_t>(number));
    }
    return numbers;
  }

  static Tensor Made(const char* name, const Tensor& like, const std::vector<uint32_t>& numbers) {
    if (like.type != TRITONSERVER_TYPE_BYTES) return OfValues(name, like.type, like.shape, numbers);
    std::vector<std::string> texts;
    for (const uint32_t number : numbers)
      texts.push_back(std::to_string(static_cast<int32_t>(number)));
    return OfTexts(name, like.shape, texts);
  }
};

class Fail final : public Kind {
 public:
  void Execute(const std::shared_ptr<Call>& call) override {
    const auto code = call->FirstOr<int32_t>("CODE", -1);
    const Tensor* given = call->Find("CODE");
    if (code < 0) {
      const std::vector<int64_t> shape = given == nullptr ? std::vector<int64_t>{1} : given->shape;
      return call->Send({OfTexts("OUT", shape, SameText(shape, "ok"))}, /*is_final=*/true);
    }
    const Tensor* message = call->Find("MESSAGE");
    const auto texts = message == nullptr ? std::vector<std::string>() : message->Texts();
    throw Failure{ErrorCodeOf(code), texts.empty() ? "no message" : texts.front()};
  }
};

class EchoParameters final : public Kind {
 public:
  void Execute(const std::shared_ptr<Call>& call) override {
    std::map<std::string, std::string> by_key;
    for (const Parameter& parameter : call->parameters) by_key[parameter.key] = Describe(parameter);
    std::string text;
    for (const auto& [key, value] : by_key) text.append(key).append("=").append(value).append(";");
    text += "|timeout=" + std::to_string(call->timeout_us) +
            ",flags=" + std::to_string(call->flags) + ",corrid=" + call->correlation_id;
    const Tensor* input = call->Find("INPUT0");
    const std::vector<int64_t> shape = input == nullptr ? std::vector<int64_t>{1} : input->shape;
    call->Send({OfTexts("OUTPUT0", shape, SameText(shape, text))}, /*is_final=*/true,
               call->parameters);
  }

 private:
  static std::string Describe(const Parameter& parameter) {
    switch (parameter.type) {
      case TRITONSERVER_PARAMETER_BOOL:
        return std::string("bool:") + (parameter.flag ? "true" : "false");
      case TRITONSERVER_PARAMETER_INT:
        return "int:" + std::to_string(parameter.whole);
      case TRITONSERVER_PARAMETER_DOUBLE: {
        std::array<char, 32> digits{};
        std::snprintf(digits.data(), digits.size(), "%g", parameter.real);
        return std::string("double:") + digits.data();
      }
      default:
        return "string:" + parameter.text;
    }
  }
};

class Accumulate final : public Kind {
 public:
  void Execute(const std::shared_ptr<Call>& call) override {
    const Tensor* input = call->Find("INPUT");
    if (input == nullptr) throw Failure{TRITONSERVER_ERROR_INVALID_ARG, "accumulate needs INPUT"};
    const std::vector<uint32_t> values = input->Values<uint32_t>();
    uint32_t& sum = sums_[call->correlation_id];
    if (call->FirstOr<int32_t>("START", 0) != 0) sum = 0;
    for (const uint32_t value : values) sum += value;
    const std::vector<uint32_t> result(values.size(), sum);
    if (call->FirstOr<int32_t>("END", 0) != 0) sums_.erase(call->correlation_id);
    call->Send({OfValues("OUTPUT", input->type, input->shape, result)}, /*is_final=*/true);
  }

 private:
  std::map<std::string, uint32_t> sums_;
};

class Repeat final : public Kind {
 public:
  ~Repeat() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Execute(const std::shared_ptr<Call>& call) override {
    threads_.emplace_back([call] { TRITONSERVER_ErrorDelete(Caught([&] { AnswerAll(*call); })); });
    SleepMs(call->FirstOr<uint32_t>("WAIT", 0));
  }

 private:
  static void AnswerAll(const Call& call) {
    const Tensor* in = call.Find("IN");
    const Tensor* delay = call.Find("DELAY");
    const auto values = in == nullptr ? std::vector<int32_t>() : in->Values<int32_t>();
    auto delays_ms = delay == nullptr ? std::vector<uint32_t>() : delay->Values<uint32_t>();
    delays_ms.resize(values.size(), 0);
    for (uint32_t i = 0; i < values.size(); ++i) {
      SleepMs(delays_ms[i]);
      if (call.IsCancelled())
        return call.Fail({TRITONSERVER_ERROR_CANCELLED, "request was cancelled"}, true);
      call.SendAll({OfValues<int32_t>("OUT", TRITONSERVER_TYPE_INT32, {1}, {values[i]}),
                    OfValues<uint32_t>("IDX", TRITONSERVER_TYPE_UINT32, {1}, {i})},
                   /*is_final=*/false);
    }
    call.Finish();
  }

  std::vector<std::thread> threads_;
};

class Words final : public Kind {
 public:
  Words(bool ends_with_last, bool is_batched)
      : ends_with_last_(ends_with_last), shape_(is_batched ? 2 : 1, 1) {}

  void Execute(const std::shared_ptr<Call>& call) override {
    const std::vector<std::string> texts = Texts(*call);
    const auto fail_at = call->FirstOr<int32_t>("fail_at", -1);
    const auto delay_us = call->FirstOr<int32_t>("delay_us", 0);
    for (size_t i = 0; i < texts.size(); ++i) {
      if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
      if (call->IsCancelled())
        return call->Fail({TRITONSERVER_ERROR_CANCELLED, "request was cancelled"}, true);
      const bool is_final = ends_with_last_ && i + 1 == texts.size();
      if (static_cast<int64_t>(i) == fail_at) {
        call->Fail({TRITONSERVER_ERROR_INTERNAL, "failure requested at this response"}, is_final);
      } else {
        call->Send({OfTexts("text_output", shape_, {texts[i]})}, is_final);
      }
    }
    if (!ends_with_last_ || texts.empty()) call->Finish();
  }

 private:
  static std::vector<std::string> Texts(const Call& call) {
    const auto most = call.FirstOr<int32_t>("max_tokens", std::numeric_limits<int32_t>::max());
    const Tensor* input = call.Find("text_input");
    const auto given = input == nullptr ? std::vector<std::string>() : input->Texts();
    std::vector<std::string> words(1);
    for (const char c : given.empty() ? std::string() : given.front()) {
      if (c != ' ') {
        words.back() += c;
      } else if (!words.back().empty()) {
        words.emplace_back();
      }
    }
    if (words.back().empty()) words.pop_back();
    words.resize(std::min(words.size(), static_cast<size_t>(std::max(most, 0))));
    if (call.FirstOr<uint8_t>("stream", 0) != 0) return words;
    std::string joined;
    for (const std::string& word : words) joined += (joined.empty() ? "" : " ") + word;
    return {joined};
  }

  const bool ends_with_last_;
  const std::vector<int64_t> shape_;
};

std::string ParameterOf(const nlohmann::json& config, const char* key, const char* otherwise) {
  const auto parameters = config.value("parameters", nlohmann::json::object());
  const auto found = parameters.find(key);
  return found == parameters.end() ? otherwise : found->value("string_value", "");
}

std::unique_ptr<Kind> MakeKind(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message = nullptr;
  Check(TRITONBACKEND_ModelConfig(model, 1, &message));
  const char* text = nullptr;
  size_t size = 0;
  Check(TRITONSERVER_MessageSerializeToJson(message, &text, &size));
  const auto config = nlohmann::json::parse(std::string(text, size));
  Check(TRITONSERVER_MessageDelete(message));
  if (const std::string error = ParameterOf(config, "load_error", ""); !error.empty())
    throw Failure{ErrorCodeOf(std::stoi(ParameterOf(config, "load_error_code", "1"))), error};
  const std::string kind = ParameterOf(config, "kind", "identity");
  if (kind == "identity" || kind == "slow") return std::make_unique<Identity>(kind == "slow");
  if (kind == "addsub") return std::make_unique<AddSub>();
  if (kind == "fail") return std::make_unique<Fail>();
  if (kind == "params") return std::make_unique<EchoParameters>();
  if (kind == "accumulate") return std::make_unique<Accumulate>();
  if (kind == "repeat") return std::make_unique<Repeat>();
  if (kind == "words")
    return std::make_unique<Words>(ParameterOf(config, "final", "separate") == "together",
                                   config.value("max_batch_size", 0) > 0);
  throw Failure{TRITONSERVER_ERROR_INVALID_ARG, "kind '" + kind + "' is not known"};
}

struct Record {
  uint64_t start_ns = 0;
  uint64_t compute_start_ns = 0;
  uint64_t compute_end_ns = 0;
};

// What a request was counted as: whether it succeeded.
bool Execute(Kind& kind, TRITONBACKEND_Request* request, Record& record) {
  std::shared_ptr<Call> call;
  record.start_ns = NowNs();
  TRITONSERVER_Error* error = Caught([&] { call = std::make_shared<Call>(request); });
  record.compute_start_ns = NowNs();
  if (error == nullptr) error = Caught([&] { kind.Execute(call); });
  record.compute_end_ns = NowNs();
  if (error == nullptr) return true;
  const Failure failure = {TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error)};
  TRITONSERVER_ErrorDelete(error);
  if (call != nullptr)
    TRITONSERVER_ErrorDelete(Caught([&] { call->Fail(failure, /*is_final=*/true); }));
  return false;
}

Kind* KindOf(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = nullptr;
  Check(TRITONBACKEND_ModelInstanceModel(instance, &model));
  void* state = nullptr;
  Check(TRITONBACKEND_ModelState(model, &state));
  return static_cast<Kind*>(state);
}

void ExecuteAll(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
                uint32_t count) {
  Kind& kind = *KindOf(instance);
  Record whole = {.start_ns = NowNs()};
  for (uint32_t i = 0; i < count; ++i) {
    Record record;
    const bool has_succeeded = Execute(kind, requests[i], record);
    if (i == 0) whole.compute_start_ns = record.compute_start_ns;
    whole.compute_end_ns = record.compute_end_ns;
    Check(TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], has_succeeded,
                                                      record.start_ns, record.compute_start_ns,
                                                      record.compute_end_ns, NowNs()));
    Check(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  Check(TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance, count, whole.start_ns, whole.compute_start_ns, whole.compute_end_ns, NowNs()));
}

}  // namespace
}  // namespace recorder

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's.
extern "C" {

TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend* /*backend*/,
                                                      TRITONBACKEND_BackendAttribute* attributes) {
  return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
      attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 1, nullptr, 0);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return recorder::Caught([&] {
    auto kind = recorder::MakeKind(model);
    recorder::Check(TRITONBACKEND_ModelSetState(model, kind.get()));
    (void)kind.release();  // ModelFinalize has it
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return recorder::Caught([&] {
    void* state = nullptr;
    recorder::Check(TRITONBACKEND_ModelState(model, &state));
    delete static_cast<recorder::Kind*>(state);
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t count) {
  return recorder::Caught([&] { recorder::ExecuteAll(instance, requests, count); });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
