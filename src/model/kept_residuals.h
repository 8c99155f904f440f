// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "inflight/status.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace inflight::model {

// What heads beside the model read of its layers (model/eagle_decoder.h).
struct KeptResiduals {
  // Ascending, of the whole model: the residual that enters each of them, of 0 the embedding
  std::vector<int> layers;
  // [num_tokens, layers * hidden_size] of the dtype that linears read: a token's layers side by
  // side
  TensorView states;
  // CUDA: enqueues the copy of `residual` to columns of `states` from `column` on; null on the CPU.
  Status (*copy)(const TensorView& residual, const TensorView& states, int64_t column,
                 Stream& stream) = nullptr;
};

// Where layer `layer` is kept, `residual` [num_tokens, hidden_size] enters it; on the CPU float32.
Status Keep(const KeptResiduals& kept, int layer, const TensorView& residual, Stream& stream);

}  // namespace inflight::model
