// SPDX-License-Identifier: Apache-2.0
// For tests: tensors in one line, and what came back.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serving/core/request.h"

namespace inflight::serving {

inline Tensor Int(std::string name, int32_t value) {
  return Tensor::FromValues<int32_t>(std::move(name), DataType::kInt32, {1, 1},
                                     std::span<const int32_t>(&value, 1));
}
inline Tensor Float(std::string name, float value) {
  return Tensor::FromValues<float>(std::move(name), DataType::kFp32, {1, 1},
                                   std::span<const float>(&value, 1));
}
inline Tensor Bool(std::string name, bool value) {
  return Tensor::FromBytes(std::move(name), DataType::kBool, {1, 1},
                           std::string(1, static_cast<char>(value)));
}
inline Tensor Ids(std::string name, std::vector<int32_t> ids) {
  return Tensor::FromValues<int32_t>(std::move(name), DataType::kInt32,
                                     {1, static_cast<int64_t>(ids.size())},
                                     std::span<const int32_t>(ids));
}
inline Tensor Text(std::string name, std::vector<std::string> texts) {
  return Tensor::FromStrings(std::move(name), {1, static_cast<int64_t>(texts.size())}, texts);
}

// Responses of one request, and what they say together. Thread-safe.
class Collector {
 public:
  ResponseHandler Handler() {
    return [this](Response response) {
      std::lock_guard lock(mutex_);
      if (response.is_final) ++num_final_;
      responses_.push_back(std::move(response));
      changed_.notify_all();
    };
  }
  void WaitFinal() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_final_ > 0; });
  }
  int num_final() const { return num_final_; }
  const std::vector<Response>& responses() const { return responses_; }
  const Response& last() const { return responses_.back(); }
  const Status& status() const { return responses_.back().status; }

  // Texts of an output, joined.
  std::string Joined(std::string_view output = "text_output") const {
    std::string text;
    for (const Response& response : responses_) {
      const Tensor* tensor = Find(response, output);
      if (tensor == nullptr) continue;
      const auto pieces = tensor->Strings();
      for (const std::string_view piece : *pieces) text += piece;
    }
    return text;
  }
  static const Tensor* Find(const Response& response, std::string_view output) {
    for (const Tensor& tensor : response.outputs) {
      if (tensor.name == output) return &tensor;
    }
    return nullptr;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Response> responses_;
  int num_final_ = 0;
};

inline Request MakeRequest(std::vector<Tensor> inputs, std::string id = {}) {
  Request request;
  request.id = std::move(id);
  request.inputs = std::move(inputs);
  return request;
}

}  // namespace inflight::serving
