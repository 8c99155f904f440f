// SPDX-License-Identifier: Apache-2.0
#include "executor/kv_shares.h"

#include <algorithm>
#include <functional>

namespace inflight::executor {
namespace {

constexpr int64_t kShortSequences = 4;  // one over the least share of the first group's blocks

}  // namespace

std::vector<int> KvGroupsOf(const model::AttentionWindows& windows, int num_layers) {
  std::vector<int> groups;
  bool sees_all = false;
  for (const ops::SlidingWindow& sliding : windows.Different(num_layers)) {
    sees_all |= sliding.window == 0;
    if (sliding.window > 0) groups.push_back(sliding.window);
  }
  std::ranges::sort(groups, std::greater());
  if (sees_all) groups.insert(groups.begin(), 0);
  if (groups.size() > kMaxKvGroups) groups.resize(kMaxKvGroups);
  if (groups.size() == 1) groups.clear();
  return groups;
}

int64_t BlocksBehind(const KvGroupPlan& group, int64_t num_first, int full_length_first,
                     int max_batch_size) {
  const int64_t of_sequence = group.full_length_blocks;
  const int64_t most = std::min(num_first, int64_t{max_batch_size} * of_sequence);
  const int64_t in_proportion =
      (num_first * of_sequence + full_length_first - 1) / full_length_first;
  const int64_t of_short = (num_first + kShortSequences - 1) / kShortSequences;
  return std::min(most, std::max({in_proportion, of_short, of_sequence}));
}

uint64_t KvShares::BytesOf(int64_t num_first) const {
  uint64_t bytes = first.bytes_per_block * static_cast<uint64_t>(num_first);
  for (const KvGroupPlan& group : others)
    bytes +=
        group.bytes_per_block * static_cast<uint64_t>(BlocksBehind(
                                    group, num_first, first.full_length_blocks, max_batch_size));
  return bytes;
}

// More blocks never need fewer bytes.
int64_t KvShares::BlocksIn(uint64_t bytes, int64_t most) const {
  int64_t fit = 0;
  for (int64_t too_many = most + 1; fit + 1 < too_many;) {
    const int64_t middle = fit + (too_many - fit) / 2;
    (BytesOf(middle) <= bytes ? fit : too_many) = middle;
  }
  return fit;
}

}  // namespace inflight::executor
