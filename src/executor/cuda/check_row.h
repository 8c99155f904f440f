// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "executor/backend.h"

namespace inflight::executor::cuda {

// Of a plan's row whose slot knows so many tokens, or may. kInternal when it does not fit its slot:
// a defect of the planner.
Status CheckRow(const StepPlan& plan, int r, int num_known, const BackendInfo& info);

}  // namespace inflight::executor::cuda
