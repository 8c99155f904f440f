// SPDX-License-Identifier: Apache-2.0
// Slurm's short forms of lists (srun(1), "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE").
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace inflight::launch {

// The first host of "gpu[008-011,20],login1": "gpu008". None where the brackets do not match or the
// name is empty.
std::optional<std::string> FirstHost(std::string_view list);

// The number of tasks on node `node` (from 0) by "2(x3),1", which means 2, 2, 2, 1. None where the
// list is not of this form or has no such node.
std::optional<int> TasksOfNode(std::string_view list, int node);

}  // namespace inflight::launch
