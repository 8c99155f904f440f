// SPDX-License-Identifier: Apache-2.0
// Rotary position tables: every scaling rule becomes cosines and sines (arXiv:2104.09864;
// docs/reference/artifacts.md, "Rotary positions").
#pragma once

#include <vector>

#include "model/config.h"
#include "ops/attention.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace inflight::model {

// What `config` says of the rope of layers with a window, where they have one of their own.
ModelConfig OfSlidingRope(const ModelConfig& config);

// Positions that the model was first trained with, before yarn or longrope: of their scaling.
int OriginalLength(const ModelConfig& config);

// Whether sequences of up to `max_seq_len` tokens are turned by longrope's long factors.
bool HasLongFactors(const ModelConfig& config, int max_seq_len);

// theta_j of the rotated pairs j in [0, RotaryDim / 2), scaling applied, of an engine whose longest
// sequence has `max_seq_len` tokens. Rounded to float32 where Hugging Face rounds, because
// published models were trained with those numbers.
std::vector<float> InverseFrequencies(const ModelConfig& config, int max_seq_len = 0);

// What cosines and sines are times: 1 but for yarn and longrope.
float RopeMagnitude(const ModelConfig& config);

// How pairs of a head's values are rotated.
ops::RopeStyle RopeStyleOf(PositionKind kind);

// Fills `table` [max_seq_len, 2, RotaryDim / 2] float32, memory of `device`, with cos, then sin, of
// float32(p * theta_j), times RopeMagnitude.
Status FillRopeTable(const ModelConfig& config, const TensorView& table, Device& device);

}  // namespace inflight::model
