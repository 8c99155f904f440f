// SPDX-License-Identifier: Apache-2.0
#include "loader/devices.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "builder/engine_memory.h"
#include "model/supported.h"

namespace inflight {

using builder::Description;
using builder::SourceKind;

Result<std::shared_ptr<Devices>> Devices::ByName(const std::string& name, int num_threads) {
  std::shared_ptr<Devices> choice(new Devices());
  choice->num_threads_ = num_threads;
  if (name == "auto") {
    Result<std::unique_ptr<Device>> gpu = Device::Cuda(0, num_threads);
    if (gpu.ok())
      choice->gpu_ = *std::move(gpu);
    else
      choice->no_gpu_ = gpu.status();
  } else {
    ASSIGN_OR_RETURN(choice->only_, Device::ByName(name, num_threads));
  }
  return choice;
}

std::shared_ptr<Devices> Devices::Only(std::shared_ptr<Device> device) {
  std::shared_ptr<Devices> choice(new Devices());
  choice->only_ = std::move(device);
  return choice;
}

const std::shared_ptr<Device>& Devices::Cpu() {
  if (cpu_ == nullptr) cpu_ = Device::Cpu(num_threads_);
  return cpu_;
}

Result<std::shared_ptr<Device>> Devices::ForEngine(const std::filesystem::path& dir, int rank) {
  ASSIGN_OR_RETURN(const DeviceKind target, builder::EngineTarget(dir, rank));
  if (target == DeviceKind::kCpu) {
    if (gpu_ != nullptr)
      logging::Info(
          "the engine was built for the CPU and runs there; build it with --target cuda for the "
          "GPU",
          {{"path", dir.string()}, {"gpu", gpu_->cuda().name}});
    return Cpu();
  }
  if (gpu_ != nullptr) return gpu_;
  return no_gpu_.WithPrefix(fmt::format("{}: built for target '{}'", dir.string(),
                                        builder::TargetName(DeviceKind::kCuda)));
}

Result<std::shared_ptr<Device>> Devices::For(const std::filesystem::path& dir,
                                             builder::OpenOptions options) {
  const std::lock_guard lock(mutex_);
  if (only_ != nullptr) return only_;
  ASSIGN_OR_RETURN(const SourceKind kind, builder::Detect(dir));
  if (kind == SourceKind::kEngine) return ForEngine(dir, options.rank);
  if (gpu_ == nullptr) return Cpu();
  options.target = DeviceKind::kCuda;
  // What is wrong with the directory itself is said by whoever opens it.
  const Result<Description> on_gpu = builder::Describe(dir, options);
  if (!on_gpu.ok()) return gpu_;
  const Status runnable = model::CheckRuns(on_gpu->config, *gpu_);
  if (runnable.ok()) return gpu_;
  logging::Warning("the GPU cannot run this model, the CPU does",
                   {{"path", dir.string()}, {"reason", runnable.message()}});
  return Cpu();
}

Result<std::shared_ptr<Device>> Devices::ForGpu(const std::filesystem::path& dir, int index) {
  const std::lock_guard lock(mutex_);
  if (only_ != nullptr) return only_;
  ASSIGN_OR_RETURN(const SourceKind kind, builder::Detect(dir));
  if (kind == SourceKind::kEngine) {
    ASSIGN_OR_RETURN(const DeviceKind target, builder::EngineTarget(dir, /*rank=*/0));
    if (target == DeviceKind::kCpu) {
      return InvalidArgument(fmt::format(
          "{} was built for the CPU (build it with --target cuda, or leave the key open)",
          dir.string()));
    }
  }
  if (index == 0) {
    if (gpu_ == nullptr) return no_gpu_;
    return gpu_;
  }
  return OtherGpu(index);
}

Result<std::shared_ptr<Device>> Devices::Behind(const Device& gpu, int distance) {
  const std::lock_guard lock(mutex_);
  return OtherGpu(gpu.cuda().index + distance);
}

Result<std::shared_ptr<Device>> Devices::OtherGpu(int index) {
  std::shared_ptr<Device>& gpu = other_gpus_[index];
  if (gpu == nullptr) {
    ASSIGN_OR_RETURN(gpu, Device::Cuda(index, num_threads_));
  }
  return gpu;
}

}  // namespace inflight
