// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/log.h"

namespace inflight::metrics {
namespace {

// The library's binary interface, as its reference manual has it: every call returns 0 on success.
using Gpu = struct NvmlDevice*;
struct Utilization {
  unsigned gpu = 0, memory = 0;  // percent
};
struct Memory {
  unsigned long long total = 0, free = 0, used = 0;  // NOLINT: the library's types; bytes
};
constexpr unsigned kUuidSize = 96;

struct Calls {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Gpu*) = nullptr;
  int (*uuid)(Gpu, char*, unsigned) = nullptr;
  int (*utilization)(Gpu, Utilization*) = nullptr;
  int (*memory)(Gpu, Memory*) = nullptr;
  int (*power)(Gpu, unsigned*) = nullptr;             // milliwatts
  int (*power_limit)(Gpu, unsigned*) = nullptr;       // milliwatts
  int (*energy)(Gpu, unsigned long long*) = nullptr;  // NOLINT; millijoules since the driver's load
};

// False where one is missing.
bool Find(void* library, Calls& calls) {
  const auto find = [library](const char* name, auto& call) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
    return call != nullptr;
  };
  return find("nvmlInit_v2", calls.init) && find("nvmlShutdown", calls.shutdown) &&
         find("nvmlDeviceGetCount_v2", calls.count) &&
         find("nvmlDeviceGetHandleByIndex_v2", calls.handle) &&
         find("nvmlDeviceGetUUID", calls.uuid) &&
         find("nvmlDeviceGetUtilizationRates", calls.utilization) &&
         find("nvmlDeviceGetMemoryInfo", calls.memory) &&
         find("nvmlDeviceGetPowerUsage", calls.power) &&
         find("nvmlDeviceGetEnforcedPowerLimit", calls.power_limit) &&
         find("nvmlDeviceGetTotalEnergyConsumption", calls.energy);
}

class LoadedNvml : public Nvml {
 public:
  LoadedNvml(void* library, const Calls& calls) : library_(library), calls_(calls) {}
  ~LoadedNvml() override {
    calls_.shutdown();
    dlclose(library_);
  }
  LoadedNvml(const LoadedNvml&) = delete;
  LoadedNvml& operator=(const LoadedNvml&) = delete;

  void FindGpus(const char* visible_devices) {
    unsigned count = 0;
    if (calls_.count(&count) != 0) return;
    std::vector<KnownGpu> all;
    std::vector<std::string> uuids;
    for (unsigned i = 0; i < count; ++i) {
      KnownGpu gpu;
      std::array<char, kUuidSize> uuid{};
      if (calls_.handle(i, &gpu.handle) != 0 ||
          calls_.uuid(gpu.handle, uuid.data(), kUuidSize) != 0)
        continue;
      gpu.uuid = uuid.data();
      gpu.energy_at_open = Energy(gpu.handle).value_or(0);
      uuids.push_back(gpu.uuid);
      all.push_back(std::move(gpu));
    }
    if (visible_devices == nullptr) {
      gpus_ = std::move(all);
      return;
    }
    for (const size_t index : VisibleGpus(visible_devices, uuids)) gpus_.push_back(all[index]);
  }

  bool has_gpus() const { return !gpus_.empty(); }

  std::vector<GpuReading> Read() override {
    std::vector<GpuReading> readings;
    for (const KnownGpu& gpu : gpus_) {
      GpuReading reading{.uuid = gpu.uuid};
      Utilization utilization;
      if (calls_.utilization(gpu.handle, &utilization) == 0)
        reading.utilization = utilization.gpu * 0.01;
      Memory memory;
      if (calls_.memory(gpu.handle, &memory) == 0) {
        reading.memory_total_bytes = memory.total;
        reading.memory_used_bytes = memory.used;
      }
      unsigned milliwatts = 0;
      if (calls_.power(gpu.handle, &milliwatts) == 0) reading.power_watts = milliwatts * 0.001;
      if (calls_.power_limit(gpu.handle, &milliwatts) == 0)
        reading.power_limit_watts = milliwatts * 0.001;
      if (const auto energy = Energy(gpu.handle))
        reading.energy_joules = static_cast<double>(*energy - gpu.energy_at_open) * 0.001;
      readings.push_back(std::move(reading));
    }
    return readings;
  }

 private:
  struct KnownGpu {
    Gpu handle = nullptr;
    std::string uuid;
    uint64_t energy_at_open = 0;  // millijoules
  };

  std::optional<uint64_t> Energy(Gpu gpu) const {
    unsigned long long millijoules = 0;  // NOLINT: the library's type
    if (calls_.energy(gpu, &millijoules) != 0) return std::nullopt;
    return millijoules;
  }

  void* library_;
  Calls calls_;
  std::vector<KnownGpu> gpus_;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::Open(const char* library, const char* visible_devices) {
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return nullptr;
  Calls calls;
  if (!Find(loaded, calls) || calls.init() != 0) {
    logging::Warning("no GPU metrics: the management library cannot be used", {{"path", library}});
    dlclose(loaded);
    return nullptr;
  }
  auto nvml = std::make_unique<LoadedNvml>(loaded, calls);
  nvml->FindGpus(visible_devices);
  if (!nvml->has_gpus()) return nullptr;
  return nvml;
}

std::vector<size_t> VisibleGpus(std::string_view list, std::span<const std::string> uuids) {
  std::vector<size_t> visible;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    const std::string_view name = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    size_t index = uuids.size();
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) {
      const auto begins = [name](const std::string& uuid) { return uuid.starts_with(name); };
      index = name.starts_with("GPU-")
                  ? static_cast<size_t>(std::ranges::find_if(uuids, begins) - uuids.begin())
                  : uuids.size();
    }
    if (index >= uuids.size()) break;
    visible.push_back(index);
  }
  return visible;
}

}  // namespace inflight::metrics
