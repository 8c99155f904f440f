// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/check_row.h"

#include <fmt/format.h>

namespace inflight::executor::cuda {

Status CheckRow(const StepPlan& plan, int r, int num_known, const BackendInfo& info) {
  const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
  const int end = row.first_position + row.num_query_tokens;
  const bool fits = row.first_position >= 0 && end <= num_known &&
                    (row.is_prefill != 0 ? r >= plan.num_decode_rows
                                         : r < plan.num_decode_rows && row.yields != 0 &&
                                               row.num_query_tokens == 1 + row.num_draft_tokens);
  if (fits && plan.num_tokens <= info.max_num_tokens && plan.num_rows <= info.max_batch_size)
    return Status::Ok();
  return Internal(
      fmt::format("step {}: row {} of {} wants tokens [{}, {}) of slot {}, which knows {}",
                  plan.step_id, r, plan.num_rows, row.first_position, end, row.slot, num_known));
}

}  // namespace inflight::executor::cuda
