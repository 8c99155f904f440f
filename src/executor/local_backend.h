// SPDX-License-Identifier: Apache-2.0
// A model on one device of this process: slots, KV storage, Forward and Decode (cpu_backend.h,
// cuda_backend.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/backend.h"
#include "executor/cpu_backend.h"
#include "executor/cuda_backend.h"
#include "executor/memory_plan.h"
#include "inflight/executor.h"
#include "model/eagle_head.h"
#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::executor {

// What a draft model takes of a device beside its weights: at once, and in each block of the KV
// cache of a model of those limits. On a CPU it has blocks of its own.
struct DraftModelCost {
  uint64_t bytes = 0;
  uint64_t kv_bytes_per_block = 0;
};
DraftModelCost CostOfDraftModel(const model::ModelConfig& draft,
                                const model::EngineLimits& draft_limits,
                                const model::EngineLimits& limits, DeviceKind device,
                                const ExecutorOptions& options);

struct LocalBackend {
  std::unique_ptr<Backend> backend;
  std::vector<MemoryPlan> plans;  // of each rank of this process
  std::string ops;                // the name of the table of operators
};

// Takes workspace and KV cache from the device's ledger, sized by PlanMemory, and logs the plan.
// `force_ops` names an operator table (ops/backend.h); empty = the best one.
// Of the leader of several ranks (model::RankPart), `make_followers` makes the others, which
// compute by the same table of operators; who gives it holds the ledger's LockSizing.
using MakeFollowers =
    std::function<Result<RankMembership>(const MemoryPlan& plan, const ops::OpTable& ops)>;
Result<LocalBackend> CreateLocalBackend(std::shared_ptr<const model::Engine> engine, Device& device,
                                        const ExecutorOptions& options,
                                        const std::string& force_ops = {},
                                        const DraftWeights& draft = {},
                                        const MakeFollowers& make_followers = nullptr);

// The plan of an engine that is loaded, with one of `num_shares` equal parts of what is free. Under
// the ledger's LockSizing.
Result<MemoryPlan> PlanShare(const model::Engine& engine, Device& device,
                             const ExecutorOptions& options, const DraftWeights& draft,
                             int num_shares);

}  // namespace inflight::executor
