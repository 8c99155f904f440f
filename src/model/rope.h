// SPDX-License-Identifier: Apache-2.0
// Rotary position tables: every scaling rule becomes cosines and sines (arXiv:2104.09864;
// docs/reference/artifacts.md, "Rotary positions").
#pragma once

#include <vector>

#include "model/config.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace inflight::model {

// What `config` says of the rope of layers with a window, where they have one of their own.
ModelConfig OfSlidingRope(const ModelConfig& config);

// theta_j of the rotated pairs j in [0, RotaryDim / 2), scaling applied. Rounded to float32 where
// Hugging Face rounds, because published models were trained with those numbers.
std::vector<float> InverseFrequencies(const ModelConfig& config);

// Fills `table` [max_seq_len, 2, RotaryDim / 2] float32, memory of `device`, with cos, then sin, of
// float32(p * theta_j).
Status FillRopeTable(const ModelConfig& config, const TensorView& table, Device& device);

}  // namespace inflight::model
