// SPDX-License-Identifier: Apache-2.0
// `lora_weights` and `lora_config` to an adapter (inflight/adapter.h); shapes and words of the
// errors: docs/reference/adapters.md.
#pragma once

#include <memory>

#include "base/memory_account.h"
#include "contract/tensor.h"
#include "inflight/adapter.h"
#include "inflight/status.h"

namespace inflight::contract {

// What it takes is charged to `memory` first; kResourceExhausted where that has no room.
//
// `weights` is [rows, width] or [1, rows, width] of FP16, BF16 or FP32, `config` INT32 of as many
// rows of module, layer and rank, and perhaps whether it is DoRA. kInvalidArgument and
// kUnimplemented name the tensor.
Result<std::shared_ptr<const LoraTensors>> ReadLoraTensors(const Tensor& weights,
                                                           const Tensor& config,
                                                           std::shared_ptr<AccountShare> memory);

}  // namespace inflight::contract
