// SPDX-License-Identifier: Apache-2.0
// Fork-join threads for CPU kernels, one per core that this process may use. Where its cores belong
// to several nodes of memory, the pool's own threads are spread over them and stay there (numa.h);
// on one node they run where the system puts them.
//
// Workers spin for some microseconds after a region and then park, so that a region that follows at
// once starts in well under a microsecond and an idle process uses no CPU.
// Threads: ParallelFor may be called from several threads (executors of two models share the
// process's pool); regions are run one after another. It must not be called from inside a region.
// No allocation in ParallelFor.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace inflight {

class CpuPool {
 public:
  // How long a thread looks for work, or for the end of a region, before it parks. A wake by futex
  // costs 15 us, so spinning for twice that is never far from the best choice
  // (docs/reference/kernels.md, "The CPU's kernels").
  static constexpr std::chrono::microseconds kSpin{30};

  // `num_threads` counts the caller, which works too; 0 = the cores of the affinity mask and cgroup
  // quota. `spin` = 0 parks at once.
  explicit CpuPool(int num_threads = 0, std::chrono::microseconds spin = kSpin);
  ~CpuPool();
  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;

  int num_threads() const;

  // Runs body(i) for each i in [0, n), at most `max_threads` at a time (0 = all), and returns when
  // all are done. Items are claimed in ascending order, so a thread that lost its core holds nobody
  // up for longer than one item.
  template <typename Body>
  void ParallelFor(int64_t n, const Body& body, int max_threads = 0) {
    Run(
        n, max_threads, [](const void* b, int64_t i) { (*static_cast<const Body*>(b))(i); }, &body);
  }

 private:
  using Call = void (*)(const void* body, int64_t index);
  void Run(int64_t n, int max_threads, Call call, const void* body);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The cores of the calling thread's affinity mask, ascending; all of the machine where it cannot be
// read.
std::vector<int> CoresOfAffinityMask();

// Cores that this process may use: the affinity mask, cut by the cgroup CPU quota (rounded up).
int NumUsableCores();

// The CPU quota that cgroups set for this process, in cores (rounded up): the least along the path
// from its own group to the root, of v2 (`cpu.max`) or v1 (`cpu.cfs_quota_us`). `cgroup_root` is
// /sys/fs/cgroup and `proc_self_cgroup` the text of /proc/self/cgroup; none where there is no
// quota.
std::optional<int> CgroupCpuQuota(const std::filesystem::path& cgroup_root,
                                  std::string_view proc_self_cgroup);

}  // namespace inflight
