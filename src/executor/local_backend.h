// SPDX-License-Identifier: Apache-2.0
// A model on one device of this process: slots, KV storage, Forward and Decode (cpu_backend.h,
// cuda_backend.h).
#pragma once

#include <memory>
#include <string>

#include "executor/backend.h"
#include "executor/memory_plan.h"
#include "inflight/executor.h"
#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::executor {

struct LocalBackend {
  std::unique_ptr<Backend> backend;
  MemoryPlan plan;
};

// Takes workspace and KV cache from the device's ledger, sized by PlanMemory, and logs the plan.
// `force_ops` names an operator table (ops/backend.h); empty = the best one. `draft` is the model
// of DraftSource::kModel, null without.
Result<LocalBackend> CreateLocalBackend(
    std::shared_ptr<const model::Engine> engine, Device& device, const ExecutorOptions& options,
    const std::string& force_ops = {}, const std::shared_ptr<const model::Engine>& draft = nullptr);

}  // namespace inflight::executor
