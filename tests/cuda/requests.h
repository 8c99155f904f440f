// SPDX-License-Identifier: Apache-2.0
// Requests of random prompts, and running them through an executor.
#pragma once

#include <memory>
#include <vector>

#include "collecting_sink.h"
#include "executor/executor.h"
#include "executor/local_backend.h"
#include "inflight/executor.h"
#include "model/engine.h"

namespace inflight::gpu {

// Greedy, with log-probs; ids below `vocab_size`.
Request RandomRequest(int prompt_len, int max_tokens, int vocab_size, unsigned seed);

std::unique_ptr<Executor> MakeExecutor(const std::shared_ptr<const model::Engine>& engine,
                                       Device& device, const ExecutorOptions& options);

// All at once; returns when all have ended.
std::vector<std::shared_ptr<CollectingSink>> RunAll(Executor& executor,
                                                    const std::vector<Request>& requests);

}  // namespace inflight::gpu
