// SPDX-License-Identifier: Apache-2.0
#include "contract/outputs.h"

#include <algorithm>
#include <utility>

namespace inflight::contract {
namespace {

using enum DataType;
using Source = const OutputSource&;

// --- which responses have an output ---

bool HasTexts(const Output&, Source source) { return !source.texts.empty(); }
bool HasIds(const Output&, Source source) { return !source.sequences.empty(); }
bool HasContextLogits(const Output&, Source source) {
  return source.response.context_logits.num_rows > 0 || source.options.with_dummies;
}
bool HasGenerationLogits(const Output&, Source source) {
  return source.options.return_generation_logits || source.options.with_dummies;
}
bool HasLogProbs(const Output&, Source source) {
  return source.options.return_log_probs || source.options.with_dummies;
}
bool HasAskedLogProbs(const Output&, Source source) { return source.options.return_log_probs; }
bool HasTopLogProbs(const Output&, Source source) { return source.options.num_top_log_probs > 0; }
bool HasBatchIndex(const Output&, Source source) { return source.options.batch_index.has_value(); }
bool HasSequenceIndex(const Output&, Source source) { return source.options.with_sequence_index; }
bool HasFact(const Output& output, Source source) {
  return IsIn(*output.fact, source.options.facts, source.response);
}

// --- and its tensor; zeros where there would be none ---

Tensor MakeText(const Output&, std::string_view name, DataType, Source source) {
  return Tensor::FromStrings(std::string(name), {std::ssize(source.texts)}, source.texts);
}

Tensor MakeIds(const Output&, std::string_view name, DataType, Source source) {
  return OutputIds(std::string(name), source.sequences, source.options);
}

Tensor MakeLengths(const Output&, std::string_view name, DataType, Source source) {
  return SequenceLengths(std::string(name), source.sequences, source.options.prompt.size());
}

Tensor MakeContextLogits(const Output&, std::string_view name, DataType type, Source source) {
  const bool has_rows = source.response.context_logits.num_rows > 0;
  return has_rows ? ContextLogits(std::string(name), type, source.response)
                  : NoLogits(std::string(name), type, /*rank=*/3);
}

Tensor MakeGenerationLogits(const Output&, std::string_view name, DataType type, Source source) {
  return source.options.return_generation_logits
             ? GenerationLogits(std::string(name), type, source.response)
             : NoLogits(std::string(name), type, /*rank=*/4);
}

Tensor MakeLogProbs(const Output&, std::string_view name, DataType, Source source) {
  if (source.options.return_log_probs) return OutputLogProbs(std::string(name), source.response);
  const int num_zeros = source.options.num_dummy_log_probs;
  return Zeros(std::string(name), {1, 1, num_zeros}, num_zeros);
}

Tensor MakeCumLogProbs(const Output&, std::string_view name, DataType, Source source) {
  return source.options.return_log_probs ? CumLogProbs(std::string(name), source.response)
                                         : Zeros(std::string(name), {1, 1}, 1);
}

Tensor MakeTopLogProbIds(const Output&, std::string_view name, DataType, Source source) {
  return TopLogProbIds(std::string(name), source.options.num_top_log_probs, source.response);
}

Tensor MakeTopLogProbs(const Output&, std::string_view name, DataType, Source source) {
  return TopLogProbs(std::string(name), source.options.num_top_log_probs, source.response);
}

Tensor MakeBatchIndex(const Output&, std::string_view name, DataType, Source source) {
  return BatchIndex(std::string(name), *source.options.batch_index);
}

Tensor MakeSequenceIndex(const Output&, std::string_view name, DataType, Source source) {
  return SequenceIndex(std::string(name), source.response);
}

Tensor MakeFact(const Output& output, std::string_view name, DataType, Source source) {
  return output.fact->write(std::string(name), source.options.facts, source.response);
}

std::vector<Output> MakeTable() {
  constexpr bool kPasses = true;
  constexpr bool kOfIds = true;
  std::vector<Output> table = {
      {"text_output", kBytes, {-1}, 0, 1, !kPasses, !kOfIds, HasTexts, MakeText},
      {"output_ids", kInt32, {-1, -1}, 1, 0, !kPasses, kOfIds, HasIds, MakeIds},
      {"sequence_length", kInt32, {-1}, 2, 0, !kPasses, kOfIds, HasIds, MakeLengths},
      {"context_logits",
       kFp32,
       {-1, -1},
       3,
       4,
       kPasses,
       !kOfIds,
       HasContextLogits,
       MakeContextLogits},
      {"generation_logits",
       kFp32,
       {-1, -1, -1},
       4,
       5,
       kPasses,
       !kOfIds,
       HasGenerationLogits,
       MakeGenerationLogits},
      {"output_log_probs", kFp32, {-1, -1}, 5, 3, kPasses, !kOfIds, HasLogProbs, MakeLogProbs},
      {"cum_log_probs", kFp32, {-1}, 6, 2, kPasses, !kOfIds, HasLogProbs, MakeCumLogProbs},
      // Of all_models/gpt, where nothing stands for it unasked.
      {.name = "log_probs",
       .type = kFp32,
       .dims = {-1, -1},
       .is_in = HasAskedLogProbs,
       .make = MakeLogProbs,
       .is_named_only = true},
      {"top_log_prob_ids",
       kInt32,
       {-1, -1, -1},
       8,
       7,
       !kPasses,
       !kOfIds,
       HasTopLogProbs,
       MakeTopLogProbIds},
      {"top_log_probs",
       kFp32,
       {-1, -1, -1},
       9,
       8,
       !kPasses,
       !kOfIds,
       HasTopLogProbs,
       MakeTopLogProbs},
      {"batch_index", kInt32, {1}, 7, 6, !kPasses, !kOfIds, HasBatchIndex, MakeBatchIndex},
      {"sequence_index", kInt32, {1}, 0, 0, !kPasses, !kOfIds, HasSequenceIndex, MakeSequenceIndex},
  };
  constexpr int kFactPlace = 10;
  for (const FactOutput& fact : FactOutputs()) {
    Output output = {
        .name = fact.name, .type = fact.type, .is_in = HasFact, .make = MakeFact, .fact = &fact};
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

const Output& IdsOutput() { return *std::ranges::find(OutputTable(), "output_ids", &Output::name); }

bool IsLogits(const Output& output) {
  return output.make == MakeContextLogits || output.make == MakeGenerationLogits;
}

}  // namespace inflight::contract
