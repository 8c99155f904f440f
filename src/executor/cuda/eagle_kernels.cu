// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "executor/cuda/eagle_kernels.h"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using decoding::BestLogits;
using inflight::cuda::LaunchStatus;
using ops::cuda::BeginOverlapped;
using ops::cuda::LaunchOverlapped;

constexpr int kPairThreads = 256;
constexpr int kEagleRowThreads = 128;
constexpr int kChildThreads = TreeOnDevice::kMaxDrafts;

__device__ EagleRow LoadEagleRow(const EagleArena& arena, int r) {
  static_assert(sizeof(EagleRow) == sizeof(int2));
  const int2 words = __ldcv(reinterpret_cast<const int2*>(arena.rows) + r);
  return {.slot = static_cast<uint16_t>(words.x & 0xffff),
          .draft = static_cast<uint8_t>(words.x >> 16 & 0xff),
          .num_nodes = static_cast<uint8_t>(words.x >> 24 & 0xff),
          .feature = words.y};
}

__device__ int64_t MappingOf(const SlotState& slots, int slot, int place) {
  const int block = slots.block_tables[int64_t{slot} * slots.max_blocks + place / slots.block_size];
  return int64_t{block} * slots.block_size + place % slots.block_size;
}

__device__ int KnownId(int id, int vocab_size) { return id >= 0 && id < vocab_size ? id : 0; }

// The slot of a decode row whose token is part of its sequence, or -1.
__device__ int SettledSlot(const StepTensors& step, int r) {
  const int slot = step.logit_slots[r];
  if (slot < 0) return -1;
  int root = r;
  while (root > 0 && step.logit_slots[root - 1] == slot) --root;
  return root == r || (step.accepted[root] >> (r - root - 1) & 1) != 0 ? slot : -1;
}

// One row by all threads of the CTA.
__device__ void CopyRow(const std::byte* from, std::byte* to, int64_t num_bytes) {
  const auto* const source = reinterpret_cast<const uint4*>(from);
  auto* const target = reinterpret_cast<uint4*>(to);
  const auto count = static_cast<int>(num_bytes / static_cast<int64_t>(sizeof(uint4)));
  for (auto i = static_cast<int>(threadIdx.x); i < count; i += kEagleRowThreads)
    target[i] = source[i];
}

__device__ int64_t RingRow(int slot, int place) {
  return int64_t{slot} * kEagleRing + place % kEagleRing;
}

// A CTA for each row of the step.
__global__ void __launch_bounds__(kEagleRowThreads)
    KeepFeaturesKernel(SlotState slots, StepTensors step, EagleTensors out,
                       const std::byte* features, std::byte* ring, int64_t row_bytes,
                       int num_decode_rows) {
  BeginOverlapped();
  const auto r = static_cast<int>(blockIdx.x);
  const bool is_decode = r < num_decode_rows;
  const int slot = is_decode ? SettledSlot(step, r) : step.table_rows[r];
  if (slot < 0 || slot == slots.scratch_slot()) return;
  const int token = is_decode ? r : step.cu_seqlens_q[r + 1] - 1;
  if (!is_decode && token < step.cu_seqlens_q[r]) return;
  const int place = step.positions[token];
  if (!is_decode && threadIdx.x == 0) out.first_kept[slot] = place;
  CopyRow(features + token * row_bytes, ring + RingRow(slot, place) * row_bytes, row_bytes);
}

// A thread for each token.
__global__ void __launch_bounds__(kPairThreads)
    BeginPromptsKernel(SlotState slots, StepTensors step, EagleTensors out, int num_decode_rows,
                       int num_rows, int num_tokens, int vocab_size) {
  BeginOverlapped();
  const auto t = static_cast<int>(blockIdx.x * kPairThreads + threadIdx.x);
  if (t >= num_tokens) return;
  if (t < num_decode_rows) {
    out.ids[t] = 0;
    out.slot_mapping[t] = MappingOf(slots, slots.scratch_slot(), 0);
    return;
  }
  int low = num_decode_rows;  // the last row that begins at or before t
  int high = num_rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (step.cu_seqlens_q[middle] <= t)
      low = middle;
    else
      high = middle - 1;
  }
  const int slot = step.table_rows[low];
  const int next = step.positions[t] + 1;
  const bool is_known = slot != slots.scratch_slot() && next < slots.num_tokens[slot];
  out.ids[t] =
      is_known ? KnownId(slots.tokens[int64_t{slot} * slots.max_tokens + next], vocab_size) : 0;
  out.slot_mapping[t] = step.slot_mapping[t];
}

