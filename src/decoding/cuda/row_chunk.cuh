// SPDX-License-Identifier: Apache-2.0
// A row of logits in the CTAs of a cluster, with what a slot's rule changes of it. Each has a chunk
// of the row: in its shared memory (resident), or where a GPU has no clusters, or the row is too
// large for them, in the logits themselves.
//
// StartLoad, __syncthreads, FinishLoad: bias, temperature, penalties, bans, and each thread's best
// token; PublishBest, a barrier of the cluster, RowBest: the row's.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "decoding/cuda/device_sampler.h"
#include "decoding/cuda/slot_rule.h"
#include "decoding/cuda/token_marks.cuh"
#include "decoding/cuda/warp.cuh"
#include "decoding/weights.h"
#include "tensor/cuda_cluster.cuh"

namespace inflight::decoding {

using cuda::ClusterArrive;
using cuda::ClusterSync;
using cuda::ClusterWait;
using cuda::Peer;

constexpr int kNumWarps = kThreads / 32;
constexpr int kMaxClusterSize = 8;
constexpr int kTileSize = 16384;  // logits whose tokens are counted at once, where not resident
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct SampleKernelParams {
  DeviceSampleParams sample;
  SlotRule* rules;       // [max_slots]
  const int32_t* lists;  // [max_slots, kMaxListSize] slot_rule.h
  const float* biases;   // [max_slots, vocab_size]
  int vocab_size;
  int chunk_size;   // tokens of a CTA, a multiple of 4; the last has fewer
  int id_bits;      // of a key
  bool is_aligned;  // rows of logits begin at multiples of 16 bytes
};

struct ChunkShared {
  SlotRule rule;
  int position;
  uint64_t load_barrier;
  uint64_t best[kMaxClusterSize];  // written by every CTA of the cluster, [its rank]
  uint64_t warp_values[kNumWarps];
};

// `Shared` begins as ChunkShared does.
template <bool kResident, typename Shared>
class RowChunk {
 public:
  __device__ RowChunk(const SampleKernelParams& params, int row, int slot, std::byte* memory)
      : params_(params),
        row_(row),
        slot_(slot),
        rank_(cuda::ClusterRank()),
        cluster_size_(cuda::ClusterSize()),
        shared_(*reinterpret_cast<Shared*>(memory)),
        region_(reinterpret_cast<float*>(memory + SharedBytes())),
        begin_(rank_ * params.chunk_size),
        size_(max(0, min(params.chunk_size, params.vocab_size - begin_))),
        values_(kResident ? region_ : RowLogits() + begin_) {}

  // Bytes of Shared with its padding; what is behind holds values or counts.
  static constexpr size_t SharedBytes() { return (sizeof(Shared) + 15) / 16 * 16; }

 protected:
  __device__ const SlotRule& rule() const { return shared_.rule; }
  __device__ float* RowLogits() const {
    return params_.sample.logits + static_cast<int64_t>(row_) * params_.vocab_size;
  }
  __device__ int32_t* Tokens() const {
    return params_.sample.tokens + static_cast<int64_t>(slot_) * params_.sample.max_seq_len;
  }

  // What the row's draw follows.
  __device__ RowText Text() const {
    const DeviceSampleParams& sample = params_.sample;
    const uint8_t* const shifts = sample.row_shifts == nullptr
                                      ? nullptr
                                      : sample.row_shifts + row_ * DeviceSampleParams::kTextShifts;
    return {Tokens(), min(shared_.position, sample.max_seq_len), shifts};
  }

  __device__ bool IsBulk() const { return kResident && params_.is_aligned && size_ > 0; }

  __device__ void StartLoad() {
    if (threadIdx.x == 0 && IsBulk())
      cuda::StartBulkLoad(region_, RowLogits() + begin_, static_cast<uint32_t>(size_) * 4,
                          &shared_.load_barrier);
    if (threadIdx.x == 32) {
      const DeviceSampleParams& sample = params_.sample;
      shared_.rule = params_.rules[slot_];
      shared_.position =
          sample.row_positions != nullptr ? sample.row_positions[row_] : sample.num_tokens[slot_];
      if (rule().has_top_p_decay != 0) DecayTopP();
    }
  }

