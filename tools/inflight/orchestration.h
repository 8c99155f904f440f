// SPDX-License-Identifier: Apache-2.0
// Orchestrator mode (loader/orchestrator.h), as scripts of the TensorRT-LLM backend ask for it:
// TRTLLM_ORCHESTRATOR=1, and TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0 where a launcher has started the
// processes of ranks.
#pragma once

#include <memory>

#include "inflight/status.h"
#include "launch/world.h"
#include "loader/orchestrator.h"
#include "serve_options.h"

namespace inflight::tool {

enum class Orchestration : uint8_t { kNone, kStarts, kGivesOut };

// By the environment. kInvalidArgument names a variable that is neither 0 nor 1,
// kFailedPrecondition a launcher that started several servers where each would start ranks.
Result<Orchestration> OrchestrationOf(const launch::World& world);

// All processes that the launcher started, once they have come.
Result<std::shared_ptr<comm::Group>> JoinLaunched(const launch::World& world);

// Of the server; null without orchestration.
std::shared_ptr<Orchestrator> MakeOrchestrator(Orchestration orchestration,
                                               const ServeOptions& options,
                                               std::shared_ptr<comm::Group> launched,
                                               const launch::World& world);

}  // namespace inflight::tool
