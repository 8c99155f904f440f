// SPDX-License-Identifier: Apache-2.0
#include "triton_calls.h"

#include <algorithm>

namespace recorder {
namespace {

Tensor ReadInput(TRITONBACKEND_Request* request, uint32_t index) {
  TRITONBACKEND_Input* input = nullptr;
  Check(TRITONBACKEND_RequestInputByIndex(request, index, &input));
  Tensor tensor;
  const char* name = nullptr;
  const int64_t* shape = nullptr;
  uint32_t num_dims = 0;
  uint64_t num_bytes = 0;
  uint32_t num_buffers = 0;
  Check(TRITONBACKEND_InputProperties(input, &name, &tensor.type, &shape, &num_dims, &num_bytes,
                                      &num_buffers));
  tensor.name = name;
  tensor.shape.assign(shape, shape + num_dims);
  for (uint32_t i = 0; i < num_buffers; ++i) {
    const void* buffer = nullptr;
    uint64_t size = 0;
    TRITONSERVER_MemoryType place = TRITONSERVER_MEMORY_CPU;
    int64_t device = 0;
    Check(TRITONBACKEND_InputBuffer(input, i, &buffer, &size, &place, &device));
    tensor.bytes.append(static_cast<const char*>(buffer), size);
  }
  return tensor;
}

Parameter ReadParameter(TRITONBACKEND_Request* request, uint32_t index) {
  Parameter parameter;
  const char* key = nullptr;
  const void* value = nullptr;
  Check(TRITONBACKEND_RequestParameter(request, index, &key, &parameter.type, &value));
  parameter.key = key;
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_STRING:
    case TRITONSERVER_PARAMETER_BYTES:
      parameter.text = static_cast<const char*>(value);
      break;
    case TRITONSERVER_PARAMETER_INT:
      parameter.whole = *static_cast<const int64_t*>(value);
      break;
    case TRITONSERVER_PARAMETER_BOOL:
      parameter.flag = *static_cast<const bool*>(value);
      break;
    case TRITONSERVER_PARAMETER_DOUBLE:
      parameter.real = *static_cast<const double*>(value);
      break;
  }
  return parameter;
}

std::string ReadCorrelationId(TRITONBACKEND_Request* request) {
  const char* text = nullptr;  // an error where it is a number
  TRITONSERVER_Error* const is_number = TRITONBACKEND_RequestCorrelationIdString(request, &text);
  if (is_number == nullptr && text != nullptr) return text;
  TRITONSERVER_ErrorDelete(is_number);
  uint64_t number = 0;
  Check(TRITONBACKEND_RequestCorrelationId(request, &number));
  return std::to_string(number);
}

void AddOutput(TRITONBACKEND_Response* response, const Tensor& tensor) {
  TRITONBACKEND_Output* output = nullptr;
  Check(TRITONBACKEND_ResponseOutput(response, &output, tensor.name.c_str(), tensor.type,
                                     tensor.shape.data(),
                                     static_cast<uint32_t>(tensor.shape.size())));
  void* buffer = nullptr;
  TRITONSERVER_MemoryType place = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  Check(TRITONBACKEND_OutputBuffer(output, &buffer, tensor.bytes.size(), &place, &device));
  std::copy(tensor.bytes.begin(), tensor.bytes.end(), static_cast<char*>(buffer));
}

void AddParameter(TRITONBACKEND_Response* response, const Parameter& parameter) {
  const char* const key = parameter.key.c_str();
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_STRING:
    case TRITONSERVER_PARAMETER_BYTES:
      return Check(TRITONBACKEND_ResponseSetStringParameter(response, key, parameter.text.c_str()));
    case TRITONSERVER_PARAMETER_INT:
      return Check(TRITONBACKEND_ResponseSetIntParameter(response, key, parameter.whole));
    case TRITONSERVER_PARAMETER_BOOL:
      return Check(TRITONBACKEND_ResponseSetBoolParameter(response, key, parameter.flag));
    case TRITONSERVER_PARAMETER_DOUBLE:  // 2.51.0 has no such response parameter
      if (&TRITONBACKEND_ResponseSetDoubleParameter != nullptr)
        Check(TRITONBACKEND_ResponseSetDoubleParameter(response, key, parameter.real));
      return;
  }
}