// Row r becomes the pair that stands `back` places before the slot's last one; of the scratch slot
// where its feature is not kept, or no token to come sees it, so that its block may be another's.
// Returns the place, -1 of the scratch slot.
__device__ int SetKnownPair(const SlotState& slots, const EagleTensors& out, int r, int slot,
                            int back, int vocab_size) {
  const bool is_scratch = slot == slots.scratch_slot();
  const int newest = is_scratch ? 0 : slots.num_tokens[slot] - 1;
  const int place = newest - 1 - back;
  const bool is_seen =
      back == 0 || place < out.sliding.num_sinks || place >= out.sliding.First(newest);
  const bool is_there = !is_scratch && is_seen && place >= out.first_kept[slot];
  const int own_slot = is_there ? slot : slots.scratch_slot();
  const int own_place = is_there ? place : 0;
  const int64_t token = int64_t{slot} * slots.max_tokens + place + 1;
  out.ids[r] = is_there ? KnownId(slots.tokens[token], vocab_size) : 0;
  out.positions[r] = own_place;
  out.slot_mapping[r] = MappingOf(slots, own_slot, own_place);
  out.feature_rows[r] = static_cast<int32_t>(RingRow(own_slot, own_place));
  return is_there ? place : -1;
}

// A thread for each row.
__global__ void __launch_bounds__(kPairThreads)
    BeginLastPairsKernel(const __grid_constant__ LastPairs pairs, SlotState slots, EagleTensors out,
                         int vocab_size, int num_rows) {
  BeginOverlapped();
  const auto r = static_cast<int>(blockIdx.x * kPairThreads + threadIdx.x);
  if (r >= num_rows) return;
  int low = 0;  // the first slot whose rows end behind r
  int high = pairs.num_slots;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (pairs.slots[middle].end > r)
      high = middle;
    else
      low = middle + 1;
  }
  const bool is_there = low < pairs.num_slots;
  SetKnownPair(slots, out, r, is_there ? pairs.slots[low].slot : slots.scratch_slot(),
               is_there ? pairs.slots[low].back + pairs.slots[low].end - 1 - r : 0, vocab_size);
}

__global__ void __launch_bounds__(kPairThreads)
    BeginEaglePassKernel(const EagleArena* arenas, int pass, SlotState slots, EagleTensors out,
                         int vocab_size, int num_rows) {
  BeginOverlapped();
  const EagleArena& arena = arenas[*slots.num_steps % kNumArenas];
  const auto r = static_cast<int>(blockIdx.x * kPairThreads + threadIdx.x);
  if (r >= num_rows) return;
  const int begin = __ldcv(&arena.begins[pass]);
  const bool is_there = begin + r < __ldcv(&arena.begins[pass + 1]);
  const EagleRow row = is_there ? LoadEagleRow(arena, begin + r) : EagleRow{};
  const int slot = is_there ? row.slot : slots.scratch_slot();
  const uint8_t* const shifts = slots.tree->shifts[row.draft];
  int reader = slot;  // whose keys the row sees
  int position = 0;
  if (pass == 0) {
    position = SetKnownPair(slots, out, r, slot, row.feature, vocab_size);
    if (position < 0 || row.num_nodes == 0) {  // only its own key and value count
      reader = slots.scratch_slot();
      position = 0;
    }
  } else {
    // The newest token's own pair is that of its slot's last one: position and place are one less
    // than in the model.
    const int place = is_there ? slots.num_tokens[slot] - 2 + row.draft : 0;
    position = place - shifts[0];
    const int id = slots.tokens[int64_t{slot} * slots.max_tokens + place + 1];
    out.ids[r] = is_there ? KnownId(id, vocab_size) : 0;
    out.positions[r] = position;
    out.slot_mapping[r] = MappingOf(slots, slot, place);
    out.feature_rows[r] = row.feature;
  }
  out.seq_lens_kv[r] = position + 1;
  out.table_rows[r] = reader;
  if (r == 0) out.cu_seqlens_q[0] = 0;
  out.cu_seqlens_q[r + 1] = r + 1;
  static_assert(ops::kMaxTreeDepth == sizeof(uint4));
  reinterpret_cast<uint4*>(out.tree_shifts)[r] = *reinterpret_cast<const uint4*>(shifts);
}

// A CTA for each row.
__global__ void __launch_bounds__(kEagleRowThreads)
    CopyRowsKernel(const std::byte* from, int64_t from_bytes, const int32_t* rows, std::byte* to,
                   int64_t to_bytes) {
  BeginOverlapped();
  const auto t = static_cast<int>(blockIdx.x);
  const int row = rows == nullptr ? t : rows[t];
  CopyRow(from + row * from_bytes, to + t * to_bytes, from_bytes);
}

