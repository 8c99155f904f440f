// SPDX-License-Identifier: Apache-2.0
// Stands in for NVIDIA's management library in tests: two GPUs, the second without power readings.
#include <cstdint>
#include <cstdio>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
int indices[2] = {0, 1};
unsigned long long millijoules = 5'000'000;  // NOLINT: the library's type; grows by 1,500 a reading

}  // namespace

// NOLINTBEGIN: names and types are the library's.
extern "C" {
int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  *gpu = &indices[index];
  return kSuccess;
}
int nvmlDeviceGetUUID(void* gpu, char* uuid, unsigned size) {
  std::snprintf(uuid, size, "GPU-%d%d", *static_cast<int*>(gpu), *static_cast<int*>(gpu));
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(void* gpu, unsigned* rates) {
  rates[0] = *static_cast<int*>(gpu) == 0 ? 25 : 0;
  rates[1] = 99;
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* gpu, unsigned long long* memory) {
  constexpr unsigned long long kGiB = 1ULL << 30;
  memory[0] = (80 + 16 * *static_cast<int*>(gpu)) * kGiB;
  memory[1] = 56 * kGiB;
  memory[2] = 24 * kGiB;
  return kSuccess;
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) {
  *milliwatts = 123'500;
  return *static_cast<int*>(gpu) == 0 ? kSuccess : kNotSupported;
}
int nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return *static_cast<int*>(gpu) == 0 ? kSuccess : kNotSupported;
}
int nvmlDeviceGetTotalEnergyConsumption(void* gpu, unsigned long long* energy) {
  if (*static_cast<int*>(gpu) != 0) return kNotSupported;
  *energy = millijoules;
  millijoules += 1500;
  return kSuccess;
}
}
// NOLINTEND
