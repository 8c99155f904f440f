// SPDX-License-Identifier: Apache-2.0
#include "loader/streaming.h"

#include <algorithm>

#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::loader {

Result<StreamingPlan> PlanStreaming(const model::ModelConfig& config,
                                    const model::EngineLimits& limits, Device& device,
                                    const executor::WeightSizes& sizes,
                                    const ExecutorOptions& options,
                                    const executor::DraftModelCost& draft) {
  StreamingPlan plan;
  const uint64_t free_bytes = device.FreeBytes();
  ASSIGN_OR_RETURN(plan.weights,
                   executor::PlanWeights(config, limits, device.kind(), sizes, options,
                                         free_bytes - std::min(free_bytes, draft.bytes),
                                         draft.kv_bytes_per_block));
  if (plan.weights.streamed.empty()) return plan;
  ASSIGN_OR_RETURN(plan.copy_speed, MeasureCopySpeed(device));
  return plan;
}

void LogStreaming(const StreamingPlan& plan) {
  const executor::WeightPlan& weights = plan.weights;
  if (weights.streamed.empty()) return;
  const double seconds = weights.StepSeconds(plan.copy_speed);
  logging::Info("weights are streamed",
                {{"layers", weights.num_layers},
                 {"streamed_layers", weights.streamed.size()},
                 {"host_bytes", weights.host_bytes},
                 {"ring_bytes", weights.ring_bytes},
                 {"bytes_per_step", weights.bytes_per_step},
                 {"upload_gb_per_s", plan.copy_speed.upload_bytes_per_s * 1e-9},
                 {"memory_gb_per_s", plan.copy_speed.memory_bytes_per_s * 1e-9},
                 {"least_step_ms", seconds * 1e3},
                 {"expected_tokens_per_s_of_a_sequence", 1 / seconds}});
}

}  // namespace inflight::loader
