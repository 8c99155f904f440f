// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/status_macros.h"
#include "ops/reference/reference.h"
#include "ops/validate.h"
#include "tensor/element.h"

namespace inflight::ops::reference {
namespace {

// One query head of one token against the positions of its sequence that it sees.
class HeadAttention {
 public:
  HeadAttention(const AttentionParams& params, const int32_t* block_table, int head, int kv_head)
      : p_(params), block_table_(block_table), head_(head), kv_head_(kv_head) {}

  // `places`: where the keys of positions 0 to `position` stand.
  void Run(const float* q, const std::vector<int>& places, int64_t y_index) const {
    const int position = static_cast<int>(places.size()) - 1;
    std::vector<int> seen;
    for (int s = 0; s <= position; ++s) {
      if (s < p_.sliding.num_sinks || s >= p_.sliding.First(position))
        seen.push_back(places[static_cast<size_t>(s)]);
    }
    std::vector<float> weights;
    weights.reserve(seen.size());
    for (const int s : seen) weights.push_back(Score(q, s));
    float max = *std::max_element(weights.begin(), weights.end());
    float sum = 0;
    if (!p_.sink_logits.empty()) {
      const float sink = p_.sink_logits.as<const float>()[head_];
      max = std::max(max, sink);
      sum = std::exp(sink - max);
    }
    for (float& w : weights) sum += w = std::exp(w - max);
    std::vector<float> y(static_cast<size_t>(p_.kv.head_dim), 0.0F);
    for (size_t i = 0; i < seen.size(); ++i) AddValue(weights[i], seen[i], y);
    for (int d = 0; d < p_.kv.head_dim; ++d)
      StoreFloat(p_.y.data, p_.y.dtype, y_index + d, y[static_cast<size_t>(d)] / sum);
  }

 private:
  int64_t Block(int place) const { return block_table_[place / p_.kv.block_size]; }

  float Score(const float* q, int place) const {
    const void* keys = p_.kv.Keys(p_.layer, Block(place), kv_head_);
    float sum = 0;
    for (int d = 0; d < p_.kv.head_dim; ++d)
      sum += q[d] * LoadFloat(keys, p_.kv.dtype, p_.kv.KeyIndex(place % p_.kv.block_size, d));
    const float score = sum * p_.scale;
    return p_.softcap == 0 ? score : p_.softcap * std::tanh(score / p_.softcap);
  }

  void AddValue(float weight, int place, std::vector<float>& y) const {
    const void* values = p_.kv.Values(p_.layer, Block(place), kv_head_);
    for (int d = 0; d < p_.kv.head_dim; ++d)
      y[static_cast<size_t>(d)] +=
          weight * LoadFloat(values, p_.kv.dtype, p_.kv.ValueIndex(place % p_.kv.block_size, d));
  }

  const AttentionParams& p_;
  const int32_t* block_table_;
  const int head_;
  const int kv_head_;
};

// Where the keys stand that a token sees, in their order.
std::vector<int> PlacesSeen(const PagedBatch& batch, int row, int64_t token) {
  const int64_t mask = batch.tree_masks.empty() ? 0 : batch.tree_masks.as<const int64_t>()[token];
  std::vector<int> places;
  if (mask == 0) {
    for (int p = 0; p <= batch.positions.as<const int32_t>()[token]; ++p) places.push_back(p);
    return places;
  }
  const int num_places = batch.seq_lens_kv.as<const int32_t>()[row];
  for (int place = 0; place < num_places; ++place) {
    const int before_last = num_places - 1 - place;
    if (before_last >= kMaxTreePlaces || (mask >> before_last & 1) != 0) places.push_back(place);
  }
  return places;
}

}  // namespace

Status Attention(const AttentionParams& p, Stream& stream) {
  RETURN_IF_ERROR(Validate(p));
  const int64_t num_heads = p.q.shape[1];
  const auto group = static_cast<int>(num_heads / p.kv.num_kv_heads);
  const auto* cu_seqlens_q = p.batch.cu_seqlens_q.as<const int32_t>();
  for (int row = 0; row < p.batch.num_rows; ++row) {
    const int32_t* block_table =
        p.batch.block_tables.as<const int32_t>() + row * p.batch.block_tables.shape[1];
    const int64_t first = cu_seqlens_q[row];
    const int64_t num_queries = cu_seqlens_q[row + 1] - first;
    stream.cpu_pool().ParallelFor(num_queries * num_heads, [&](int64_t i) {
      const int64_t t = first + i / num_heads;
      const auto head = static_cast<int>(i % num_heads);
      const int64_t at = (t * num_heads + head) * p.kv.head_dim;
      HeadAttention(p, block_table, head, head / group)
          .Run(p.q.as<const float>() + at, PlacesSeen(p.batch, row, t), at);
    });
  }
  return Status::Ok();
}

}  // namespace inflight::ops::reference
