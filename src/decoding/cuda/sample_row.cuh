// SPDX-License-Identifier: Apache-2.0
// One row of logits -> one token, by the CTAs of a cluster.
//
//   Load    row_chunk.cuh. Greedy rows end here
//   Scan    total weight; a list of the tokens that a draw will reach for, by a guess: for top-p
//           those within kNear, for top-k those before the k-th of the threads' best
//   Narrow  where the guess fails, by histograms over the row: an interval of the order that holds
//           what the draw needs and has few tokens
//   Send or fetch keys: CTA 0 takes the listed tokens of all, the others end
//   Sort, Pick: in the registers of as many warps as it takes
//
// A row with typical-p takes another way behind Load: draw_typical.cuh.
//
// The order of tokens is that of weights.h; a key holds both parts of it, distance and id, and is
// unique. Weights are integers, so that nothing here depends on the order in which threads come.
#pragma once

#include <cstdint>

#include "decoding/cuda/sample_shared.cuh"
#include "decoding/philox.h"

namespace inflight::decoding {

static __device__ __noinline__ float LogProb(float distance, double sum) {
  return static_cast<float>(-static_cast<double>(distance) - log(sum));
}

template <bool kResident>
class RowSampler : public RowChunk<kResident, SampleShared> {
  using Chunk = RowChunk<kResident, SampleShared>;

 public:
  using Chunk::Chunk;

  template <bool kSampled>
  __device__ void Run() {
    ClusterArrive();
    StartLoad();
    if (threadIdx.x == 32) shared_.list_size = 0;
    if (threadIdx.x < kMaxClusterSize) shared_.list_sizes[threadIdx.x] = 0;
    if (threadIdx.x < kNumBins) shared_.counts[threadIdx.x] = 0;
    __syncthreads();
    const bool is_greedy = !kSampled || rule().kind == DrawKind::kGreedy;
    const bool keeps_values = !is_greedy || rule().wants_log_probs != 0;
    if (!is_greedy && threadIdx.x == kThreads - 1)
      shared_.uniform = UniformAt(rule().seed, static_cast<uint64_t>(int64_t{shared_.position}));
    float thread_best;
    const uint64_t packed = FinishLoad(keeps_values, &thread_best);
    ClusterWait();  // for peers to have begun
    // Where CTA 0 alone goes on the others end at once, and nothing may be written to them.
    const bool all_go_on = keeps_values;
    PublishBest(packed, all_go_on ? cluster_size_ : 1);
    ClusterArrive();
    if (!all_go_on && rank_ != 0) return;
    ClusterWait();
    const uint64_t best = Chunk::RowBest();
    max_ = Chunk::LogitOf(best);
    if (is_greedy || !IsFinite(max_)) return FinishGreedy(Chunk::IdOf(best));
    if constexpr (kSampled) {
      if (rule().typical_p < 1.0F)
        DrawTypical();
      else if (rule().kind == DrawKind::kTopK)
        Draw<true>(thread_best);
      else
        Draw<false>(thread_best);
    }
  }

 private:
  using Chunk::begin_;
  using Chunk::cluster_size_;
  using Chunk::FinishLoad;
  using Chunk::ForEach;
  using Chunk::ForEachGroup;
  using Chunk::kGroup;
  using Chunk::params_;
  using Chunk::PublishBest;
  using Chunk::rank_;
  using Chunk::region_;
  using Chunk::row_;
  using Chunk::RowLogits;
  using Chunk::rule;
  using Chunk::scale_;
  using Chunk::shared_;
  using Chunk::slot_;
  using Chunk::StartLoad;
  using Chunk::Tokens;
  using Chunk::values_;

  struct Interval {
    uint64_t begin, end;  // of keys
    uint64_t mass_before;
  };

  __device__ uint64_t Key(float distance, int id) const {
    return static_cast<uint64_t>(__float_as_uint(distance)) << params_.id_bits |
           static_cast<uint32_t>(id);
  }

  enum class Wanted { kNothing, kExps, kMasses, kAll };

