// SPDX-License-Identifier: Apache-2.0
// How many cores this process may use, as the affinity mask and cgroups say.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tensor/cpu_pool.h"

namespace inflight {
namespace {

namespace fs = std::filesystem;

int CoresOfAffinityMask() {
  // The kernel wants a mask at least as long as its own, so grow it until the call succeeds.
  for (size_t cpus = 1024; cpus <= 65536; cpus *= 2) {
    std::vector<unsigned long> mask(cpus / (8 * sizeof(unsigned long)));
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    const size_t bytes = mask.size() * sizeof(unsigned long);
    if (sched_getaffinity(0, bytes, set) == 0) return CPU_COUNT_S(bytes, set);
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

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

// The least quota of `group` and its ancestors below `mount`.
template <typename Quota>
void Cut(std::optional<double>& least, const fs::path& mount, const fs::path& group, Quota quota) {
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    if (const std::optional<double> cores = quota(mount / at))
      least = least ? std::min(*least, *cores) : *cores;
    if (at.empty()) return;
  }
}

bool NamesCpuController(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');)
    if (name == "cpu") return true;
  return false;
}

}  // namespace

std::optional<int> CgroupCpuQuota(const fs::path& cgroup_root, std::string_view proc_self_cgroup) {
  std::optional<double> least;
  std::istringstream lines{std::string(proc_self_cgroup)};
  for (std::string line; std::getline(lines, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      Cut(least, cgroup_root, group, QuotaV2);
    } else if (NamesCpuController(controllers)) {
      Cut(least, cgroup_root / "cpu", group, QuotaV1);
      Cut(least, cgroup_root / controllers, group, QuotaV1);
    }
  }
  if (!least) return std::nullopt;
  return std::max(1, static_cast<int>(std::ceil(*least)));
}

int NumUsableCores() {
  const int cores = CoresOfAffinityMask();
  std::ifstream file("/proc/self/cgroup");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::optional<int> quota = CgroupCpuQuota("/sys/fs/cgroup", text);
  return std::max(1, quota ? std::min(cores, *quota) : cores);
}

}  // namespace inflight
