// SPDX-License-Identifier: Apache-2.0
// The system calls stand here by number: glibc has no functions for them, and libnuma would be a
// library for three calls.
#include "tensor/numa.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/cpu_pool.h"

namespace inflight {
namespace {

namespace fs = std::filesystem;

constexpr int kWordBits = 64;  // of the kernel's masks, which are of unsigned long

// "0-3,8" -> 0, 1, 2, 3, 8; what is no number ends it.
std::vector<int> CoresOfList(std::string_view text) {
  std::vector<int> cores;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    int first = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), first);
    if (parsed.ec != std::errc()) break;
    int last = first;
    if (parsed.ptr != part.data() + part.size() && *parsed.ptr == '-')
      std::from_chars(parsed.ptr + 1, part.data() + part.size(), last);
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

// "node12" -> 12.
std::optional<int> NodeId(std::string_view name) {
  constexpr std::string_view kPrefix = "node";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int id = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return id;
}

bool HasPolicyOfItsOwn() {
  int mode = MPOL_DEFAULT;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 && mode != MPOL_DEFAULT;
}

}  // namespace

std::vector<NumaNode> NumaNodes(const fs::path& root, std::span<const int> usable_cores) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(root / "sys/devices/system/node", error)) {
    const std::optional<int> id = NodeId(entry.path().filename().string());
    if (!id) continue;
    std::string list;
    std::getline(std::ifstream(entry.path() / "cpulist"), list);
    NumaNode node{*id, {}};
    for (const int core : CoresOfList(list))
      if (std::ranges::find(usable_cores, core) != usable_cores.end()) node.cores.push_back(core);
    if (!node.cores.empty()) nodes.push_back(std::move(node));
  }
  std::ranges::sort(nodes, {}, &NumaNode::id);
  return nodes;
}

const std::vector<NumaNode>& UsableNumaNodes() {
  static const std::vector<NumaNode> nodes = NumaNodes("/", CoresOfAffinityMask());
  return nodes;
}

int NodeOfThread(int index, int num_threads, int num_nodes) {
  return static_cast<int>(int64_t{index} * num_nodes / num_threads);
}

void RunOn(const NumaNode& node) {
  std::vector<unsigned long> mask(static_cast<size_t>(node.cores.back() / kWordBits + 1));
  for (const int core : node.cores)
    mask[static_cast<size_t>(core / kWordBits)] |= 1UL << (core % kWordBits);
  sched_setaffinity(0, mask.size() * sizeof(unsigned long),
                    reinterpret_cast<const cpu_set_t*>(mask.data()));
}

void Interleave(std::span<const NumaNode> nodes, void* data, size_t num_bytes) {
  if (nodes.empty()) return;
  const int largest = std::ranges::max(nodes, {}, &NumaNode::id).id;
  std::vector<unsigned long> mask(static_cast<size_t>(largest / kWordBits + 1));
  for (const NumaNode& node : nodes)
    mask[static_cast<size_t>(node.id / kWordBits)] |= 1UL << (node.id % kWordBits);
  // The kernel reads one bit less than it is told.
  syscall(SYS_mbind, data, num_bytes, MPOL_INTERLEAVE, mask.data(), mask.size() * kWordBits + 1, 0);
}

void Interleave(void* data, size_t num_bytes) {
  const std::vector<NumaNode>& nodes = UsableNumaNodes();
  if (nodes.size() > 1 && !HasPolicyOfItsOwn()) Interleave(nodes, data, num_bytes);
}

}  // namespace inflight
