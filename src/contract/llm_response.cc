// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_response.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "contract/outputs.h"
#include "tensor/dtype.h"

namespace inflight::contract {
namespace {

template <typename Float>
void AppendAs(std::span<const float> values, std::string& bytes) {
  const size_t begin = bytes.size();
  bytes.resize(begin + values.size() * sizeof(Float));
  char* to = bytes.data() + begin;
  for (const float value : values) {
    const Float converted = Float::FromFloat(value);
    std::memcpy(to, &converted, sizeof(converted));
    to += sizeof(converted);
  }
}

void AppendLogits(DataType type, std::span<const float> values, std::string& bytes) {
  switch (type) {
    case DataType::kFp16:
      return AppendAs<Float16>(values, bytes);
    case DataType::kBf16:
      return AppendAs<BFloat16>(values, bytes);
    default:
      CHECK(type == DataType::kFp32);
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
}

// [1, beams, longest, count] of one member of each entry.
template <typename T, T TopLogProb::*kMember>
Tensor TopTensor(std::string name, DataType type, int count, T padding, const Response& response) {
  const std::vector<SequenceView> sequences = SequencesOf(response);
  size_t longest = 0;
  for (const SequenceView& sequence : sequences) {
    longest = std::max(longest, sequence.output_ids.size());
  }
  std::vector<T> values;
  values.reserve(sequences.size() * longest * static_cast<size_t>(count));
  for (const SequenceView& sequence : sequences) {
    for (const TopLogProb& entry : sequence.top_log_probs) values.push_back(entry.*kMember);
    const size_t num_missing = longest - sequence.output_ids.size();
    values.resize(values.size() + num_missing * static_cast<size_t>(count), padding);
  }
  return Tensor::FromValues<T>(
      std::move(name), type,
      {1, static_cast<int64_t>(sequences.size()), static_cast<int64_t>(longest), count},
      std::span<const T>(values));
}

}  // namespace

bool IsLogitsType(DataType type) {
  return type == DataType::kFp32 || type == DataType::kFp16 || type == DataType::kBf16;
}

std::vector<SequenceView> SequencesOf(const Response& response) {
  std::vector<SequenceView> sequences;
  for (const Beam& beam : response.beams) {
    sequences.push_back({beam.output_ids, beam.output_log_probs, beam.cum_log_prob,
                         beam.top_log_probs, &beam.generation_logits});
  }
  if (sequences.empty()) {
    sequences.push_back({response.output_ids, response.output_log_probs, response.cum_log_prob,
                         response.top_log_probs, &response.generation_logits});
  }
  return sequences;
}

Tensor OutputIds(std::string name, std::span<const SequenceView> sequences,
                 const LlmResponseOptions& options) {
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
  return Tensor::FromBytes(std::move(name), DataType::kInt32,
                           {1, static_cast<int64_t>(sequences.size()), static_cast<int64_t>(width)},
                           std::move(bytes));
}

Tensor SequenceLengths(std::string name, std::span<const SequenceView> sequences,
                       size_t prompt_len) {
  std::vector<int32_t> lengths;
  for (const SequenceView& sequence : sequences) {
    lengths.push_back(static_cast<int32_t>(prompt_len + sequence.output_ids.size()));
  }
  return Tensor::FromValues<int32_t>(std::move(name), DataType::kInt32,
                                     {1, static_cast<int64_t>(lengths.size())},
                                     std::span<const int32_t>(lengths));
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

Tensor ContextLogits(std::string name, DataType type, const Response& response) {
  const LogitsRows& logits = response.context_logits;
  std::string bytes;
  AppendLogits(type, logits.values, bytes);
  return Tensor::FromBytes(std::move(name), type, {1, logits.num_rows, logits.vocab_size},
                           std::move(bytes));
}

Tensor GenerationLogits(std::string name, DataType type, const Response& response) {
  const std::vector<SequenceView> sequences = SequencesOf(response);
  int num_rows = 0;
  int vocab_size = 0;
  for (const SequenceView& sequence : sequences) {
    num_rows = std::max(num_rows, sequence.generation_logits->num_rows);
    vocab_size = std::max(vocab_size, sequence.generation_logits->vocab_size);
  }
  const size_t bytes_per_beam =
      static_cast<size_t>(num_rows) * static_cast<size_t>(vocab_size) * DataTypeSize(type);
  std::string bytes;
  bytes.reserve(sequences.size() * bytes_per_beam);
  for (size_t i = 0; i < sequences.size(); ++i) {
    AppendLogits(type, sequences[i].generation_logits->values, bytes);
    bytes.resize((i + 1) * bytes_per_beam);
  }
  return Tensor::FromBytes(std::move(name), type,
                           {1, static_cast<int64_t>(sequences.size()), num_rows, vocab_size},
                           std::move(bytes));
}

Tensor TopLogProbIds(std::string name, int count, const Response& response) {
  return TopTensor<TokenId, &TopLogProb::id>(std::move(name), DataType::kInt32, count, -1,
                                             response);
}

Tensor TopLogProbs(std::string name, int count, const Response& response) {
  return TopTensor<float, &TopLogProb::log_prob>(std::move(name), DataType::kFp32, count, 0.0F,
                                                 response);
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

Tensor NoLogits(std::string name, DataType type, int rank) {
  std::string bytes;
  AppendLogits(type, std::array{0.0F}, bytes);
  return Tensor::FromBytes(std::move(name), type,
                           std::vector<int64_t>(static_cast<size_t>(rank), 1), std::move(bytes));
}

std::vector<Tensor> MakeLlmOutputs(const Response& response, const LlmResponseOptions& options,
                                   std::span<const std::string> requested) {
  const std::vector<SequenceView> sequences = SequencesOf(response);
  const OutputSource source = {
      .response = response, .options = options, .texts = {}, .sequences = sequences};
  const auto is_wanted = [requested](const Output& output) {
    if (requested.empty()) return !output.is_named_only;
    return std::find(requested.begin(), requested.end(), output.name) != requested.end();
  };
  std::vector<Tensor> outputs;
  outputs.reserve(6);
  for (const Output& output : OutputTable()) {
    if (output.fact != nullptr) break;
    if (!output.is_in(output, source) || !is_wanted(output)) continue;
    const DataType type = output.name == "context_logits" ? options.context_logits_type
                                                          : options.generation_logits_type;
    outputs.push_back(output.make(output, output.name, type, source));
  }
  if (!options.facts.asked.any()) return outputs;
  for (const std::string& name : requested) {
    if (auto fact = Fact(name, name, options.facts, response)) outputs.push_back(*std::move(fact));
  }
  return outputs;
}

}  // namespace inflight::contract
