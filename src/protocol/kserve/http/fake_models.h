// SPDX-License-Identifier: Apache-2.0
// Behaviours of the test models that the recorded exchanges use: identity, addsub, params, fail,
// words and repeat.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "serving/core/request.h"

namespace inflight::kserve_http {

inline serving::Response Begin(const serving::Request& request) {
  return {.model_name = request.model_name,
          .model_version = request.model_version.empty() ? "1" : request.model_version,
          .id = request.id,
          .is_final = true};
}

inline serving::Response Fail(const serving::Request& request, Status status) {
  serving::Response response = Begin(request);
  response.status = std::move(status);
  return response;
}

template <typename T>
std::vector<T> Values(const serving::Tensor& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

template <typename T>
T ValueOr(const serving::Request& request, std::string_view name, T otherwise) {
  const serving::Tensor* tensor = request.FindInput(name);
  return tensor == nullptr || tensor->data.size() < sizeof(T) ? otherwise
                                                              : Values<T>(*tensor).front();
}

// INPUTx becomes OUTPUTx, any other name n becomes n_OUT.
inline void Identity(const serving::Request& request, const serving::ResponseHandler& handler) {
  serving::Response response = Begin(request);
  for (const serving::Tensor& input : request.inputs) {
    serving::Tensor output = input;
    output.name =
        input.name.starts_with("INPUT") ? "OUTPUT" + input.name.substr(5) : input.name + "_OUT";
    if (request.WantsOutput(output.name)) response.outputs.push_back(std::move(output));
  }
  handler(std::move(response));
}

inline void AddSub(const serving::Request& request, const serving::ResponseHandler& handler) {
  const serving::Tensor* a_tensor = request.FindInput("INPUT0");
  const auto a = Values<uint32_t>(*a_tensor);
  const auto b = Values<uint32_t>(*request.FindInput("INPUT1"));
  std::vector<uint32_t> sum(a.size()), difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    sum[i] = a[i] + b[i];
    difference[i] = a[i] - b[i];
  }
  serving::Response response = Begin(request);
  for (const auto& [name, values] : {std::pair("OUTPUT0", &sum), {"OUTPUT1", &difference}}) {
    if (!request.WantsOutput(name)) continue;
    response.outputs.push_back(serving::Tensor::FromValues<uint32_t>(
        name, serving::DataType::kInt32, a_tensor->shape, *values));
  }
  handler(std::move(response));
}

inline void EchoParameters(const serving::Request& request,
                           const serving::ResponseHandler& handler) {
  serving::Response response = Begin(request);
  response.parameters = request.parameters;
  std::string text;
  for (const auto& [name, value] : request.parameters) {
    static constexpr const char* kTypes[] = {"bool", "int", "uint", "double", "string"};
    text += name + "=" + kTypes[value.index()] + ":";
    if (const auto* flag = std::get_if<bool>(&value)) text += *flag ? "true" : "false";
    if (const auto* number = std::get_if<int64_t>(&value)) text += std::to_string(*number);
    if (const auto* s = std::get_if<std::string>(&value)) text += *s;
    if (const auto* real = std::get_if<double>(&value)) {
      char digits[32];
      snprintf(digits, sizeof(digits), "%g", *real);
      text += digits;
    }
    text += ";";
  }
  text += "|timeout=" + std::to_string(request.timeout_us) +
          ",flags=" + std::to_string(request.sequence_start + 2 * request.sequence_end) +
          ",corrid=" + std::to_string(request.sequence_id);
  response.outputs.push_back(
      serving::Tensor::FromStrings("OUTPUT0", request.inputs[0].shape, std::span(&text, 1)));
  handler(std::move(response));
}

// CODE is the number of a TRITONSERVER_Error_Code.
inline void FailWithCode(const serving::Request& request, const serving::ResponseHandler& handler) {
  static constexpr StatusCode kCodes[] = {StatusCode::kUnknown,       StatusCode::kInternal,
                                          StatusCode::kNotFound,      StatusCode::kInvalidArgument,
                                          StatusCode::kUnavailable,   StatusCode::kUnimplemented,
                                          StatusCode::kAlreadyExists, StatusCode::kCancelled};
  const serving::Tensor* message = request.FindInput("MESSAGE");
  const std::string text =
      message == nullptr ? "no message" : std::string(message->Strings()->front());
  const auto code = ValueOr<int32_t>(request, "CODE", 0);
  if (code >= 0) return handler(Fail(request, {kCodes[code], text}));
  serving::Response response = Begin(request);
  const std::string ok = "ok";
  response.outputs.push_back(
      serving::Tensor::FromStrings("OUT", request.FindInput("CODE")->shape, std::span(&ok, 1)));
  handler(std::move(response));
}

// Decoupled: the words of text_input, one response each when `stream` is set, then a bare end.
inline void Words(const serving::Request& request, const serving::ResponseHandler& handler) {
  const serving::Tensor* input = request.FindInput("text_input");
  const auto limit = static_cast<size_t>(ValueOr<int32_t>(request, "max_tokens", 1 << 30));
  const auto fail_at = ValueOr<int32_t>(request, "fail_at", -1);
  std::vector<std::string> words;
  std::string_view text = input == nullptr ? "" : input->Strings()->front();
  while (!text.empty() && words.size() < limit) {
    const size_t length = std::min(text.find(' '), text.size());
    if (length > 0) words.emplace_back(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  if (ValueOr<uint8_t>(request, "stream", 0) == 0) {
    std::string joined;
    for (const auto& word : words) joined += (joined.empty() ? "" : " ") + word;
    words = {joined};
  }
  for (size_t i = 0; i < words.size(); ++i) {
    serving::Response response = Begin(request);
    response.is_final = false;
    if (static_cast<int>(i) == fail_at) {
      response.status = Internal("failure requested at this response");
    } else {
      response.outputs.push_back(
          serving::Tensor::FromStrings("text_output", input->shape, std::span(&words[i], 1)));
    }
    handler(std::move(response));
  }
  handler(Begin(request));
}

// Decoupled: a response for each element of IN, then a bare end.
inline void Repeat(const serving::Request& request, const serving::ResponseHandler& handler) {
  uint32_t index = 0;
  for (const int32_t value : Values<int32_t>(*request.FindInput("IN"))) {
    serving::Response response = Begin(request);
    response.is_final = false;
    response.outputs.push_back(serving::Tensor::FromValues<int32_t>(
        "OUT", serving::DataType::kInt32, {1}, std::span(&value, 1)));
    response.outputs.push_back(serving::Tensor::FromValues<uint32_t>(
        "IDX", serving::DataType::kUint32, {1}, std::span(&index, 1)));
    ++index;
    handler(std::move(response));
  }
  handler(Begin(request));
}

}  // namespace inflight::kserve_http