  // From where it was known last to this row's draw.
  __device__ void DecayTopP() const {
    const auto* const state =
        reinterpret_cast<const volatile uint64_t*>(&params_.rules[slot_].top_p);
    const uint64_t known = *state;
    float top_p = __uint_as_float(static_cast<uint32_t>(known));
    const RowText text = Text();
    for (auto i = static_cast<int>(known >> 32); i < shared_.position; ++i)
      top_p = NextTopP(top_p, rule().first_top_p, rule().top_p_decay, rule().top_p_min,
                       text[i] == rule().top_p_reset_id);
    shared_.rule.top_p = top_p;
  }

  // One thread of the cluster. Of a row that follows drafts nothing stays.
  __device__ void KeepTopP() const {
    if (rule().has_top_p_decay == 0 || shared_.position != params_.sample.num_tokens[slot_]) return;
    auto* const state = reinterpret_cast<volatile uint64_t*>(&params_.rules[slot_].top_p);
    *state = uint64_t{__float_as_uint(rule().top_p)} |
             static_cast<uint64_t>(static_cast<uint32_t>(shared_.position)) << 32;
  }

  // Returns the thread's best token. Unless `keeps_values`, values_ may hold nothing afterwards.
  __device__ uint64_t FinishLoad(bool keeps_values, float* thread_best) {
    const bool is_bulk = IsBulk();
    if (is_bulk) cuda::WaitForBulkLoad(&shared_.load_barrier);
    if (is_bulk && !rule().has_edits()) return FindBest(thread_best);
    return params_.is_aligned ? Load<4>(keeps_values, thread_best)
                              : Load<1>(keeps_values, thread_best);
  }

  // Of all threads of the CTA, to the first `num_readers` of the cluster.
  __device__ void PublishBest(uint64_t packed, int num_readers) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    packed = WarpMax(packed);
    if (lane == 0) shared_.warp_values[warp] = packed;
    __syncthreads();
    if (warp != 0) return;
    packed = WarpMax(lane < kNumWarps ? shared_.warp_values[lane] : 0);
    if (lane < num_readers) *Peer(&shared_.best[rank_], lane) = packed;
  }

  // Once every CTA has published its own.
  __device__ uint64_t RowBest() const {
    uint64_t best = shared_.best[0];
    for (int r = 1; r < cluster_size_; ++r) best = max(best, shared_.best[r]);
    return best;
  }
  // Of what is packed.
  static __device__ float LogitOf(uint64_t packed) {
    return FromOrderedBits(static_cast<uint32_t>(packed >> 32));
  }
  static __device__ int IdOf(uint64_t packed) {
    return static_cast<int>(~static_cast<uint32_t>(packed));
  }

  static constexpr int kGroup = kResident ? 4 : 1;  // values that a thread reads at a time

  // Calls f(values, index) for the groups that this thread has of the chunk; index is the first's.
  template <typename F>
  __device__ void ForEachGroup(F f) const {
    for (int i = static_cast<int>(threadIdx.x) * kGroup; i < size_; i += kThreads * kGroup) {
      float x[kGroup];
      if constexpr (kResident)
        *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(values_ + i);
      else
        x[0] = values_[i];
#pragma unroll
      for (int c = 0; c < kGroup; ++c) x[c] *= scale_;
      f(x, i);
    }
  }

  // Calls f(value, index).
  template <typename F>
  __device__ void ForEach(F f) const {
    ForEachGroup([&](const float(&x)[kGroup], int i) {
#pragma unroll
      for (int c = 0; c < kGroup; ++c) f(x[c], i + c);
    });
  }

  const SampleKernelParams& params_;
  const int row_;
  const int slot_;
  const int rank_;
  const int cluster_size_;
  Shared& shared_;
  float* const region_;
  const int begin_;  // the chunk's first id
  const int size_;
  float* const values_;  // [size_] times scale_: after temperature and penalties
  float scale_ = 1.0F;

 private:
  // What the slot's tokens and lists say of the ids [first, first + count), into the region: how
  // often penalties count them, and whether they must not come.
  __device__ void MarkTokens(int first, int count) {
    const TokenMarks marks(reinterpret_cast<uint32_t*>(region_), first, count);
    marks.Clear();
    __syncthreads();
    const RowText text = Text();
    if (rule().has_penalties != 0) marks.Count(text, rule().num_uncounted_tokens);
    if (rule().has_bans != 0)
      marks.Ban(rule(), params_.lists + static_cast<int64_t>(slot_) * kMaxListSize, text);
    __syncthreads();
  }

