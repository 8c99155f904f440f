// SPDX-License-Identifier: Apache-2.0
// The gauges of the machine itself, nv_cpu_* and nv_gpu_* (docs/metrics.md, "The machine"): read by
// a thread every so often, since reading GPUs takes milliseconds, and written into the page from
// what it read last.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "protocol/metrics/nvml.h"
#include "protocol/metrics/text_writer.h"

namespace inflight::metrics {

struct MachineOptions {
  bool with_cpu = true;
  bool with_gpus = true;
  std::chrono::milliseconds interval{2000};
};

// Of all cores since the machine started, in ticks.
struct CpuTimes {
  uint64_t busy = 0, total = 0;
};

struct CpuMemory {
  uint64_t total_bytes = 0, used_bytes = 0;  // used: what programs could not get
};

struct MachineReadings {
  // [0, 1] of all cores: since the reading before, in the first one since the machine started.
  std::optional<double> cpu_utilization;
  std::optional<CpuMemory> cpu_memory;
  std::vector<GpuReading> gpus;
};

// Of the texts of /proc/stat and /proc/meminfo (proc(5)); empty where they say something else.
std::optional<CpuTimes> ParseCpuTimes(std::string_view stat);
std::optional<CpuMemory> ParseCpuMemory(std::string_view meminfo);

// The families of which there is a reading.
void WriteMachine(const MachineReadings& readings, TextWriter& out);

// Threads: readings() from any. Where a reading finds no memory the one before stays.
class MachineMonitor {
 public:
  // Returns after the first reading.
  explicit MachineMonitor(const MachineOptions& options);
  ~MachineMonitor();

  MachineReadings readings() const;

 private:
  void Read();

  const MachineOptions options_;
  std::unique_ptr<Nvml> nvml_;  // the thread's, once it runs
  CpuTimes times_;              // likewise: of the reading before
  mutable std::mutex mutex_;
  MachineReadings readings_;
  std::condition_variable_any stopped_;  // takes memory when it is made
  std::jthread thread_;
};

}  // namespace inflight::metrics