uint32_t FlagsOf(bool is_final) { return is_final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0; }

}  // namespace

void Check(TRITONSERVER_Error* error) {
  if (error == nullptr) return;
  Failure failure = {TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error)};
  TRITONSERVER_ErrorDelete(error);
  throw failure;
}

std::vector<std::string> Tensor::Texts() const {
  std::vector<std::string> texts;
  for (size_t at = 0; at + sizeof(uint32_t) <= bytes.size();) {
    uint32_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    texts.push_back(bytes.substr(at + sizeof(length), length));
    at += sizeof(length) + length;
  }
  return texts;
}

Tensor OfTexts(std::string name, std::vector<int64_t> shape,
               const std::vector<std::string>& texts) {
  Tensor tensor = {std::move(name), TRITONSERVER_TYPE_BYTES, std::move(shape), {}};
  for (const std::string& text : texts) {
    const auto length = static_cast<uint32_t>(text.size());
    tensor.bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    tensor.bytes += text;
  }
  return tensor;
}

Call::Call(TRITONBACKEND_Request* request) {
  Check(TRITONBACKEND_ResponseFactoryNew(&factory_, request));
  uint32_t count = 0;
  Check(TRITONBACKEND_RequestInputCount(request, &count));
  for (uint32_t i = 0; i < count; ++i) inputs.push_back(ReadInput(request, i));
  Check(TRITONBACKEND_RequestOutputCount(request, &count));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    Check(TRITONBACKEND_RequestOutputName(request, i, &name));
    wanted_.insert(name);
  }
  Check(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t i = 0; i < count; ++i) parameters.push_back(ReadParameter(request, i));
  Check(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &timeout_us));
  Check(TRITONBACKEND_RequestFlags(request, &flags));
  correlation_id = ReadCorrelationId(request);
}

Call::~Call() { TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseFactoryDelete(factory_)); }

const Tensor* Call::Find(const std::string& name) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const Tensor& input) { return input.name == name; });
  return found == inputs.end() ? nullptr : &*found;
}

void Call::Send(const std::vector<Tensor>& outputs, bool is_final,
                const std::vector<Parameter>& response_parameters) const {
  Respond(outputs, is_final, /*with_all=*/wanted_.empty(), response_parameters);
}

void Call::SendAll(const std::vector<Tensor>& outputs, bool is_final) const {
  Respond(outputs, is_final, /*with_all=*/true, {});
}

void Call::Respond(const std::vector<Tensor>& outputs, bool is_final, bool with_all,
                   const std::vector<Parameter>& response_parameters) const {
  TRITONBACKEND_Response* response = nullptr;
  Check(TRITONBACKEND_ResponseNewFromFactory(&response, factory_));
  for (const Tensor& output : outputs) {
    if (with_all || wanted_.contains(output.name)) AddOutput(response, output);
  }
  for (const Parameter& parameter : response_parameters) AddParameter(response, parameter);
  Check(TRITONBACKEND_ResponseSend(response, FlagsOf(is_final), nullptr));
}

void Call::Fail(const Failure& failure, bool is_final) const {
  TRITONBACKEND_Response* response = nullptr;
  Check(TRITONBACKEND_ResponseNewFromFactory(&response, factory_));
  TRITONSERVER_Error* const error = TRITONSERVER_ErrorNew(failure.code, failure.message.c_str());
  TRITONSERVER_Error* const refused =
      TRITONBACKEND_ResponseSend(response, FlagsOf(is_final), error);
  TRITONSERVER_ErrorDelete(error);
  Check(refused);
}

void Call::Finish() const {
  Check(TRITONBACKEND_ResponseFactorySendFlags(factory_, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
}

bool Call::IsCancelled() const {
  bool is_cancelled = false;
  Check(TRITONBACKEND_ResponseFactoryIsCancelled(factory_, &is_cancelled));
  return is_cancelled;
}

}  // namespace recorder