  // What all threads of all CTAs sum to, as far as it is wanted. Also tells every CTA how long the
  // lists are.
  __device__ RowSums ClusterSum(RowSums sums, Wanted wanted) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool wants_masses = wanted == Wanted::kMasses || wanted == Wanted::kAll;
    const bool wants_exps = wanted == Wanted::kExps || wanted == Wanted::kAll;
    const auto warp_sum = [&](const RowSums& x) -> RowSums {
      return {wants_masses ? WarpSum(x.mass) : 0, wants_masses ? WarpSum(x.near_mass) : 0,
              wants_exps ? WarpSum(x.exps) : 0};
    };
    sums = warp_sum(sums);
    if (lane == 0) shared_.warp_sums[warp] = sums;
    __syncthreads();
    if (warp == 0) {
      sums = warp_sum(lane < kNumWarps ? shared_.warp_sums[lane] : RowSums{});
      if (lane < cluster_size_) {
        *Peer(&shared_.sums[rank_], lane) = sums;
        *Peer(&shared_.list_sizes[rank_], lane) = shared_.list_size;
      }
    }
    ClusterSync();
    sums = {};
    if (wanted == Wanted::kNothing) return sums;
    for (int r = 0; r < cluster_size_; ++r) {
      sums.mass += shared_.sums[r].mass;
      sums.near_mass += shared_.sums[r].near_mass;
      sums.exps += shared_.sums[r].exps;
    }
    return sums;
  }

  __device__ void FinishGreedy(int id) {
    float log_prob = 0;
    if (rule().wants_log_probs != 0 && IsFinite(max_)) {
      RowSums sums = {};
      ForEach([&](float x, int) { sums.exps += ExpOfMinus(Distance(max_, x)); });
      sums = ClusterSum(sums, Wanted::kExps);
      log_prob = LogProb(0.0F, sums.exps);
    }
    const bool none = max_ == kMinusInfinity;  // ids count from 0 then
    if (rank_ == 0 && threadIdx.x == 0) Write(none ? 0 : id, log_prob, log_prob);
  }

  // One thread of the cluster.
  __device__ void Write(int id, float log_prob, float log_prob_all) {
    const DeviceSampleParams& sample = params_.sample;
    sample.ids[row_] = id;
    sample.log_probs[row_] = log_prob;
    sample.log_probs_all[row_] = log_prob_all;
    Chunk::KeepTopP();
    if (sample.row_positions != nullptr || shared_.position >= sample.max_seq_len) return;
    Tokens()[shared_.position] = id;
    sample.num_tokens[slot_] = shared_.position + 1;
  }

  __device__ void List(int index) {
    // Of a list that is too long already nobody needs to know how much.
    if (*static_cast<volatile uint32_t*>(&shared_.list_size) > kMaxCandidates) return;
    const uint32_t at = atomicAdd(&shared_.list_size, 1U);
    if (at < kMaxCandidates) shared_.list[at] = static_cast<uint32_t>(index);
  }

  __device__ uint32_t RowListSize() const {
    uint32_t size = 0;
    for (int r = 0; r < cluster_size_; ++r) size += shared_.list_sizes[r];
    return size;
  }

  template <bool kTopK>
  __device__ void Draw(float thread_best) {
    const float limit = kTopK ? TopKLimit(Distance(max_, thread_best)) : kNear;
    const bool wants_exps = rule().wants_log_probs != 0;
    const RowSums sums =
        ClusterSum(Scan<kTopK>(limit), kTopK ? (wants_exps ? Wanted::kExps : Wanted::kNothing)
                                             : (wants_exps ? Wanted::kAll : Wanted::kMasses));
    uint64_t target = 0;
    Interval interval = {0, ~uint64_t{0}, 0};
    if constexpr (kTopK) {
      if (RowListSize() > kMaxCandidates) {
        interval = Narrow<kTopK>(static_cast<uint64_t>(rule().top_k), limit);
        // All before it too: they are fewer than k.
        Relist<kTopK>({0, interval.end, 0}, limit);
      }
    } else {
      target = TargetWeight(shared_.uniform, rule().top_p, sums.mass);
      const bool is_near = target <= sums.near_mass;
      if (!is_near || RowListSize() > kMaxCandidates) {
        interval = Narrow<kTopK>(target, is_near ? limit : kWeightless);
        Relist<kTopK>(interval, is_near ? limit : kWeightless);
      }
      target -= interval.mass_before;
    }
    const int num_candidates = static_cast<int>(RowListSize());
    if (num_candidates <= kThreads) {
      SendKeys();
      ClusterArrive();
      if (rank_ != 0) return;
      ClusterWait();
      const bool has_one = static_cast<int>(threadIdx.x) < num_candidates;
      uint64_t key[1] = {has_one ? shared_.keys[threadIdx.x] : ~uint64_t{0}};
      SortAndPick<kTopK>(key, num_candidates, target, sums);
    } else {
      uint64_t keys[kCandidatesPerThread];
      if (rank_ == 0) FetchKeys(keys, num_candidates);
      ClusterSync();  // the peers' memory is needed no more, and CTA 0 its values
      if (rank_ == 0) SortAndPick<kTopK>(keys, num_candidates, target, sums);
    }
  }