// A CTA for each row, a thread for each draft that may be its child.
__global__ void __launch_bounds__(kChildThreads)
    PlaceChildrenKernel(const EagleArena* arenas, int pass, SlotState slots, const std::byte* best,
                        int count, const int32_t* token_ids) {
  BeginOverlapped();
  const EagleArena& arena = arenas[*slots.num_steps % kNumArenas];
  const auto r = static_cast<int>(blockIdx.x);
  const int begin = __ldcv(&arena.begins[pass]);
  if (begin + r >= __ldcv(&arena.begins[pass + 1])) return;
  const EagleRow row = LoadEagleRow(arena, begin + r);
  const auto child = static_cast<int>(threadIdx.x);
  if (child == 0 || child > row.num_nodes || slots.tree->parents[child] != row.draft) return;
  const int place = slots.num_tokens[row.slot] - 1 + child;
  if (place >= slots.max_tokens) return;
  const auto& found = *reinterpret_cast<const BestLogits*>(best + static_cast<size_t>(r) *
                                                                      BestLogits::Bytes(count));
  const auto* const entries = reinterpret_cast<const BestLogits::Entry*>(&found + 1);
  const int choice = min(int{slots.tree->choices[child]}, found.num_entries - 1);
  const int id = choice < 0 ? 0 : entries[choice].id;
  slots.tokens[int64_t{row.slot} * slots.max_tokens + place] =
      token_ids == nullptr ? id : token_ids[id];
}

unsigned Blocks(int count) {
  return static_cast<unsigned>((count + kPairThreads - 1) / kPairThreads);
}

}  // namespace

Status KeepFeatures(const SlotState& slots, const StepTensors& step, const EagleTensors& out,
                    const TensorView& features, const TensorView& ring, int num_decode_rows,
                    int num_rows, cudaStream_t stream) {
  CHECK(features.dtype == ring.dtype);
  const auto row_bytes = static_cast<int64_t>(BytesOf(ring.dtype, ring.shape[1]));
  CHECK_EQ(features.shape[1], ring.shape[1]);
  CHECK_EQ(row_bytes % static_cast<int64_t>(sizeof(uint4)), 0);
  LaunchOverlapped(KeepFeaturesKernel, num_rows, kEagleRowThreads, 0, stream, slots, step, out,
                   features.as<const std::byte>(), ring.as<std::byte>(), row_bytes,
                   num_decode_rows);
  return LaunchStatus("keep_features");
}

Status BeginPrompts(const SlotState& slots, const StepTensors& step, const EagleTensors& out,
                    int num_decode_rows, int num_rows, int num_tokens, int vocab_size,
                    cudaStream_t stream) {
  LaunchOverlapped(BeginPromptsKernel, Blocks(num_tokens), kPairThreads, 0, stream, slots, step,
                   out, num_decode_rows, num_rows, num_tokens, vocab_size);
  return LaunchStatus("begin_prompts");
}

Status BeginLastPairs(const LastPairs& pairs, const SlotState& slots, const EagleTensors& out,
                      int vocab_size, int num_rows, cudaStream_t stream) {
  LaunchOverlapped(BeginLastPairsKernel, Blocks(num_rows), kPairThreads, 0, stream, pairs, slots,
                   out, vocab_size, num_rows);
  return LaunchStatus("begin_last_pairs");
}

Status BeginEaglePass(const EagleArena* arenas, int pass, const SlotState& slots,
                      const EagleTensors& out, int vocab_size, int num_rows, cudaStream_t stream) {
  LaunchOverlapped(BeginEaglePassKernel, Blocks(num_rows), kPairThreads, 0, stream, arenas, pass,
                   slots, out, vocab_size, num_rows);
  return LaunchStatus("begin_eagle_pass");
}

Status CopyRows(const TensorView& from, const int32_t* rows, const TensorView& to, int64_t column,
                cudaStream_t stream) {
  CHECK(from.dtype == to.dtype);
  const auto from_bytes = static_cast<int64_t>(BytesOf(from.dtype, from.shape[1]));
  const auto first_byte = static_cast<int64_t>(BytesOf(to.dtype, column));
  CHECK_EQ((from_bytes | first_byte) % static_cast<int64_t>(sizeof(uint4)), 0);
  LaunchOverlapped(CopyRowsKernel, static_cast<unsigned>(to.shape[0]), kEagleRowThreads, 0, stream,
                   from.as<const std::byte>(), from_bytes, rows, to.as<std::byte>() + first_byte,
                   static_cast<int64_t>(BytesOf(to.dtype, to.shape[1])));
  return LaunchStatus("copy_rows");
}

Status PlaceChildren(const EagleArena* arenas, int pass, const SlotState& slots,
                     const BestLogits* best, int count, const int32_t* token_ids, int num_rows,
                     cudaStream_t stream) {
  LaunchOverlapped(PlaceChildrenKernel, num_rows, kChildThreads, 0, stream, arenas, pass, slots,
                   reinterpret_cast<const std::byte*>(best), count, token_ids);
  return LaunchStatus("place_children");
}

}  // namespace inflight::executor::cuda
