// SPDX-License-Identifier: Apache-2.0
// An item is a kv head of one row of the batch, for as many of its tokens as fill a kernel call:
// all query heads of the group together, so that keys and values are read once
// (docs/reference/kernels.md, "The CPU's kernels").
#include "ops/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/launch.h"
#include "ops/validate.h"

namespace inflight::ops::cpu {
namespace {

// Where the keys of a token of a tree stand (PagedBatch::tree_masks).
struct TreePlaces {
  static constexpr int32_t kNone = 1 << 30;
  // Not initialised: most batches have no tree, and find none.
  int32_t begin;                   // the first position whose key stands at another place
  int32_t places[kMaxTreePlaces];  // of the positions from there on

  void Find(const PagedBatch& batch, int row, int64_t token) {
    begin = kNone;
    const auto mask = static_cast<uint64_t>(batch.tree_masks.as<const int64_t>()[token]);
    if (mask == 0) return;
    const int last_place = batch.seq_lens_kv.as<const int32_t>()[row] - 1;
    int32_t position = std::max(0, last_place + 1 - kMaxTreePlaces);
    for (int32_t place = position; place <= last_place; ++place) {
      if ((mask >> (last_place - place) & 1) == 0) continue;
      if (begin == kNone && place != position) begin = position;
      if (begin != kNone) places[position - begin] = place;
      ++position;
    }
  }
};

class Items {
 public:
  Items(const KernelSet& kernels, const AttentionParams& params)
      : p_(params),
        attend_(kernels.attend),
        num_heads_(static_cast<int>(params.q.shape[1])),
        group_(num_heads_ / params.kv.num_kv_heads),
        tokens_per_item_(std::max(1, kMaxRows / group_)),
        cu_seqlens_q_(params.batch.cu_seqlens_q.as<const int32_t>()) {}

  // Row r's tokens lie in items [ItemsBefore(r), ItemsBefore(r + 1)) of each kv head: enough for
  // them all, at most one of them empty. Needs no array of sums.
  int64_t ItemsBefore(int row) const { return cu_seqlens_q_[row] / tokens_per_item_ + row; }

  int64_t size() const { return ItemsBefore(p_.batch.num_rows) * p_.kv.num_kv_heads; }

  void Run(int64_t index) const {
    const auto kv_head = static_cast<int>(index % p_.kv.num_kv_heads);
    const int64_t item = index / p_.kv.num_kv_heads;
    const int row = RowOfItem(item);
    const int64_t first =
        cu_seqlens_q_[row] + (item - ItemsBefore(row)) * static_cast<int64_t>(tokens_per_item_);
    const int64_t last = std::min<int64_t>(cu_seqlens_q_[row + 1], first + tokens_per_item_);
    for (int64_t t = first; t < last; ++t) {
      // A group wider than a call is cut; otherwise one call takes all tokens of the item.
      if (group_ <= kMaxRows) {
        Call(row, kv_head, t, static_cast<int>(last - t), 0, group_);
        return;
      }
      for (int head = 0; head < group_; head += kMaxRows)
        Call(row, kv_head, t, 1, head, std::min(kMaxRows, group_ - head));
    }
  }

 private:
  int RowOfItem(int64_t item) const {  // the last row with ItemsBefore(row) <= item
    int low = 0;
    int high = p_.batch.num_rows;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (ItemsBefore(middle) <= item ? low : high) = middle;
    }
    return low;
  }

  // Tokens [token, token + num_tokens) by heads [head, head + num_heads) of the kv head's group.
  void Call(int row, int kv_head, int64_t token, int num_tokens, int head, int num_heads) const {
    const float* q[kMaxRows];
    void* y[kMaxRows];
    int32_t positions[kMaxRows];
    int32_t first_seen[kMaxRows];
    float sink_logits[kMaxRows];
    const auto* const sinks = p_.sink_logits.as<const float>();
    TreePlaces trees[kMaxRows];  // of the tokens
    int32_t tree_begin[kMaxRows];
    const int32_t* tree_places[kMaxRows];
    const bool may_have_tree = !p_.batch.tree_masks.empty();
    bool has_tree = false;
    int num_rows = 0;
    for (int64_t t = token; t < token + num_tokens; ++t) {
      TreePlaces& tree = trees[t - token];
      if (may_have_tree) {
        tree.Find(p_.batch, row, t);
        has_tree = has_tree || tree.begin != TreePlaces::kNone;
      }
      for (int h = head; h < head + num_heads; ++h, ++num_rows) {
        const int64_t at = (t * num_heads_ + kv_head * group_ + h) * p_.kv.head_dim;
        q[num_rows] = p_.q.as<const float>() + at;
        y[num_rows] = p_.y.as<std::byte>() + static_cast<size_t>(at) * SizeOf(p_.y.dtype);
        positions[num_rows] = p_.batch.positions.as<const int32_t>()[t];
        first_seen[num_rows] = p_.sliding.First(positions[num_rows]);
        if (sinks != nullptr) sink_logits[num_rows] = sinks[kv_head * group_ + h];
        if (!may_have_tree) continue;
        tree_begin[num_rows] = tree.begin;
        tree_places[num_rows] = tree.places;
      }
    }
    attend_({.num_rows = num_rows,
             .q = q,
             .positions = positions,
             .first_seen = first_seen,
             .num_sinks = p_.sliding.num_sinks,
             .y = y,
             .y_element = ElementOf(p_.y.dtype),
             .kv_element = ElementOf(p_.kv.dtype),
             .keys = reinterpret_cast<const char*>(p_.kv.Keys(p_.layer, 0, kv_head)),
             .values = reinterpret_cast<const char*>(p_.kv.Values(p_.layer, 0, kv_head)),
             .block_stride_bytes = static_cast<int64_t>(p_.kv.block_bytes()),
             .block_table =
                 p_.batch.block_tables.as<const int32_t>() + row * p_.batch.block_tables.shape[1],
             .block_size = p_.kv.block_size,
             .head_dim = p_.kv.head_dim,
             .scale = p_.scale,
             .softcap = p_.softcap,
             .sink_logits = sinks == nullptr ? nullptr : sink_logits,
             .tree_begin = has_tree ? tree_begin : nullptr,
             .tree_places = tree_places});
  }

  const AttentionParams& p_;
  void (*const attend_)(const AttentionArgs&);
  const int num_heads_;
  const int group_;
  const int tokens_per_item_;
  const int32_t* cu_seqlens_q_;
};

// Multiplications, more or less; for the choice of threads alone.
int64_t Work(const AttentionParams& p) {
  int64_t keys = 0;
  for (int t = 0; t < p.batch.num_tokens; ++t) {
    const int32_t num_keys = p.batch.positions.as<const int32_t>()[t] + 1;
    keys += p.sliding.window == 0 ? num_keys : std::min(num_keys, p.sliding.window);
  }
  return 2 * keys * p.q.shape[1] * p.kv.head_dim;
}

}  // namespace

Status Attention(const KernelSet& kernels, const AttentionParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  if (p.kv.head_dim > kMaxHeadDim)
    return InvalidArgument(fmt::format("kv.head_dim: got {}, the vector kernels take at most {}",
                                       p.kv.head_dim, kMaxHeadDim));
  if (p.batch.num_tokens == 0) return Status::Ok();
  const Items items(kernels, p);
  stream.cpu_pool().ParallelFor(
      items.size(), [&](int64_t i) { items.Run(i); }, ThreadsFor(Work(p)));
  return Status::Ok();
}

}  // namespace inflight::ops::cpu