  // A distance below which lie this chunk's k best tokens, if it has so many: where the k-th of the
  // threads' best ones is.
  __device__ float TopKLimit(float thread_best) {
    if (thread_best < kWeightless)
      atomicAdd(&shared_.counts[static_cast<int>(thread_best * kBinsPerDistance)], 1U);
    __syncthreads();
    if (threadIdx.x < 32)
      FindBin(shared_.counts, shared_.counts, static_cast<uint32_t>(rule().top_k), &shared_.found);
    __syncthreads();
    const int bin = shared_.found.bin;
    return bin < 0 ? kWeightless
                   : fminf(kWeightless, static_cast<float>(bin + 1) / kBinsPerDistance);
  }

  template <bool kTopK>
  __device__ RowSums Scan(float limit) {
    RowSums sums = {};
    if constexpr (kTopK) {
      if (rule().wants_log_probs != 0)
        ForEach([&](float x, int) { sums.exps += ExpOfMinus(Distance(max_, x)); });
      ForEachGroup([&](const float(&x)[kGroup], int i) {
        float nearest = limit;
#pragma unroll
        for (int c = 0; c < kGroup; ++c) nearest = fminf(nearest, Distance(max_, x[c]));
        if (nearest == limit) return;
#pragma unroll
        for (int c = 0; c < kGroup; ++c)
          if (Distance(max_, x[c]) < limit) List(i + c);
      });
    } else {
      const int32_t min_weight = rule().min_weight;
      ForEachGroup([&](const float(&x)[kGroup], int i) {
        uint32_t weights[kGroup];
        float nearest = limit;
#pragma unroll
        for (int c = 0; c < kGroup; ++c) {
          const float distance = Distance(max_, x[c]);
          const float share = ExpOfMinus(distance);
          const int32_t weight = InUnits(share);
          sums.exps += share;
          weights[c] = weight < min_weight ? 0U : static_cast<uint32_t>(weight);
          nearest = fminf(nearest, distance);
        }
        // Two of them fit into 32 bits.
#pragma unroll
        for (int c = 0; c + 1 < kGroup; c += 2) sums.mass += weights[c] + weights[c + 1];
        if constexpr (kGroup == 1) sums.mass += weights[0];
        if (nearest == limit) return;
#pragma unroll
        for (int c = 0; c < kGroup; ++c) {
          if (Distance(max_, x[c]) >= limit || weights[c] == 0) continue;
          sums.near_mass += weights[c];
          List(i + c);
        }
      });
    }
    return sums;
  }

  // Calls f(distance, weight, index) for tokens that may be drawn and lie before `limit`; for top-k
  // the weight is not computed.
  template <bool kTopK, typename F>
  __device__ void ForEachWithin(float limit, F f) const {
    const int32_t min_weight = rule().min_weight;
    ForEach([&](float x, int i) {
      const float distance = Distance(max_, x);
      if (distance >= limit) return;
      if constexpr (kTopK) {
        f(distance, 0, i);
      } else {
        const int32_t weight = Weight(distance);
        if (weight >= min_weight) f(distance, weight, i);
      }
    });
  }

  // Every token, in the order of distances.
  struct All {
    __device__ bool operator()(float& /*distance*/, int /*id*/) const { return true; }
  };

