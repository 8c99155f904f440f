// SPDX-License-Identifier: Apache-2.0
// Adapters (LoRA) of a model that is split over ranks. What a rank's linears have of an adapter:
//
//   qkv, fc, gate   A whole; of B the rows that are the rank's features
//   dense, proj     of A the columns that are the rank's; B whole
//
// so that what the ranks add is added up with their sums. Biases are the rank's features of qkv, fc
// and gate; of dense and proj the first rank of a stage has them, which adds the model's own, too.
#pragma once

#include "inflight/adapter.h"
#include "model/config.h"

namespace inflight::model {

// The sizes of the model that a rank holds a part of.
ModelConfig WholeConfig(const ModelConfig& rank);

// What the rank has of `tensors`, which AdapterBytes accepted for WholeConfig(rank): tensors for a
// model of its own sizes, layers counted from its first. May have no rows.
LoraTensors TakePart(const ModelConfig& rank, const LoraTensors& tensors);

}  // namespace inflight::model
