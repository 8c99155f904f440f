// SPDX-License-Identifier: Apache-2.0
// The one list of operator shapes: tests run all of it on every table, benches the cases with
// `bench` set.
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
};
const std::vector<LinearCase>& LinearCases();

struct AttentionCase {
  const char* name;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int block_size;
  std::vector<SequenceRow> rows;
  DType y_dtype = DType::kF32;
};
const std::vector<AttentionCase>& AttentionCases();

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