  // The interval of keys in which the count (top-k) or the weight (top-p) of the tokens before
  // `limit` reaches the target, with at most kMaxInBin tokens; or the one key that reaches it
  // (kExact). Where they do not reach it, which only counts can fail to, all keys. `view` says
  // which tokens count, and may put another distance in place of theirs, to have them in its order.
  template <bool kTopK, bool kExact = false, typename View = All>
  __device__ Interval Narrow(uint64_t target, float limit, View view = {}) {
    Interval interval = {0, ~uint64_t{0}, 0};
    uint64_t before = 0;
    for (int shift = -1;;) {  // -1: bins of distance, later of keys >> shift
      if (threadIdx.x < kNumBins) {
        shared_.counts[threadIdx.x] = 0;
        shared_.low_masses[threadIdx.x] = 0;
        shared_.high_masses[threadIdx.x] = 0;
      }
      __syncthreads();
      ForEachWithin<kTopK>(limit, [&](float distance, int32_t weight, int i) {
        if (!view(distance, begin_ + i)) return;
        int bin = static_cast<int>(distance * kBinsPerDistance);
        if (shift >= 0) {
          const uint64_t key = Key(distance, begin_ + i);
          if (key < interval.begin || key >= interval.end) return;
          bin = static_cast<int>((key - interval.begin) >> shift);
        }
        atomicAdd(&shared_.counts[bin], 1U);
        if constexpr (!kTopK) {
          const auto low = static_cast<uint32_t>(weight);
          if (atomicAdd(&shared_.low_masses[bin], low) + low < low)
            atomicAdd(&shared_.high_masses[bin], 1U);
        }
      });
      SumHistograms();
      if (threadIdx.x < 32) {
        if constexpr (kTopK)
          FindBin(shared_.row_counts, shared_.row_counts, static_cast<uint32_t>(target - before),
                  &shared_.found);
        else
          FindBin(shared_.row_masses, shared_.row_counts, target - before, &shared_.found);
      }
      __syncthreads();
      const FoundBin found = shared_.found;
      if (found.bin < 0) return interval;
      before += found.before;
      if (shift < 0) {
        interval.begin = Key(static_cast<float>(found.bin) / kBinsPerDistance, 0);
        interval.end = Key(static_cast<float>(found.bin + 1) / kBinsPerDistance, 0);
      } else {
        interval.begin += static_cast<uint64_t>(found.bin) << shift;
        interval.end = min(interval.end, interval.begin + (uint64_t{1} << shift));
      }
      interval.mass_before = before;
      if (kExact ? interval.end - interval.begin == 1 : found.count <= kMaxInBin) return interval;
      const int width_bits =
          64 - __clzll(static_cast<long long>(interval.end - interval.begin - 1));
      shift = max(0, width_bits - 8);
      static_assert(kNumBins == 1 << 8);
    }
  }

  // Defined in draw_typical.cuh.
  template <typename View, typename F>
  __device__ uint64_t RowTotal(View view, F f);
  __device__ void DrawTypical();

  // From every CTA's histogram the row's, to every CTA.
  __device__ void SumHistograms() {
    ClusterSync();
    if (threadIdx.x < kNumBins) {
      // Each CTA sums a part of the bins; for each of them one thread reads from each peer, and
      // writes to each.
      const int peer = static_cast<int>(threadIdx.x) % cluster_size_;
      const int bin =
          rank_ * (kNumBins / cluster_size_) + static_cast<int>(threadIdx.x) / cluster_size_;
      uint32_t count = *Peer(&shared_.counts[bin], peer);
      uint64_t mass = *Peer(&shared_.low_masses[bin], peer) +
                      (static_cast<uint64_t>(*Peer(&shared_.high_masses[bin], peer)) << 32);
      for (int offset = 1; offset < cluster_size_; offset *= 2) {
        count += __shfl_xor_sync(0xffffffff, count, offset);
        mass += __shfl_xor_sync(0xffffffff, mass, offset);
      }
      *Peer(&shared_.row_counts[bin], peer) = count;
      *Peer(&shared_.row_masses[bin], peer) = mass;
    }
    ClusterSync();
  }

