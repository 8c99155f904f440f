// SPDX-License-Identifier: Apache-2.0
// What this backend calls of Triton's interface beside the plug-in's part (triton_api.h), and that
// part for code that throws.
#pragma once

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocol/triton_backend/triton_api.h"

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's.
extern "C" {
TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request* request,
                                                       uint64_t* id);
TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request* request,
                                                             const char** id);
TRITONSERVER_Error* TRITONBACKEND_RequestFlags(TRITONBACKEND_Request* request, uint32_t* flags);
}
// NOLINTEND(readability-identifier-naming)

namespace recorder {

// An error of a request or a model, as Triton numbers them.
struct Failure {
  TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_INTERNAL;
  std::string message;
};

// Throws a Failure for an error of the server.
void Check(TRITONSERVER_Error* error);
// What a function throws, as the server takes it; null where it returns.
template <typename Function>
TRITONSERVER_Error* Caught(const Function& function) {
  try {
    function();
    return nullptr;
  } catch (const Failure& failure) {
    return TRITONSERVER_ErrorNew(failure.code, failure.message.c_str());
  } catch (const std::exception& e) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, e.what());
  }
}

struct Tensor {
  std::string name;
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;
  std::string bytes;

  template <typename T>
  std::vector<T> Values() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
  std::vector<std::string> Texts() const;
};

template <typename T>
Tensor OfValues(std::string name, TRITONSERVER_DataType type, std::vector<int64_t> shape,
                const std::vector<T>& values) {
  return {std::move(name), type, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}
Tensor OfTexts(std::string name, std::vector<int64_t> shape, const std::vector<std::string>& texts);

struct Parameter {
  std::string key;
  TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_STRING;
  std::string text;
  int64_t whole = 0;
  bool flag = false;
  double real = 0;
};

// A request with copies of what it brings. It answers by the factory, also after its release.
class Call {
 public:
  explicit Call(TRITONBACKEND_Request* request);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const Tensor* Find(const std::string& name) const;
  template <typename T>
  T FirstOr(const std::string& name, T otherwise) const {
    const Tensor* tensor = Find(name);
    if (tensor == nullptr || tensor->bytes.size() < sizeof(T)) return otherwise;
    return tensor->Values<T>().front();
  }

  // Those of the outputs that the request asks for.
  void Send(const std::vector<Tensor>& outputs, bool is_final,
            const std::vector<Parameter>& parameters = {}) const;
  // Also those that it does not ask for.
  void SendAll(const std::vector<Tensor>& outputs, bool is_final) const;
  void Fail(const Failure& failure, bool is_final) const;
  void Finish() const;
  bool IsCancelled() const;

  std::vector<Tensor> inputs;
  std::vector<Parameter> parameters;
  uint64_t timeout_us = 0;
  uint32_t flags = 0;  // 1 start, 2 end
  std::string correlation_id;

 private:
  void Respond(const std::vector<Tensor>& outputs, bool is_final, bool with_all,
               const std::vector<Parameter>& parameters) const;

  std::set<std::string> wanted_;
  TRITONBACKEND_ResponseFactory* factory_ = nullptr;
};

}  // namespace recorder
