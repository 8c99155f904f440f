// SPDX-License-Identifier: Apache-2.0
// A model on this process's CPU. Depth 1: Launch computes.
#pragma once

#include <cstdint>
#include <memory>

#include "executor/backend.h"
#include "executor/memory_plan.h"
#include "executor/model_drafts.h"
#include "model/engine.h"
#include "ops/backend.h"
#include "tensor/device.h"

namespace inflight::executor {

// Takes what `plan` lists, but for the weights, from the device's ledger. `drafts`: of a plan whose
// drafts a model makes.
Result<std::unique_ptr<Backend>> CreateCpuBackend(std::shared_ptr<const model::Engine> engine,
                                                  Device& device, const MemoryPlan& plan,
                                                  const ops::OpTable& ops,
                                                  std::unique_ptr<ModelDrafts> drafts = nullptr);

}  // namespace inflight::executor