  // Makes the lists anew, of the keys in the interval.
  template <bool kTopK>
  __device__ void Relist(const Interval& interval, float limit) {
    if (threadIdx.x == 0) shared_.list_size = 0;
    __syncthreads();
    ForEachWithin<kTopK>(limit, [&](float distance, int32_t, int i) {
      const uint64_t key = Key(distance, begin_ + i);
      if (key >= interval.begin && key < interval.end) List(i);
    });
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < cluster_size_)
      *Peer(&shared_.list_sizes[rank_], static_cast<int>(threadIdx.x)) = shared_.list_size;
    ClusterSync();
  }

  // The keys of this CTA's list to CTA 0, behind those of the CTAs before it.
  __device__ void SendKeys() {
    uint32_t first = 0;
#pragma unroll
    for (int r = 0; r < kMaxClusterSize; ++r) first += r < rank_ ? shared_.list_sizes[r] : 0;
    if (threadIdx.x >= shared_.list_sizes[rank_]) return;
    const auto at = static_cast<int>(shared_.list[threadIdx.x]);
    *Peer(&shared_.keys[first + threadIdx.x], 0) =
        Key(Distance(max_, values_[at] * scale_), begin_ + at);
  }

  // The keys of all lists; the last ones get the largest key there is.
  __device__ void FetchKeys(uint64_t (&keys)[kCandidatesPerThread], int num_candidates) {
    int peers[kCandidatesPerThread];
    int at[kCandidatesPerThread];
#pragma unroll
    for (int j = 0; j < kCandidatesPerThread; ++j) {
      const uint32_t index = threadIdx.x * kCandidatesPerThread + static_cast<uint32_t>(j);
      uint32_t first = 0;
      peers[j] = 0;
#pragma unroll
      for (int r = 0, end = 0; r < kMaxClusterSize - 1; ++r) {
        end += static_cast<int>(shared_.list_sizes[r]);
        if (static_cast<int>(index) < end) continue;
        peers[j] = r + 1;
        first = static_cast<uint32_t>(end);
      }
      const bool is_one = static_cast<int>(index) < num_candidates;
      if (!is_one) peers[j] = 0;
      at[j] = is_one ? static_cast<int>(*Peer(&shared_.list[index - first], peers[j])) : -1;
    }
#pragma unroll
    for (int j = 0; j < kCandidatesPerThread; ++j) {
      const int id = peers[j] * params_.chunk_size + at[j];
      float x = 0;
      if (at[j] >= 0) x = kResident ? *Peer(&region_[at[j]], peers[j]) * scale_ : RowLogits()[id];
      keys[j] = at[j] >= 0 ? Key(Distance(max_, x), id) : ~uint64_t{0};
    }
  }

  // By as many whole warps, a power of two of them, as have keys; the others end.
  template <bool kTopK, int kPerThread>
  __device__ void SortAndPick(uint64_t (&keys)[kPerThread], int num_candidates, uint64_t target,
                              const RowSums& sums) {
    int num_threads = 32;
    while (num_threads * kPerThread < num_candidates) num_threads *= 2;
    if (static_cast<int>(threadIdx.x) >= num_threads) return;
    Sort(keys, num_threads);
    Pick<kTopK>(keys, num_threads, num_candidates, target, sums);
  }

  // Waits for the first `num_threads` of the CTA, which are those that still run.
  static __device__ void Barrier(int num_threads) {
    if (num_threads == 32)
      __syncwarp();
    else
      asm volatile("barrier.sync 1, %0;" ::"r"(num_threads) : "memory");
  }

  static __device__ void Order(uint64_t& a, uint64_t& b, bool ascending) {
    if ((b < a) != ascending) return;
    const uint64_t other = a;
    a = b;
    b = other;
  }

  // Bitonic. Thread t has the keys from kPerThread * t on, before and after.
  template <int kPerThread>
  __device__ void Sort(uint64_t (&keys)[kPerThread], int num_threads) {
    static_assert(kPerThread == 1 || kPerThread == 4);
    auto* exchange = reinterpret_cast<uint64_t*>(region_);  // [kPerThread][kThreads]
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (kPerThread == 4) {
      Order(keys[0], keys[1], true);
      Order(keys[2], keys[3], false);
    }
    for (int run = kPerThread == 1 ? 2 : 1; run <= num_threads; run *= 2) {  // in threads
      const bool ascending = (thread & run) == 0;
      for (int stride = run / 2; stride > 0; stride /= 2) {
        const bool takes_smaller = ((thread & stride) == 0) == ascending;
        if (stride >= 32) {
          Barrier(num_threads);
#pragma unroll
          for (int j = 0; j < kPerThread; ++j) exchange[j * kThreads + thread] = keys[j];
          Barrier(num_threads);
        }
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
          const uint64_t other = stride >= 32 ? exchange[j * kThreads + (thread ^ stride)]
                                              : __shfl_xor_sync(0xffffffff, keys[j], stride);
          if ((other < keys[j]) == takes_smaller) keys[j] = other;
        }
      }
      if constexpr (kPerThread == 4) {
        Order(keys[0], keys[2], ascending);
        Order(keys[1], keys[3], ascending);
        Order(keys[0], keys[1], ascending);
        Order(keys[2], keys[3], ascending);
      }
    }
  }

  // Draws from sorted keys: for top-k from the k first, `target` not known yet; for top-p the one
  // at which the weight of them reaches `target`.
  template <bool kTopK, int kPerThread>
  __device__ void Pick(const uint64_t (&keys)[kPerThread], int num_threads, int num_candidates,
                       uint64_t target, const RowSums& sums) {
    const int first = static_cast<int>(threadIdx.x) * kPerThread;
    const int num_kept = kTopK ? min(num_candidates, rule().top_k) : num_candidates;
    uint32_t weights[kPerThread];
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      weights[j] = first + j < num_kept ? static_cast<uint32_t>(Weight(DistanceOf(keys[j]))) : 0U;
    if constexpr (kTopK) {  // ends before the first that is too light
      if (threadIdx.x == 0) shared_.num_kept = static_cast<uint32_t>(num_kept);
      Barrier(num_threads);
      const auto min_weight = static_cast<uint32_t>(rule().min_weight);
#pragma unroll
      for (int j = kPerThread - 1; j >= 0; --j)
        if (first + j > 0 && first + j < num_kept && weights[j] < min_weight)
          atomicMin(&shared_.num_kept, static_cast<uint32_t>(first + j));
      Barrier(num_threads);
#pragma unroll
      for (int j = 0; j < kPerThread; ++j)
        if (first + j >= static_cast<int>(shared_.num_kept)) weights[j] = 0;
    }
    uint64_t own = 0;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) own += weights[j];
    const uint64_t end = WarpScan(own);
    if (threadIdx.x % 32 == 31) shared_.warp_values[threadIdx.x / 32] = end;
    Barrier(num_threads);
    uint64_t cumulative = end - own;
    uint64_t sum = 0;
    for (int w = 0; w < num_threads / 32; ++w) {
      if (w < static_cast<int>(threadIdx.x) / 32) cumulative += shared_.warp_values[w];
      sum += shared_.warp_values[w];
    }
    if constexpr (kTopK) target = TargetWeight(shared_.uniform, rule().top_p, sum);
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (cumulative < target && target <= cumulative + weights[j])
        WriteDrawn<kTopK>(keys[j], sum, sums);
      cumulative += weights[j];
    }
  }

  // One thread.
  template <bool kTopK>
  __device__ void WriteDrawn(uint64_t key, uint64_t sum, const RowSums& sums) {
    const auto id = static_cast<int>(key & ((uint64_t{1} << params_.id_bits) - 1));
    float log_prob = 0;
    float log_prob_all = 0;
    if (rule().wants_log_probs != 0) {
      const float distance = DistanceOf(key);
      log_prob_all = LogProb(distance, sums.exps);
      log_prob = kTopK && rule().normalize_log_probs != 0
                     ? LogProb(distance, static_cast<double>(sum) / kUnitWeight)
                     : log_prob_all;
    }
    Write(id, log_prob, log_prob_all);
  }

  __device__ float DistanceOf(uint64_t key) const {
    return __uint_as_float(static_cast<uint32_t>(key >> params_.id_bits));
  }

  float max_ = 0;  // of the row
};

}  // namespace inflight::decoding

#include "decoding/cuda/draw_typical.cuh"
