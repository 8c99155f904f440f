// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_response.h"

#include <algorithm>
#include <array>
#include <utility>

namespace inflight::contract {

Tensor CumLogProbs(std::string name, const Response& response) {
  return Tensor::FromValues<float>(std::move(name), DataType::kFp32, {1, 1},
                                   std::span(&response.cum_log_prob, 1));
}

Tensor OutputLogProbs(std::string name, const Response& response) {
  return Tensor::FromValues<float>(std::move(name), DataType::kFp32,
                                   {1, 1, static_cast<int64_t>(response.output_log_probs.size())},
                                   std::span<const float>(response.output_log_probs));
}

Tensor Zeros(std::string name, std::vector<int64_t> shape, int num_zeros) {
  static constexpr std::array<float, 256> kZeros{};
  if (num_zeros > static_cast<int>(kZeros.size())) {
    return Tensor::FromBytes(std::move(name), DataType::kFp32, std::move(shape),
                             std::string(static_cast<size_t>(num_zeros) * sizeof(float), '\0'));
  }
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.datatype = DataType::kFp32;
  tensor.shape = std::move(shape);
  tensor.data =
      std::as_bytes(std::span(kZeros)).first(static_cast<size_t>(num_zeros) * sizeof(float));
  return tensor;
}

std::vector<Tensor> MakeLlmOutputs(const Response& response, const LlmResponseOptions& options,
                                   std::span<const std::string> requested) {
  const auto wants = [&](std::string_view name) {
    return requested.empty() ||
           std::find(requested.begin(), requested.end(), name) != requested.end();
  };
  std::vector<Tensor> outputs;
  outputs.reserve(6);
  const auto length = static_cast<int32_t>(options.prompt.size() + response.output_ids.size());
  if (wants("output_ids")) {
    std::string bytes;
    bytes.reserve(static_cast<size_t>(length) * sizeof(TokenId));
    bytes.append(reinterpret_cast<const char*>(options.prompt.data()), options.prompt.size_bytes());
    bytes.append(reinterpret_cast<const char*>(response.output_ids.data()),
                 response.output_ids.size() * sizeof(TokenId));
    outputs.push_back(
        Tensor::FromBytes("output_ids", DataType::kInt32, {1, 1, length}, std::move(bytes)));
  }
  if (wants("sequence_length")) {
    outputs.push_back(Tensor::FromValues<int32_t>("sequence_length", DataType::kInt32, {1, 1},
                                                  std::span(&length, 1)));
  }
  if (options.with_dummies) {
    if (wants("context_logits")) outputs.push_back(Zeros("context_logits", {1, 1, 1}, 1));
    if (wants("generation_logits")) outputs.push_back(Zeros("generation_logits", {1, 1, 1, 1}, 1));
  }
  if (options.return_log_probs) {
    if (wants("output_log_probs")) outputs.push_back(OutputLogProbs("output_log_probs", response));
    if (wants("cum_log_probs")) outputs.push_back(CumLogProbs("cum_log_probs", response));
  } else if (options.with_dummies) {
    const int n = options.num_dummy_log_probs;
    if (wants("output_log_probs")) outputs.push_back(Zeros("output_log_probs", {1, 1, n}, n));
    if (wants("cum_log_probs")) outputs.push_back(Zeros("cum_log_probs", {1, 1}, 1));
  }
  if (options.with_batch_index && wants("batch_index")) {
    constexpr int32_t kRow = 0;
    outputs.push_back(
        Tensor::FromValues<int32_t>("batch_index", DataType::kInt32, {1, 1}, std::span(&kRow, 1)));
  }
  return outputs;
}

}  // namespace inflight::contract
