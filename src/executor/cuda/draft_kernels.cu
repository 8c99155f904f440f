// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/draft_kernels.h"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::LaunchStatus;
using ops::cuda::BeginOverlapped;
using ops::cuda::LaunchOverlapped;

constexpr int kPassThreads = scheduler::StepPlan::kMaxRows;  // a row each
constexpr int kEndThreads = 256;
constexpr int kCopyThreads = 256;

// What a row of a pass computes: a slot's token at a position; the scratch slot's where it has
// nothing to do.
struct PassRow {
  int slot = 0;
  int position = 0;
  int logit = -1;  // row of the logits that is its, which it then has
};

__device__ DraftEntry LoadEntry(const DraftArena& arena, int e) {
  static_assert(sizeof(DraftEntry) == sizeof(int));
  const int word = __ldcv(reinterpret_cast<const int*>(arena.entries) + e);
  return {.slot = static_cast<uint16_t>(word & 0xffff),
          .num_drafts = static_cast<uint8_t>(word >> 16 & 0xff),
          .num_planned = static_cast<uint8_t>(word >> 24 & 0xff)};
}

__device__ PassRow FirstRow(const DraftArena& arena, const SlotState& slots, int num_tokens,
                            int r) {
  static_assert(sizeof(DraftToken) == sizeof(int2));
  if (r >= num_tokens) return {.slot = slots.scratch_slot()};
  const int2 words = __ldcv(reinterpret_cast<const int2*>(arena.tokens) + r);
  const int slot = words.x & 0xffff;
  const int position = slots.num_tokens[slot] - 1 - words.y;
  const int logit = words.x >> 16;
  if (position < 0) return {.slot = slots.scratch_slot()};
  return {.slot = slot, .position = position, .logit = logit};
}

__device__ PassRow NextRow(const DraftArena& arena, const SlotState& slots, int num_entries,
                           int pass, int r) {
  if (r >= num_entries) return {.slot = slots.scratch_slot()};
  const DraftEntry entry = LoadEntry(arena, r);
  if (entry.num_drafts <= pass) return {.slot = slots.scratch_slot()};
  return {.slot = entry.slot, .position = slots.num_tokens[entry.slot] - 1 + pass, .logit = r};
}

__device__ void MarkEmpty(const DraftArena& arena, const SlotState& slots, int e) {
  const DraftEntry entry = LoadEntry(arena, e);
  const int num_tokens = slots.num_tokens[entry.slot];
  int32_t* const tokens = slots.tokens + static_cast<int64_t>(entry.slot) * slots.max_tokens;
  for (int i = num_tokens; i < min(num_tokens + entry.num_planned, slots.max_tokens); ++i)
    tokens[i] = -1;
}

__global__ void __launch_bounds__(kPassThreads)
    BeginDraftPassKernel(const DraftArena* arenas, SlotState slots, StepTensors out,
                         int32_t* num_passes, bool is_first, int vocab_size, int num_rows) {
  __shared__ int2 header;  // read once: each read crosses the bus
  BeginOverlapped();
  const auto r = static_cast<int>(threadIdx.x);
  const DraftArena& arena = arenas[*slots.num_steps % kNumArenas];
  if (r == 0) header = __ldcv(reinterpret_cast<const int2*>(&arena));
  __syncthreads();
  const int num_tokens = header.x;
  const int num_entries = header.y;
  const int pass = is_first ? 0 : *num_passes;
  if (is_first && r < num_entries) MarkEmpty(arena, slots, r);
  if (r < num_rows) {
    out.logit_rows[r] = 0;
    out.logit_slots[r] = -1;
    out.logit_positions[r] = 1;
  }
  __syncthreads();
  if (r == 0) out.cu_seqlens_q[0] = 0;
  if (r == 0 && is_first) *num_passes = 0;
  if (r >= num_rows) return;
  const PassRow row = is_first ? FirstRow(arena, slots, num_tokens, r)
                               : NextRow(arena, slots, num_entries, pass, r);
  const int64_t table = static_cast<int64_t>(row.slot) * slots.max_blocks;
  const int block = slots.block_tables[table + row.position / slots.block_size];
  const int id = slots.tokens[static_cast<int64_t>(row.slot) * slots.max_tokens + row.position];
  out.ids[r] = id >= 0 && id < vocab_size ? id : 0;
  out.positions[r] = row.position;
  out.slot_mapping[r] =
      static_cast<int64_t>(block) * slots.block_size + row.position % slots.block_size;
  out.table_rows[r] = row.slot;
  out.cu_seqlens_q[r + 1] = r + 1;
  out.seq_lens_kv[r] = row.position + 1;
  if (row.logit < 0 || row.slot == slots.scratch_slot()) return;
  out.logit_rows[row.logit] = r;
  out.logit_slots[row.logit] = row.slot;
  out.logit_positions[row.logit] = row.position + 1;
}

__global__ void __launch_bounds__(kEndThreads)
    EndDraftPassKernel(SlotState slots, StepTensors drawn, int32_t* num_passes, int num_logits) {
  BeginOverlapped();
  for (auto j = static_cast<int>(threadIdx.x); j < num_logits; j += kEndThreads) {
    const int slot = drawn.logit_slots[j];
    const int position = drawn.logit_positions[j];
    if (slot < 0 || position >= slots.max_tokens) continue;
    slots.tokens[static_cast<int64_t>(slot) * slots.max_tokens + position] = drawn.sampled_ids[j];
  }
  if (threadIdx.x == 0) ++*num_passes;
}

__global__ void __launch_bounds__(kCopyThreads)
    CopyKnownIdsKernel(const int32_t* from, int32_t* to, int count, int vocab_size) {
  BeginOverlapped();
  const auto i = static_cast<int>(blockIdx.x * kCopyThreads + threadIdx.x);
  if (i < count) to[i] = from[i] >= 0 && from[i] < vocab_size ? from[i] : 0;
}

}  // namespace

Status BeginDraftPass(const DraftArena* arenas, const SlotState& slots, const StepTensors& tensors,
                      int32_t* num_passes, bool is_first, int vocab_size, int num_rows,
                      cudaStream_t stream) {
  LaunchOverlapped(BeginDraftPassKernel, 1, kPassThreads, 0, stream, arenas, slots, tensors,
                   num_passes, is_first, vocab_size, num_rows);
  return LaunchStatus("begin_draft_pass");
}

Status EndDraftPass(const SlotState& slots, const StepTensors& tensors, int32_t* num_passes,
                    int num_logits, cudaStream_t stream) {
  LaunchOverlapped(EndDraftPassKernel, 1, kEndThreads, 0, stream, slots, tensors, num_passes,
                   num_logits);
  return LaunchStatus("end_draft_pass");
}

Status CopyKnownIds(const int32_t* from, int32_t* to, int count, int vocab_size,
                    cudaStream_t stream) {
  LaunchOverlapped(CopyKnownIdsKernel, (count + kCopyThreads - 1) / kCopyThreads, kCopyThreads, 0,
                   stream, from, to, count, vocab_size);
  return LaunchStatus("copy_known_ids");
}

}  // namespace inflight::executor::cuda
