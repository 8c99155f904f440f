// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's management library says of the GPUs. It comes with the driver and is loaded when
// it is there, so that one binary serves machines with and without GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace inflight::metrics {

// Readings that a GPU does not have are empty.
struct GpuReading {
  std::string uuid;                   // "GPU-0123..."
  std::optional<double> utilization;  // [0, 1] of the driver's last sampling period
  std::optional<uint64_t> memory_total_bytes;
  std::optional<uint64_t> memory_used_bytes;  // by all processes
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<double> energy_joules;  // since Open
};

// Threads: one at a time.
class Nvml {
 public:
  // Null where the library, a driver or a visible GPU is missing. `visible_devices` as of the
  // variable CUDA_VISIBLE_DEVICES, null where it is not set.
  static std::unique_ptr<Nvml> Open(const char* library, const char* visible_devices);

  virtual ~Nvml() = default;
  virtual std::vector<GpuReading> Read() = 0;
};

// Indices of the GPUs that a program of CUDA sees: `list` names them by index or by the beginning
// of their UUID, up to the first name of none (CUDA programming guide, environment variables).
std::vector<size_t> VisibleGpus(std::string_view list, std::span<const std::string> uuids);

}  // namespace inflight::metrics
