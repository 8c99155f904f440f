// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/machine.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"

namespace inflight::metrics {
namespace {

constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// The next number of `text`, which is moved behind it.
std::optional<uint64_t> TakeNumber(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// Of a line "Name:   123 kB".
std::optional<uint64_t> BytesOf(std::string_view meminfo, std::string_view name) {
  const size_t begin = meminfo.find(name);
  if (begin == std::string_view::npos) return std::nullopt;
  std::string_view rest = meminfo.substr(begin + name.size());
  const std::optional<uint64_t> kib = TakeNumber(rest);
  if (!kib) return std::nullopt;
  return *kib * 1024;
}

template <typename Value>
struct GpuFamily {
  std::string_view name;
  std::string_view help;
  std::string_view type;
  std::optional<Value> GpuReading::*value;
};

template <typename Value>
void WriteGpus(const GpuFamily<Value>& family, const std::vector<GpuReading>& gpus,
               TextWriter& out) {
  bool is_announced = false;
  for (const GpuReading& gpu : gpus) {
    const std::optional<Value>& value = gpu.*family.value;
    if (!value) continue;
    if (!std::exchange(is_announced, true)) out.Family(family.name, family.help, family.type);
    const Label labels[] = {{"gpu_uuid", gpu.uuid}};
    out.Sample(labels, *value);
  }
}

constexpr GpuFamily<double> kGpuNumbers[] = {
    {"nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", "gauge", &GpuReading::utilization},
    {"nv_gpu_power_usage", "GPU power usage in watts", "gauge", &GpuReading::power_watts},
    {"nv_gpu_power_limit", "GPU power management limit in watts", "gauge",
     &GpuReading::power_limit_watts},
    {"nv_energy_consumption", "GPU energy consumption in joules since the Triton Server started",
     "counter", &GpuReading::energy_joules},
};
constexpr GpuFamily<uint64_t> kGpuBytes[] = {
    {"nv_gpu_memory_total_bytes", "GPU total memory, in bytes", "gauge",
     &GpuReading::memory_total_bytes},
    {"nv_gpu_memory_used_bytes", "GPU used memory, in bytes", "gauge",
     &GpuReading::memory_used_bytes},
};

}  // namespace

std::optional<CpuTimes> ParseCpuTimes(std::string_view stat) {
  constexpr std::string_view kAllCores = "cpu ";
  if (!stat.starts_with(kAllCores)) return std::nullopt;
  stat.remove_prefix(kAllCores.size());
  // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user and nice.
  constexpr size_t kIdle = 3;
  constexpr size_t kIoWait = 4;
  std::array<uint64_t, 8> ticks{};
  CpuTimes times;
  for (size_t i = 0; i < ticks.size(); ++i) {
    const std::optional<uint64_t> value = TakeNumber(stat);
    if (!value) return std::nullopt;
    times.total += *value;
    if (i != kIdle && i != kIoWait) times.busy += *value;
  }
  return times;
}

std::optional<CpuMemory> ParseCpuMemory(std::string_view meminfo) {
  const std::optional<uint64_t> total = BytesOf(meminfo, "MemTotal:");
  const std::optional<uint64_t> available = BytesOf(meminfo, "MemAvailable:");
  if (!total || !available || *available > *total) return std::nullopt;
  return CpuMemory{.total_bytes = *total, .used_bytes = *total - *available};
}

void WriteMachine(const MachineReadings& readings, TextWriter& out) {
  for (const auto& family : kGpuNumbers) WriteGpus(family, readings.gpus, out);
  for (const auto& family : kGpuBytes) WriteGpus(family, readings.gpus, out);
  if (readings.cpu_utilization) {
    out.Family("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", "gauge");
    out.Sample({}, *readings.cpu_utilization);
  }
  if (readings.cpu_memory) {
    out.Family("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", "gauge");
    out.Sample({}, readings.cpu_memory->total_bytes);
    out.Family("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", "gauge");
    out.Sample({}, readings.cpu_memory->used_bytes);
  }
}

MachineMonitor::MachineMonitor(const MachineOptions& options) : options_(options) {
  if (options.with_gpus) nvml_ = Nvml::Open(kNvmlLibrary, std::getenv("CUDA_VISIBLE_DEVICES"));
  Read();
  if (!options.with_cpu && nvml_ == nullptr) return;  // nothing changes
  thread_ = std::jthread([this](const std::stop_token& stop) {
    NameThisThread("machine");
    std::mutex mutex;
    std::unique_lock lock(mutex);
    while (!stopped_.wait_for(lock, stop, options_.interval, [&] { return stop.stop_requested(); }))
      RunTurn("machine", [this] { Read(); });
  });
}

MachineMonitor::~MachineMonitor() = default;

MachineReadings MachineMonitor::readings() const {
  const std::lock_guard lock(mutex_);
  return readings_;
}

void MachineMonitor::Read() {
  MachineReadings readings;
  if (options_.with_cpu) {
    if (const Result<std::string> stat = ReadFile("/proc/stat"); stat.ok()) {
      const std::optional<CpuTimes> times = ParseCpuTimes(*stat);
      readings.cpu_utilization = readings_.cpu_utilization;  // until a tick has passed
      if (times && times->total != times_.total) {
        if (times->total > times_.total && times->busy >= times_.busy) {
          readings.cpu_utilization = static_cast<double>(times->busy - times_.busy) /
                                     static_cast<double>(times->total - times_.total);
        }
        times_ = *times;
      }
    }
    if (const Result<std::string> meminfo = ReadFile("/proc/meminfo"); meminfo.ok())
      readings.cpu_memory = ParseCpuMemory(*meminfo);
  }
  if (nvml_ != nullptr) readings.gpus = nvml_->Read();
  const std::lock_guard lock(mutex_);
  readings_ = std::move(readings);
}

}  // namespace inflight::metrics
