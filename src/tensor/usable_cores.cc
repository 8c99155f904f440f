// SPDX-License-Identifier: Apache-2.0
// How many cores this process may use, as the affinity mask and cgroups say.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tensor/cgroup.h"
#include "tensor/cpu_pool.h"

namespace inflight {
namespace {

namespace fs = std::filesystem;

// `quota period` of one group's directory, in cores.
std::optional<double> QuotaV2(const fs::path& dir) {
  std::ifstream file(dir / "cpu.max");
  double quota = 0;
  double period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;  // "max 100000"
  return quota / period;
}

std::optional<double> QuotaV1(const fs::path& dir) {
  double quota = 0;
  double period = 0;
  if (!(std::ifstream(dir / "cpu.cfs_quota_us") >> quota) ||
      !(std::ifstream(dir / "cpu.cfs_period_us") >> period) || quota <= 0 || period <= 0)
    return std::nullopt;  // -1 = none
  return quota / period;
}

}  // namespace

std::vector<int> CoresOfAffinityMask() {
  std::vector<int> cores;
  // The kernel wants a mask at least as long as its own, so grow it until the call succeeds.
  for (size_t cpus = 1024; cpus <= 65536; cpus *= 2) {
    std::vector<unsigned long> mask(cpus / (8 * sizeof(unsigned long)));
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    const size_t bytes = mask.size() * sizeof(unsigned long);
    if (sched_getaffinity(0, bytes, set) != 0) continue;
    for (size_t core = 0; core < cpus; ++core)
      if (CPU_ISSET_S(core, bytes, set)) cores.push_back(static_cast<int>(core));
    return cores;
  }
  for (int core = 0; core < static_cast<int>(std::thread::hardware_concurrency()); ++core)
    cores.push_back(core);
  return cores;
}

std::optional<int> CgroupCpuQuota(const fs::path& cgroup_root, std::string_view proc_self_cgroup) {
  std::optional<double> least;
  for (const CgroupFolder& folder : CgroupFolders(cgroup_root, proc_self_cgroup, "cpu")) {
    const auto cores = folder.version == 2 ? QuotaV2(folder.path) : QuotaV1(folder.path);
    if (cores) least = least ? std::min(*least, *cores) : *cores;
  }
  if (!least) return std::nullopt;
  return std::max(1, static_cast<int>(std::ceil(*least)));
}

int NumUsableCores() {
  const auto cores = static_cast<int>(CoresOfAffinityMask().size());
  std::ifstream file("/proc/self/cgroup");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::optional<int> quota = CgroupCpuQuota("/sys/fs/cgroup", text);
  return std::max(1, quota ? std::min(cores, *quota) : cores);
}

}  // namespace inflight
