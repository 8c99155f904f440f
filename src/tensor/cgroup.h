// SPDX-License-Identifier: Apache-2.0
// The cgroups that bound this process: cgroups(7), "/proc/[pid]/cgroup".
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace inflight {

struct CgroupFolder {
  std::filesystem::path path;
  int version = 2;  // 1 or 2, whose files have other names
};

// From the process's own group to the root, of version 2 and of version 1 where it has `controller`
// ("cpu", "memory", "pids"). `cgroup_root` is /sys/fs/cgroup and `proc_self_cgroup` the text of
// /proc/self/cgroup. What is not there is among them.
std::vector<CgroupFolder> CgroupFolders(const std::filesystem::path& cgroup_root,
                                        std::string_view proc_self_cgroup,
                                        std::string_view controller);

// The same of the machine whose files are below `root`, "/" outside of tests.
std::vector<CgroupFolder> CgroupFolders(const std::filesystem::path& root,
                                        std::string_view controller);

// Of `bytes` of memory, what the limits of these groups and their use leave.
uint64_t LeftByCgroups(const std::filesystem::path& root, uint64_t bytes);

}  // namespace inflight
