// SPDX-License-Identifier: Apache-2.0
#include "contract/outputs.h"

#include <algorithm>
#include <utility>

namespace inflight::contract {
namespace {

using enum DataType;
using Made = std::optional<Tensor>;

Made MakeText(const Output&, std::string name, DataType, const OutputSource& source) {
  if (source.texts.empty()) return std::nullopt;
  return Tensor::FromStrings(std::move(name), {std::ssize(source.texts)}, source.texts);
}

Made MakeIds(const Output&, std::string name, DataType, const OutputSource& source) {
  return OutputIds(std::move(name), source.response, source.options);
}

Made MakeLengths(const Output&, std::string name, DataType, const OutputSource& source) {
  return SequenceLengths(std::move(name), source.response, source.options.prompt.size());
}

Made MakeContextLogits(const Output&, std::string name, DataType type, const OutputSource& source) {
  if (source.response.context_logits.num_rows > 0) {
    return ContextLogits(std::move(name), type, source.response);
  }
  if (!source.options.with_dummies) return std::nullopt;
  return NoLogits(std::move(name), type, /*rank=*/3);
}

Made MakeGenerationLogits(const Output&, std::string name, DataType type,
                          const OutputSource& source) {
  if (source.options.return_generation_logits) {
    return GenerationLogits(std::move(name), type, source.response);
  }
  if (!source.options.with_dummies) return std::nullopt;
  return NoLogits(std::move(name), type, /*rank=*/4);
}

Made MakeLogProbs(const Output&, std::string name, DataType, const OutputSource& source) {
  if (source.options.return_log_probs) return OutputLogProbs(std::move(name), source.response);
  if (!source.options.with_dummies) return std::nullopt;
  const int num_zeros = source.options.num_dummy_log_probs;
  return Zeros(std::move(name), {1, 1, num_zeros}, num_zeros);
}

Made MakeCumLogProbs(const Output&, std::string name, DataType, const OutputSource& source) {
  if (source.options.return_log_probs) return CumLogProbs(std::move(name), source.response);
  if (!source.options.with_dummies) return std::nullopt;
  return Zeros(std::move(name), {1, 1}, 1);
}

Made MakeTopLogProbIds(const Output&, std::string name, DataType, const OutputSource& source) {
  const int count = source.options.num_top_log_probs;
  if (count == 0) return std::nullopt;
  return TopLogProbIds(std::move(name), count, source.response);
}

Made MakeTopLogProbs(const Output&, std::string name, DataType, const OutputSource& source) {
  const int count = source.options.num_top_log_probs;
  if (count == 0) return std::nullopt;
  return TopLogProbs(std::move(name), count, source.response);
}

Made MakeBatchIndex(const Output&, std::string name, DataType, const OutputSource& source) {
  if (!source.options.batch_index) return std::nullopt;
  return BatchIndex(std::move(name), *source.options.batch_index);
}

Made MakeSequenceIndex(const Output&, std::string name, DataType, const OutputSource& source) {
  if (!source.options.with_sequence_index) return std::nullopt;
  return SequenceIndex(std::move(name), source.response);
}

Made MakeFact(const Output& output, std::string name, DataType, const OutputSource& source) {
  return Fact(*output.fact, std::move(name), source.options.facts, source.response);
}

std::vector<Output> MakeTable() {
  constexpr bool kPasses = true;
  constexpr bool kOfIds = true;
  std::vector<Output> table = {
      {"text_output", kBytes, {-1}, 0, 1, !kPasses, !kOfIds, MakeText},
      {"output_ids", kInt32, {-1, -1}, 1, 0, !kPasses, kOfIds, MakeIds},
      {"sequence_length", kInt32, {-1}, 2, 0, !kPasses, kOfIds, MakeLengths},
      {"context_logits", kFp32, {-1, -1}, 3, 4, kPasses, !kOfIds, MakeContextLogits},
      {"generation_logits", kFp32, {-1, -1, -1}, 4, 5, kPasses, !kOfIds, MakeGenerationLogits},
      {"output_log_probs", kFp32, {-1, -1}, 5, 3, kPasses, !kOfIds, MakeLogProbs},
      {"cum_log_probs", kFp32, {-1}, 6, 2, kPasses, !kOfIds, MakeCumLogProbs},
      {"top_log_prob_ids", kInt32, {-1, -1, -1}, 8, 7, !kPasses, !kOfIds, MakeTopLogProbIds},
      {"top_log_probs", kFp32, {-1, -1, -1}, 9, 8, !kPasses, !kOfIds, MakeTopLogProbs},
      {"batch_index", kInt32, {1}, 7, 6, !kPasses, !kOfIds, MakeBatchIndex},
      {"sequence_index", kInt32, {1}, 0, 0, !kPasses, !kOfIds, MakeSequenceIndex},
  };
  constexpr int kFactPlace = 10;
  for (const FactOutput& fact : FactOutputs()) {
    Output output = {.name = fact.name, .type = fact.type, .make = MakeFact, .fact = &fact};
    output.dims = {fact.type == kBytes ? -1 : 1};
    if (fact.is_in_generated_models) output.llm_place = output.text_place = kFactPlace;
    table.push_back(output);
  }
  return table;
}

}  // namespace

std::span<const Output> OutputTable() {
  static const std::vector<Output> table = MakeTable();
  return table;
}

const Output* FindTextOutput(std::string_view name) {
  for (const Output& output : OutputTable()) {
    if (output.name == name && !output.is_of_ids) return &output;
  }
  return nullptr;
}

bool IsLogits(const Output& output) {
  return output.make == MakeContextLogits || output.make == MakeGenerationLogits;
}

}  // namespace inflight::contract
