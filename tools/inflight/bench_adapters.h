// SPDX-License-Identifier: Apache-2.0
// Adapters (LoRA) of random factors for benchmarks.
#pragma once

#include <memory>

#include "inflight/adapter.h"
#include "model/config.h"

namespace inflight::tool {

// Of one rank, of all modules of all layers (q, k, v apart), in the model's dtype.
std::shared_ptr<const LoraTensors> RandomAdapter(const model::ModelConfig& config, int rank);

}  // namespace inflight::tool
