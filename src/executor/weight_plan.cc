// SPDX-License-Identifier: Apache-2.0
#include "executor/weight_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "model/weight_stream.h"

namespace inflight::executor {
namespace {

constexpr char kGpuWeightsField[] = "gpu_weights_percent";
// Of the free memory, which as many layers as fit leave to the KV cache at most.
constexpr double kKvFraction = 0.1;
constexpr double kRounding = 1e-9;  // 0.3 of 10 layers are 3

double GiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

Status CheckGpuWeights(DeviceKind device, const GpuWeights& options) {
  const double fraction = options.fraction;
  if (!(fraction >= 0 && fraction <= 1))
    return InvalidArgument(
        kGpuWeightsField,
        fmt::format("got {}, must be in [0, 1]: the part of the layers' weights that stays "
                    "in the GPU's memory",
                    fraction));
  if (device == DeviceKind::kCuda || (fraction == 1 && !options.as_many_as_fit))
    return Status::Ok();
  return Unimplemented(
      kGpuWeightsField,
      fmt::format("got {}, on a CPU all weights are in host memory; leave it out, or use "
                  "--device cuda",
                  options.as_many_as_fit ? "auto" : fmt::format("{}", fraction)));
}

// KV tokens that layers which stay leave room for.
int64_t WantedTokens(const MemoryPlan& plan, const ExecutorOptions& options, uint64_t free_bytes) {
  const int64_t most = int64_t{plan.max_batch_size} * plan.max_blocks_per_seq() * plan.block_size;
  if (options.max_kv_tokens) return std::min(*options.max_kv_tokens, most);
  const auto bytes_per_token =
      static_cast<double>(plan.bytes_of_all_layers()) / static_cast<double>(plan.block_size);
  const double share = kKvFraction * static_cast<double>(free_bytes) / bytes_per_token;
  return std::min(int64_t{plan.max_seq_len}, static_cast<int64_t>(share));
}

Result<WeightPlan> AsManyAsFit(const model::ModelConfig& config, const model::EngineLimits& limits,
                               const WeightSizes& sizes, const ExecutorOptions& options,
                               uint64_t free_bytes, uint64_t draft_kv_bytes_per_block) {
  const auto memory_of = [&](const WeightPlan& plan, uint64_t free) {
    return PlanMemory(config, limits, DeviceKind::kCuda, plan.device_bytes(),
                      /*weights_are_taken=*/false, options, free,
                      {.ring_bytes = plan.ring_bytes,
                       .host_bytes = plan.host_bytes,
                       .draft_kv_bytes_per_block = draft_kv_bytes_per_block});
  };
  const WeightPlan least = PlanOfResident(sizes, 0);
  // What a plan says of its limits without a bound of memory.
  ASSIGN_OR_RETURN(const MemoryPlan roomy, memory_of(least, uint64_t{1} << 60));
  const int64_t wanted = WantedTokens(roomy, options, free_bytes);
  for (int num_resident = sizes.num_layers; num_resident > 0; --num_resident) {
    const WeightPlan plan = PlanOfResident(sizes, num_resident);
    const Result<MemoryPlan> memory = memory_of(plan, free_bytes);
    if (memory.ok() && memory->kv_tokens() >= wanted) return plan;
  }
  RETURN_IF_ERROR(memory_of(least, free_bytes).status());
  return least;
}

}  // namespace

double WeightPlan::StepSeconds(const CopySpeed& speed) const {
  return std::max(static_cast<double>(bytes_per_step) / speed.upload_bytes_per_s,
                  static_cast<double>(total_bytes) / speed.memory_bytes_per_s);
}

std::string WeightPlan::ToString(const CopySpeed& speed) const {
  if (streamed.empty()) return "";
  const double seconds = StepSeconds(speed);
  return fmt::format(
      "streaming  {} of {} layers stay; the {:.2f} GiB of the other {} are in pinned host memory. "
      "A "
      "step copies {:.2f} GiB at {:.1f} GB/s: {:.1f} ms at least, {:.2f} tokens a second of each "
      "sequence\n",
      num_layers - static_cast<int>(streamed.size()), num_layers, GiB(host_bytes), streamed.size(),
      GiB(bytes_per_step), speed.upload_bytes_per_s * 1e-9, seconds * 1e3, 1 / seconds);
}

WeightPlan PlanOfResident(const WeightSizes& sizes, int num_resident) {
  WeightPlan plan = {.num_layers = sizes.num_layers,
                     .streamed = {},
                     .total_bytes = sizes.total_bytes,
                     .layer_bytes = sizes.layer_bytes};
  const int num_streamed = sizes.num_layers - num_resident;
  if (num_streamed <= model::LayerRing::kNumBuffers) return plan;
  for (int64_t k = 0; k < num_streamed; ++k)
    plan.streamed.push_back(static_cast<int>(k * sizes.num_layers / num_streamed));
  plan.host_bytes = static_cast<uint64_t>(num_streamed) * sizes.layer_bytes;
  plan.ring_bytes = model::RingBytes(num_streamed, sizes.layer_bytes);
  plan.bytes_per_step =
      static_cast<uint64_t>(model::LayerRing(num_streamed).num_copies_per_step()) *
      sizes.layer_bytes;
  return plan;
}

Result<WeightPlan> PlanWeights(const model::ModelConfig& config, const model::EngineLimits& limits,
                               DeviceKind device, const WeightSizes& sizes,
                               const ExecutorOptions& options, uint64_t free_bytes,
                               uint64_t draft_kv_bytes_per_block) {
  RETURN_IF_ERROR(CheckGpuWeights(device, options.gpu_weights));
  if (options.gpu_weights.as_many_as_fit)
    return AsManyAsFit(config, limits, sizes, options, free_bytes, draft_kv_bytes_per_block);
  const double fraction = options.gpu_weights.fraction;
  return PlanOfResident(sizes,
                        static_cast<int>(std::floor(fraction * sizes.num_layers + kRounding)));
}

}  // namespace inflight::executor
