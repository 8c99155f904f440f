// SPDX-License-Identifier: Apache-2.0
// The `reshape` of inputs and outputs: clients see `dims`, the model sees `reshape.shape`
// (docs/reference/repositories.md). Bytes stay as they are; a batch dimension stays in front.
//
//   dims [-1, 2] reshape [2, -1]:  the k-th -1 of one is the k-th -1 of the other
#pragma once

#include "model_config.pb.h"
#include "serving/tensors/tensor.h"

namespace inflight::serving {

// As the model shall see it. `input` has passed validation; unknown names are left alone.
void ShapeInput(const ::inference::ModelConfig& config, Tensor& input);
// As the client shall see it.
void ShapeOutput(const ::inference::ModelConfig& config, Tensor& output);

}  // namespace inflight::serving
