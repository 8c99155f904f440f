// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_response.h"

#include <algorithm>
#include <array>
#include <utility>

namespace inflight::contract {
namespace {

// [1, beams, longest]
Tensor OutputIds(std::span<const SequenceView> sequences, const LlmResponseOptions& options) {
  size_t longest = 0;
  for (const SequenceView& sequence : sequences) {
    longest = std::max(longest, sequence.output_ids.size());
  }
  const size_t width = options.prompt.size() + longest;
  std::string bytes;
  bytes.reserve(sequences.size() * width * sizeof(TokenId));
  const auto append = [&bytes](std::span<const TokenId> ids) {
    bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size_bytes());
  };
  for (const SequenceView& sequence : sequences) {
    append(options.prompt);
    append(sequence.output_ids);
    for (size_t i = sequence.output_ids.size(); i < longest; ++i) {
      append(std::span(&options.pad_id, 1));
    }
  }
  return Tensor::FromBytes("output_ids", DataType::kInt32,
                           {1, static_cast<int64_t>(sequences.size()), static_cast<int64_t>(width)},
                           std::move(bytes));
}

}  // namespace

std::vector<SequenceView> SequencesOf(const Response& response) {
  std::vector<SequenceView> sequences;
  for (const Beam& beam : response.beams) {
    sequences.push_back({beam.output_ids, beam.output_log_probs, beam.cum_log_prob});
  }
  if (sequences.empty()) {
    sequences.push_back({response.output_ids, response.output_log_probs, response.cum_log_prob});
  }
  return sequences;
}

Tensor CumLogProbs(std::string name, const Response& response) {
  std::vector<float> values;
  for (const SequenceView& sequence : SequencesOf(response)) {
    values.push_back(sequence.cum_log_prob);
  }
  return Tensor::FromValues<float>(std::move(name), DataType::kFp32,
                                   {1, static_cast<int64_t>(values.size())},
                                   std::span<const float>(values));
}

Tensor OutputLogProbs(std::string name, const Response& response) {
  const std::vector<SequenceView> sequences = SequencesOf(response);
  size_t longest = 0;
  for (const SequenceView& sequence : sequences) {
    longest = std::max(longest, sequence.output_log_probs.size());
  }
  std::vector<float> values;
  for (const SequenceView& sequence : sequences) {
    const auto& log_probs = sequence.output_log_probs;
    values.insert(values.end(), log_probs.begin(), log_probs.end());
    values.resize(values.size() + longest - log_probs.size());
  }
  return Tensor::FromValues<float>(
      std::move(name), DataType::kFp32,
      {1, static_cast<int64_t>(sequences.size()), static_cast<int64_t>(longest)},
      std::span<const float>(values));
}

Tensor SequenceIndex(std::string name, const Response& response) {
  const int32_t index = response.sequence_index;
  return Tensor::FromValues<int32_t>(std::move(name), DataType::kInt32, {1, 1},
                                     std::span(&index, 1));
}

Tensor ContextLogits(std::string name, const Response& response) {
  const LogitsRows& logits = response.context_logits;
  return Tensor::FromValues<float>(std::move(name), DataType::kFp32,
                                   {1, logits.num_rows, logits.vocab_size},
                                   std::span<const float>(logits.values));
}

Tensor GenerationLogits(std::string name, const Response& response) {
  const LogitsRows& logits = response.generation_logits;
  return Tensor::FromValues<float>(std::move(name), DataType::kFp32,
                                   {1, 1, logits.num_rows, logits.vocab_size},
                                   std::span<const float>(logits.values));
}

Tensor BatchIndex(std::string name, int row) {
  const int32_t index = row;
  return Tensor::FromValues<int32_t>(std::move(name), DataType::kInt32, {1, 1},
                                     std::span(&index, 1));
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
  const std::vector<SequenceView> sequences = SequencesOf(response);
  if (wants("output_ids")) outputs.push_back(OutputIds(sequences, options));
  if (wants("sequence_length")) {
    std::vector<int32_t> lengths;
    for (const SequenceView& sequence : sequences) {
      lengths.push_back(static_cast<int32_t>(options.prompt.size() + sequence.output_ids.size()));
    }
    outputs.push_back(Tensor::FromValues<int32_t>("sequence_length", DataType::kInt32,
                                                  {1, static_cast<int64_t>(lengths.size())},
                                                  std::span<const int32_t>(lengths)));
  }
  const bool has_context_logits = response.context_logits.num_rows > 0;
  if ((has_context_logits || options.with_dummies) && wants("context_logits")) {
    outputs.push_back(has_context_logits ? ContextLogits("context_logits", response)
                                         : Zeros("context_logits", {1, 1, 1}, 1));
  }
  if ((options.return_generation_logits || options.with_dummies) && wants("generation_logits")) {
    outputs.push_back(options.return_generation_logits
                          ? GenerationLogits("generation_logits", response)
                          : Zeros("generation_logits", {1, 1, 1, 1}, 1));
  }
  if (options.return_log_probs) {
    if (wants("output_log_probs")) outputs.push_back(OutputLogProbs("output_log_probs", response));
    if (wants("cum_log_probs")) outputs.push_back(CumLogProbs("cum_log_probs", response));
  } else if (options.with_dummies) {
    const int n = options.num_dummy_log_probs;
    if (wants("output_log_probs")) outputs.push_back(Zeros("output_log_probs", {1, 1, n}, n));
    if (wants("cum_log_probs")) outputs.push_back(Zeros("cum_log_probs", {1, 1}, 1));
  }
  if (options.batch_index && wants("batch_index")) {
    outputs.push_back(BatchIndex("batch_index", *options.batch_index));
  }
  if (options.with_sequence_index && wants("sequence_index")) {
    outputs.push_back(SequenceIndex("sequence_index", response));
  }
  for (const std::string& name : requested) {
    if (auto fact = Fact(name, name, options.facts, response)) outputs.push_back(*std::move(fact));
  }
  return outputs;
}

}  // namespace inflight::contract
