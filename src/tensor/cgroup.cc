// SPDX-License-Identifier: Apache-2.0
#include "tensor/cgroup.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace inflight {
namespace {

namespace fs = std::filesystem;

// `group` and its ancestors below `mount`.
void AddPath(const fs::path& mount, const fs::path& group, int version,
             std::vector<CgroupFolder>& folders) {
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    folders.push_back({mount / at, version});
    if (at.empty()) return;
  }
}

bool Names(const std::string& controllers, std::string_view controller) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');)
    if (name == controller) return true;
  return false;
}

}  // namespace

std::vector<CgroupFolder> CgroupFolders(const fs::path& cgroup_root,
                                        std::string_view proc_self_cgroup,
                                        std::string_view controller) {
  std::vector<CgroupFolder> folders;
  std::istringstream lines{std::string(proc_self_cgroup)};
  for (std::string line; std::getline(lines, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      AddPath(cgroup_root, group, 2, folders);
    } else if (Names(controllers, controller)) {
      AddPath(cgroup_root / controller, group, 1, folders);
      AddPath(cgroup_root / controllers, group, 1, folders);
    }
  }
  return folders;
}

std::vector<CgroupFolder> CgroupFolders(const fs::path& root, std::string_view controller) {
  std::ifstream file(root / "proc/self/cgroup");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return CgroupFolders(root / "sys/fs/cgroup", text, controller);
}

uint64_t LeftByCgroups(const fs::path& root, uint64_t bytes) {
  for (const CgroupFolder& folder : CgroupFolders(root, "memory")) {
    const bool is_v2 = folder.version == 2;
    std::ifstream limit_file(folder.path / (is_v2 ? "memory.max" : "memory.limit_in_bytes"));
    std::ifstream used_file(folder.path / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
    uint64_t limit = 0;
    uint64_t used = 0;
    if (limit_file >> limit && used_file >> used)  // "max" is no limit
      bytes = std::min(bytes, limit > used ? limit - used : 0);
  }
  return bytes;
}

}  // namespace inflight
