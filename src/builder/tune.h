// SPDX-License-Identifier: Apache-2.0
// Which algorithm is fastest for each product of a model's steps: measured where the engine will
// run.
#pragma once

#include <string>

#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::builder {

// Times the library's algorithms on `gpu` for every size of step up to the limits, which takes some
// seconds and a few GB of its memory meanwhile. What is found is text
// (model::Engine::kernel_tuning) that another kind of GPU ignores.
Result<std::string> TuneProducts(const model::ModelConfig& config,
                                 const model::EngineLimits& limits, Device& gpu);

}  // namespace inflight::builder
