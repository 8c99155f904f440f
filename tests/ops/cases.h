// SPDX-License-Identifier: Apache-2.0
// The one list of operator shapes, of the CPU's tables and of CUDA's: remainders of tiles and
// vectors, tensors at odd addresses, one row, none, and the largest.
#pragma once

#include <vector>

#include "ops/linear.h"
#include "support.h"

namespace inflight::ops {

struct LinearCase {
  const char* name;
  int num_tokens;
  int out_features;
  int in_features;
  bool bias = true;
  ActivationKind activation = ActivationKind::kNone;
  DType y_dtype = DType::kF32;
  int offset_elements = 0;  // misalignment of activations and outputs
  bool gpu_only = false;    // takes a CPU seconds
};
const std::vector<LinearCase>& LinearCases();
std::vector<LinearCase> CpuLinearCases();  // without those for GPUs only

struct LmHeadCase {
  const char* name;
  int num_tokens;
  int vocab_size;
  int hidden_size;
  std::vector<int> rows;
  bool bias = false;
  int offset_elements = 0;  // misalignment of the logits
  bool gpu_only = false;
};
const std::vector<LmHeadCase>& LmHeadCases();

struct EmbedCase {
  const char* name;
  int num_tokens;
  int vocab_size;
  int hidden_size;
  bool positions = false;
  int offset_elements = 0;  // misalignment of the output
};
const std::vector<EmbedCase>& EmbedCases();

struct QkvCase {
  const char* name;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int hidden_size;
  RopeStyle style;
  int rotary_dim;
  int block_size;
  std::vector<SequenceRow> rows;
  bool bias = true;
  int offset_elements = 0;  // misalignment of the workspace and of q
  bool gpu_only = false;
};
const std::vector<QkvCase>& QkvCases();

struct AttentionCase {
  const char* name;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int block_size;
  std::vector<SequenceRow> rows;
  DType y_dtype = DType::kF32;
  bool gpu_only = false;
};
const std::vector<AttentionCase>& AttentionCases();
std::vector<AttentionCase> CpuAttentionCases();

// Of norms, and of rounding rows to FP8.
struct NormCase {
  const char* name;
  int num_tokens;
  int hidden_size;
  bool layer_norm;
  bool delta;
  DType y_dtype;
};
const std::vector<NormCase>& NormCases();

// The linears of a Llama-3.2-1B shape, by name; for benches.
struct ModelLinear {
  const char* name;
  int out_features;
  int in_features;
  bool gated = false;  // two weights
  int per_model = 1;   // how many of it a forward pass has
};
const std::vector<ModelLinear>& OneBillionLinears();

}  // namespace inflight::ops
