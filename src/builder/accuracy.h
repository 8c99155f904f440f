// SPDX-License-Identifier: Apache-2.0
// What storing a model in fewer bits costs: perplexity of given token sequences, and the distance
// of the logits from those of float32.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "builder/builder.h"
#include "inflight/request.h"

namespace inflight::builder {

// A text to measure over. Tokens before `first_scored` are read and not scored: the question before
// a reply.
struct ScoredText {
  std::vector<TokenId> ids;
  size_t first_scored = 1;
};

// Of one stored form, over the positions whose next token is scored.
struct Accuracy {
  // "float32", "float16", "bfloat16", "int8", "int4", "fp8", "fp8_f16"; with a KV cache in FP8
  // "bf16_kv", "fp8_kv", and lm_head in FP8 too, "fp8_head_kv"; "stored" of files that are
  // quantised
  std::string name;
  uint64_t weight_bytes = 0;
  double perplexity = 0;  // exp of the mean of -ln p(next token)
  double logit_rms = 0;   // root of the mean square of (logit - float32's logit)
  double logit_max = 0;   // largest magnitude of it
  double same_best = 0;   // share of positions whose likeliest token is float32's
};

struct AccuracyReport {
  std::string ops;      // table of operators that computed float32 and, without a GPU, all
  std::string gpu_ops;  // that computed the others on a GPU; empty = none did
  DType integer_dtype = DType::kF32;  // of the int8 and int4 forms' embeddings, head and KV cache
  int64_t num_texts = 0;
  int64_t num_predictions = 0;
  std::vector<Accuracy> forms;  // float32 first

  std::string ToString() const;  // a small table, for people
};

inline constexpr int kMaxPiece = 512;

// Opens the model in each form, float32 beside one other at a time, and feeds every text alone,
// cut into pieces of at most kMaxPiece tokens that do not see each other. Of `options`, dtype is
// the integer forms', and every form has the limits; quant_algo is not looked at. The same numbers
// on every run of one machine. kInvalidArgument names a token that the model does not have;
// kFailedPrecondition if the weights are quantised already. With a
// `gpu` all forms but float32 are computed there, FP8 among them. Forms that the model's widths do
// not allow are left out.
Result<AccuracyReport> MeasureAccuracy(const std::filesystem::path& dir, const OpenOptions& options,
                                       std::span<const ScoredText> texts, Device& host,
                                       Device* gpu = nullptr);

}  // namespace inflight::builder
