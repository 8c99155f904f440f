// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/gpu_group.h"

#include <fmt/format.h>

#include <mutex>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "executor/cuda/debug_options.h"
#include "executor/cuda/nccl_group.h"
#include "executor/cuda/nccl_stages.h"
#include "executor/cuda/peer_group.h"
#include "executor/cuda/stage_group.h"

namespace inflight::executor::cuda {
namespace {

// Indices of the GPUs that groups have. Kernels of two groups could wait for each other: one on a
// GPU for a rank whose GPU is full of kernels that wait for a rank on the first.
class GroupGpus {
 public:
  static GroupGpus& OfProcess() {
    static GroupGpus gpus;
    return gpus;
  }
  Status Take(std::span<Device* const> devices, std::vector<int>* taken) {
    const std::lock_guard lock(mutex_);
    for (const Device* device : devices)
      if (taken_.contains(device->cuda().index))
        return FailedPrecondition(
            fmt::format("gpu_device_ids: {} is of another model on several GPUs; unload that one "
                        "first, or name other GPUs",
                        device->name()));
    for (const Device* device : devices)
      if (taken_.insert(device->cuda().index).second) taken->push_back(device->cuda().index);
    return Status::Ok();
  }
  void Give(const std::vector<int>& taken) {
    const std::lock_guard lock(mutex_);
    for (const int index : taken) taken_.erase(index);
  }

 private:
  std::mutex mutex_;
  std::set<int> taken_;  // under mutex_
};

Result<std::unique_ptr<GpuGroup>> MakeGroup(std::span<Device* const> devices,
                                            const GpuGroupShape& shape) {
  const bool wants_nccl = DebugOptions::FromEnvironment().ranks_use_nccl;
  Status reached = wants_nccl ? Unimplemented("") : PeerGroup::Reaches(devices);
  const bool has_stages = shape.num_stages > 1;
  if (reached.ok())
    return has_stages ? StagedGroup::Create(devices, shape) : PeerGroup::Create(devices, devices);
  if (reached.code() != StatusCode::kUnimplemented) return reached;
  const size_t stage_size = devices.size() / static_cast<size_t>(shape.num_stages);
  if (shape.is_deterministic && stage_size > 2)
    return Unimplemented(fmt::format(
        "tensor_parallel_size: got {} beside deterministic; GPUs that do not reach each other's "
        "memory add up by NCCL, in an order that depends on what else is computed: use at most 2, "
        "or leave deterministic out",
        stage_size));
  return has_stages ? NcclStages::Create(devices, shape.num_stages) : NcclGroup::Create(devices);
}

}  // namespace

GpuGroup::~GpuGroup() { GroupGpus::OfProcess().Give(gpus_); }

Result<std::unique_ptr<GpuGroup>> GpuGroup::Create(std::span<Device* const> devices,
                                                   const GpuGroupShape& shape) {
  std::vector<int> taken;
  RETURN_IF_ERROR(GroupGpus::OfProcess().Take(devices, &taken));
  auto group = MakeGroup(devices, shape);
  if (group.ok())
    (*group)->gpus_ = std::move(taken);
  else
    GroupGpus::OfProcess().Give(taken);
  return group;
}

}  // namespace inflight::executor::cuda
