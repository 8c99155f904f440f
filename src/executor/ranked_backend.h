// SPDX-License-Identifier: Apache-2.0
// A model whose parts several ranks of this process compute, a thread each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/local_backend.h"

namespace inflight::executor {

// The ranks of `engines`, [tp_size * pp_size] as of model::RankPart, all on `device`, which has the
// memory of all. Each takes as many KV blocks as the rank with the least room. `draft` is the
// leader's alone. Errors as of CreateLocalBackend.
Result<LocalBackend> CreateRankedBackend(
    const std::vector<std::shared_ptr<const model::Engine>>& engines, Device& device,
    const ExecutorOptions& options, const std::string& force_ops = {},
    const DraftWeights& draft = {});

}  // namespace inflight::executor
