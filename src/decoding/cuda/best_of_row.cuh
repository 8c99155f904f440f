// SPDX-License-Identifier: Apache-2.0
// One row of logits -> its best ones (best_logits.h), by the CTAs of a cluster.
//
//   Load     row_chunk.cuh
//   Sum      of exp(logit - max) as decoding/row.h sums it: blocks of 256 in a tree of floats, then
//            in doubles, of which alone the order is another one
//   Select   each CTA the best of its chunk: keys better than a bound join a list, and whenever the
//            list is nearly full it is sorted, cut, and its last key is the new bound
//   Merge    CTA 0 sorts what all have sent, the others end
//
// A key is unique, and the smaller one is better: the logit, then the id.
#pragma once

#include <cstdint>

#include "decoding/best_logits.h"
#include "decoding/cuda/row_chunk.cuh"

namespace inflight::decoding {

constexpr int kSumBlock = 256;  // decoding/row.h's kBlock; chunks are multiples of it
constexpr int kListSize = 2048;
static_assert(kMaxClusterSize * BestLogits::kMaxCount <= kListSize);

struct BestShared : ChunkShared {
  double sums[kMaxClusterSize];  // of CTA 0: written by every CTA, [its rank]
  double warp_sums[kNumWarps];
  uint64_t bound;  // keys that are not below it are not wanted
  int list_size;
  uint64_t list[kListSize];
};

template <bool kResident>
class BestOfRow : public RowChunk<kResident, BestShared> {
  using Chunk = RowChunk<kResident, BestShared>;

 public:
  using Chunk::Chunk;

  __device__ void Run(int count, BestLogits* out) {
    ClusterArrive();
    Chunk::StartLoad();
    if (threadIdx.x == 32) {
      shared_.list_size = 0;
      shared_.bound = kNoKey;
    }
    __syncthreads();
    float thread_best;
    const uint64_t packed = Chunk::FinishLoad(/*keeps_values=*/true, &thread_best);
    ClusterWait();  // for peers to have begun
    Chunk::PublishBest(packed, cluster_size_);
    ClusterSync();
    max_ = Chunk::LogitOf(Chunk::RowBest());
    if (!IsFinite(max_)) {
      if (rank_ == 0 && threadIdx.x == 0) *out = {.sum_of_exps = 0, .max = max_, .num_entries = 0};
      return;
    }
    const double sum = Sum();
    Select(count);
    ClusterSync();  // CTA 0 has sorted, and has no key behind the first `count`
    if (rank_ != 0) Send(count);
    if (threadIdx.x == 0) *Peer(&shared_.sums[rank_], 0) = sum;
    ClusterArrive();
    if (rank_ != 0) return;
    ClusterWait();
    Sort(cluster_size_ * count);
    Write(count, out);
  }

 private:
  using Chunk::begin_;
  using Chunk::cluster_size_;
  using Chunk::params_;
  using Chunk::rank_;
  using Chunk::scale_;
  using Chunk::shared_;
  using Chunk::size_;
  using Chunk::values_;

  static constexpr uint64_t kNoKey = ~uint64_t{0};

  __device__ uint64_t Key(float logit, int id) const {
    return static_cast<uint64_t>(~OrderedBits(logit)) << params_.id_bits |
           static_cast<uint32_t>(id);
  }

  // Of the chunk, to thread 0.
  __device__ double Sum() {
    constexpr int kPerLane = kSumBlock / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    double sum = 0;
    for (int begin = warp * kSumBlock; begin < size_; begin += kNumWarps * kSumBlock) {
      float terms[kPerLane];
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const int i = begin + lane + 32 * j;
        terms[j] = i < size_ ? ExpOfMinus(Distance(max_, values_[i] * scale_)) : 0.0F;
      }
#pragma unroll
      for (int width = kPerLane / 2; width > 0; width /= 2)
#pragma unroll
        for (int j = 0; j < width; ++j) terms[j] += terms[j + width];
      sum += WarpSum(terms[0]);
    }
    if (lane == 0) shared_.warp_sums[warp] = sum;
    __syncthreads();
    sum = 0;
    if (threadIdx.x == 0)
      for (const double x : shared_.warp_sums) sum += x;
    return sum;
  }

  // Leaves the chunk's `count` best in the list, sorted, and nothing behind them.
  __device__ void Select(int count) {
    for (int begin = 0; begin < size_; begin += kThreads) {
      const int i = begin + static_cast<int>(threadIdx.x);
      const float x = i < size_ ? values_[i] * scale_ : kBanned;
      if (x > kBanned) {  // NaN is not
        const uint64_t key = Key(x, begin_ + i);
        if (key < shared_.bound) shared_.list[atomicAdd(&shared_.list_size, 1)] = key;
      }
      __syncthreads();
      const int list_size = shared_.list_size;
      __syncthreads();
      if (list_size > kListSize - kThreads) Cut(count);
    }
    Cut(count);
  }

  __device__ void Cut(int count) {
    const int list_size = shared_.list_size;
    Sort(list_size);
    const auto i = static_cast<int>(threadIdx.x);
    if (i >= list_size && i < count) shared_.list[i] = kNoKey;
    __syncthreads();
    if (threadIdx.x == 0) {
      shared_.list_size = min(list_size, count);
      shared_.bound = shared_.list[count - 1];
    }
    __syncthreads();
  }

  // Bitonic, of the first `count` of the list; the best first. Leaves up to a power of two of keys.
  __device__ void Sort(int count) {
    int size = 1;
    while (size < count) size *= 2;
    const auto thread = static_cast<int>(threadIdx.x);
    __syncthreads();
    for (int i = count + thread; i < size; i += kThreads) shared_.list[i] = kNoKey;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2) {
      for (int stride = run / 2; stride > 0; stride /= 2) {
        for (int i = thread; i < size / 2; i += kThreads) {
          const int low = 2 * i - (i & (stride - 1));
          uint64_t& a = shared_.list[low];
          uint64_t& b = shared_.list[low + stride];
          const bool is_ascending = (low & run) == 0;
          if ((b < a) != is_ascending) continue;
          const uint64_t other = a;
          a = b;
          b = other;
        }
        __syncthreads();
      }
    }
  }

  // The chunk's best to CTA 0, behind those of the CTAs before it.
  __device__ void Send(int count) {
    const auto i = static_cast<int>(threadIdx.x);
    if (i < count) *Peer(&shared_.list[rank_ * count + i], 0) = shared_.list[i];
  }

  __device__ void Write(int count, BestLogits* out) const {
    auto* const entries = reinterpret_cast<BestLogits::Entry*>(out + 1);
    const auto i = static_cast<int>(threadIdx.x);
    const uint64_t key = i < count ? shared_.list[i] : kNoKey;
    if (key != kNoKey)
      entries[i] = {.id = static_cast<TokenId>(key & ((uint64_t{1} << params_.id_bits) - 1)),
                    .logit = FromOrderedBits(~static_cast<uint32_t>(key >> params_.id_bits))};
    const int num_entries = __syncthreads_count(key != kNoKey);
    if (i != 0) return;
    double sum = 0;
    for (int r = 0; r < cluster_size_; ++r) sum += shared_.sums[r];
    *out = {.sum_of_exps = sum, .max = max_, .num_entries = num_entries};
  }
  static_assert(BestLogits::kMaxCount <= kThreads);

  float max_ = 0;  // of the row
};

}  // namespace inflight::decoding