  // After bias and temperature.
  __device__ float Edited(float x, uint32_t mark) const {
    if ((mark & TokenMarks::kBannedBit) != 0) return kBanned;
    if ((mark & TokenMarks::kSuppressedBit) != 0) return kSuppressed;
    return Penalized(x, static_cast<int32_t>(mark), rule().repetition_penalty,
                     rule().presence_penalty, rule().frequency_penalty);
  }

  // A token so that the largest is the best: its logit, then its id.
  __device__ uint64_t Pack(float logit, int index) const {
    return static_cast<uint64_t>(OrderedBits(logit)) << 32 | ~static_cast<uint32_t>(begin_ + index);
  }

  // The thread's best token, of logits that have been loaded as they are.
  __device__ uint64_t FindBest(float* thread_best) {
    scale_ = rule().scale;
    float best = kMinusInfinity;
    int group = -1;  // of four, with the first best
    for (int i = static_cast<int>(threadIdx.x) * 4; i < size_; i += kThreads * 4) {
      const float4 x = *reinterpret_cast<const float4*>(values_ + i);
      const float largest =
          fmaxf(fmaxf(x.x * scale_, x.y * scale_), fmaxf(x.z * scale_, x.w * scale_));
      if (largest > best) {
        best = largest;
        group = i;
      }
    }
    *thread_best = best;
    if (group < 0) return Pack(kMinusInfinity, 0x7fffffff - begin_);
    while (values_[group] * scale_ != best) ++group;
    return Pack(best, group);
  }

  // Reads the chunk, kWidth logits at a time, applies temperature and edits, and leaves what
  // the later phases read in values_, the last 4 of a resident chunk filled up with -inf. Returns
  // the thread's best token.
  template <int kWidth>
  __device__ uint64_t Load(bool keeps_values, float* thread_best) {
    using Vector = std::conditional_t<kWidth == 4, float4, float>;
    constexpr int kBatch = kWidth == 4 ? 2 : 4;  // loads in flight
    const float* logits = RowLogits() + begin_;
    const float* bias = params_.biases + static_cast<int64_t>(slot_) * params_.vocab_size + begin_;
    const auto* marks = reinterpret_cast<const uint32_t*>(region_);
    const bool has_bias = rule().has_bias != 0;
    const bool has_marks = rule().has_penalties != 0 || rule().has_bans != 0;
    const float scale = rule().scale;
    float best = kMinusInfinity;
    int best_index = 0x7fffffff - begin_;
    for (int tile = 0; tile < size_; tile += kResident ? params_.chunk_size : kTileSize) {
      const int tile_size = kResident ? size_ : min(kTileSize, size_ - tile);
      if (has_marks) MarkTokens(begin_ + tile, tile_size);
      for (int base = static_cast<int>(threadIdx.x) * kWidth; base < tile_size;
           base += kThreads * kWidth * kBatch) {
        Vector loaded[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          const int i = base + j * kThreads * kWidth;
          if (i < tile_size) loaded[j] = __ldcs(reinterpret_cast<const Vector*>(logits + tile + i));
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          const int i = base + j * kThreads * kWidth;
          if (i >= tile_size) break;
          auto* x = reinterpret_cast<float*>(&loaded[j]);
#pragma unroll
          for (int c = 0; c < kWidth; ++c) {
            if (has_bias) x[c] += bias[tile + i + c];
            x[c] *= scale;
            if (has_marks && marks[i + c] != 0) x[c] = Edited(x[c], marks[i + c]);
            if (x[c] > best) {
              best = x[c];
              best_index = tile + i + c;
            }
          }
          if (keeps_values) *reinterpret_cast<Vector*>(values_ + tile + i) = loaded[j];
        }
      }
      if (!kResident && has_marks) __syncthreads();
    }
    if (kResident && threadIdx.x < 4 && (size_ & ~3) + static_cast<int>(threadIdx.x) >= size_ &&
        keeps_values && size_ % 4 != 0)
      values_[(size_ & ~3) + threadIdx.x] = kMinusInfinity;
    *thread_best = best;
    return Pack(best, best_index);
  }
};

}  // namespace inflight::decoding
