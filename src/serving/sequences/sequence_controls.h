// SPDX-License-Identifier: Apache-2.0
// The control inputs of sequence batching: what a model is told of the sequence that a request
// belongs to. One element each, in the datatype that the configuration gives, behind a batch
// dimension of 1 where the model batches.
#pragma once

#include "inflight/status.h"
#include "model_config.pb.h"
#include "serving/core/request.h"

namespace inflight::serving {

// "must specify ..." texts name the model; kinds, types and values as of
// docs/reference/repositories.md.
Status CheckSequenceControls(const ::inference::ModelConfig& config);

// Appends the controls to the inputs.
void AddSequenceControls(const ::inference::ModelConfig& config, Request& request);

}  // namespace inflight::serving
