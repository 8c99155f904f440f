// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "executor/cuda/step_kernels.h"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::LaunchStatus;
using ops::cuda::BeginOverlapped;
using ops::cuda::LaunchOverlapped;

constexpr int kWarp = 32;
constexpr int kBeginThreads = scheduler::StepPlan::kMaxRows;  // a row each
constexpr int kFirstLine = 2 + StepArena::kFirstEntries;      // in int2
constexpr int kExpandThreads = 256;
constexpr int kSetUpThreads = 256;
constexpr int kEndThreads = 256;
constexpr int kPlaceThreads = 128;
constexpr int kFillThreads = 256;
constexpr int kMaxSetUpBlocks = 64;

__device__ uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// One CTA, so that the entries are in the tables before rows look there.
__global__ void __launch_bounds__(kBeginThreads)
    BeginStepKernel(const StepArena* arenas, SlotState slots, StepTensors out,
                    StepPadding padding) {
  __shared__ int header[4];
  BeginOverlapped();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) *slots.begin_ns = NowNs();
  const StepArena& arena = arenas[*slots.num_steps % kNumArenas];
  int slot = slots.scratch_slot();
  if (thread < padding.num_rows) slot = __ldcv(arena.decode_slots + thread);
  if (thread < kWarp) {  // lanes 0 and 1 the header, the others an entry each
    const int2 part = __ldcv(reinterpret_cast<const int2*>(&arena) + min(thread, kFirstLine - 1));
    if (thread < 2) {
      header[2 * thread] = part.x;
      header[2 * thread + 1] = part.y;
    }
    const int num_entries = __shfl_sync(0xffffffffU, part.x, 1);
    if (thread >= 2 && thread < kFirstLine && thread - 2 < num_entries)
      slots.block_tables[part.x] = part.y;
  }
  __syncthreads();
  const int num_rows = header[0];
  const int num_decode_rows = header[1];
  const int num_entries = header[2];
  const int num_logits = header[3];
  for (int i = thread + StepArena::kFirstEntries; i < num_entries; i += kBeginThreads) {
    const int2 entry =
        __ldcv(reinterpret_cast<const int2*>(arena.entries) + i - StepArena::kFirstEntries);
    slots.block_tables[entry.x] = entry.y;
  }
  if (num_entries > StepArena::kFirstEntries) __syncthreads();

  if (thread == 0) out.cu_seqlens_q[0] = 0;
  const int r = thread;
  if (r >= num_logits && r < padding.num_logits) {
    out.logit_rows[r] = 0;
    out.logit_slots[r] = -1;
  }
  if (r >= padding.num_rows) return;
  if (r >= num_decode_rows && r < num_rows) {
    const auto* const rows = reinterpret_cast<const int4*>(arena.prefill_rows) - num_decode_rows;
    const int4 row = __ldcv(rows + r);  // PrefillRow
    const int begin = r == num_decode_rows ? r : __ldcv(rows + r - 1).z;
    out.table_rows[r] = row.x;
    out.first_positions[r] = row.y;
    out.cu_seqlens_q[r + 1] = row.z;
    out.seq_lens_kv[r] = row.y + row.z - begin;
    if (row.w < 0) return;
    out.logit_rows[row.w] = row.z - 1;
    out.logit_slots[row.w] = row.x == slots.scratch_slot() ? -1 : row.x;
    return;
  }
  if (r >= num_rows && num_rows > num_decode_rows) {
    const int end = __ldcv(&arena.prefill_rows[num_rows - num_decode_rows - 1].end_token);
    out.table_rows[r] = slots.scratch_slot();
    out.first_positions[r] = 0;
    out.cu_seqlens_q[r + 1] = padding.num_tokens;
    out.seq_lens_kv[r] = r == num_rows ? padding.num_tokens - end : 0;
    return;
  }
  if (r >= num_rows) slot = slots.scratch_slot();
  const bool is_scratch = slot == slots.scratch_slot();
  const int known = is_scratch ? 1 : slots.num_tokens[slot];
  const int position = known - 1;
  const int64_t table = static_cast<int64_t>(slot) * slots.max_blocks;
  const int block = slots.block_tables[table + position / slots.block_size];
  out.ids[r] = slots.tokens[static_cast<int64_t>(slot) * slots.max_tokens + position];
  if (out.prompt_rows != nullptr) out.prompt_rows[r] = nullptr;
  out.positions[r] = position;
  out.slot_mapping[r] =
      static_cast<int64_t>(block) * slots.block_size + position % slots.block_size;
  out.table_rows[r] = slot;
  out.cu_seqlens_q[r + 1] = r + 1;
  out.seq_lens_kv[r] = known;
  out.logit_rows[r] = r;
  out.logit_slots[r] = is_scratch ? -1 : slot;
}

__global__ void __launch_bounds__(kExpandThreads)
    ExpandPrefillKernel(SlotState slots, StepTensors out, int num_decode_rows, int num_rows,
                        int num_tokens) {
  BeginOverlapped();
  const int t = num_decode_rows + static_cast<int>(blockIdx.x * kExpandThreads + threadIdx.x);
  if (t >= num_tokens) return;
  int low = num_decode_rows;  // the last row that begins at or before t
  int high = num_rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (out.cu_seqlens_q[middle] <= t)
      low = middle;
    else
      high = middle - 1;
  }
  const int position = out.first_positions[low] + t - out.cu_seqlens_q[low];
  const int64_t slot = out.table_rows[low];
  const int block = slots.block_tables[slot * slots.max_blocks + position / slots.block_size];
  const int32_t id = slots.tokens[slot * slots.max_tokens + position];
  out.ids[t] = id;
  if (out.prompt_rows != nullptr) {
    const bool is_row = id >= slots.first_row_id;
    out.prompt_rows[t] =
        is_row ? slots.prompt_tables[slot] + (id - slots.first_row_id) * slots.row_bytes : nullptr;
  }
  out.positions[t] = position;
  out.slot_mapping[t] =
      static_cast<int64_t>(block) * slots.block_size + position % slots.block_size;
}

__global__ void __launch_bounds__(kSetUpThreads)
    SetUpSlotKernel(SlotState slots, int slot, const int32_t* tokens, int num_tokens,
                    const std::byte* prompt_table) {
  const auto thread = static_cast<int>(blockIdx.x * kSetUpThreads + threadIdx.x);
  const auto stride = static_cast<int>(gridDim.x * kSetUpThreads);
  if (thread == 0) slots.num_tokens[slot] = num_tokens;
  if (thread == 0 && slots.prompt_tables != nullptr) slots.prompt_tables[slot] = prompt_table;
  int32_t* const to = slots.tokens + static_cast<int64_t>(slot) * slots.max_tokens;
  for (int i = thread; i < num_tokens; i += stride) to[i] = __ldcv(tokens + i);
  int32_t* const table = slots.block_tables + static_cast<int64_t>(slot) * slots.max_blocks;
  for (int i = thread; i < slots.max_blocks; i += stride) table[i] = 0;
}

// A CTA for each beam.
__global__ void __launch_bounds__(kPlaceThreads)
    PlaceBeamsKernel(SlotState slots, const __grid_constant__ BeamPlaces places,
                     const int32_t* tables, const int32_t* tokens) {
  const int64_t slot = places.slots[blockIdx.x];
  const auto thread = static_cast<int>(threadIdx.x);
  int32_t* const to = slots.tokens + slot * slots.max_tokens;
  if (thread == 0) {
    slots.num_tokens[slot] = places.num_tokens;
    if (tokens == nullptr) to[places.num_tokens - 1] = places.last_tokens[blockIdx.x];
  }
  if (tokens != nullptr) {  // four at a time: rows are multiples of it
    const auto* const from = reinterpret_cast<const int4*>(tokens + slot * slots.max_tokens);
    for (int i = thread; i < (places.num_tokens + 3) / 4; i += kPlaceThreads)
      reinterpret_cast<int4*>(to)[i] = __ldcv(from + i);
  }
  const int num_blocks = (places.num_tokens - 1 + slots.block_size - 1) / slots.block_size;
  const int64_t table = slot * slots.max_blocks;
  for (int i = thread; i < num_blocks; i += kPlaceThreads)
    slots.block_tables[table + i] = __ldcv(tables + table + i);
}

__global__ void __launch_bounds__(kFillThreads)
    FillRangeKernel(int32_t* values, int first, int count) {
  const auto i = static_cast<int>(blockIdx.x * kFillThreads + threadIdx.x);
  if (i < count) values[i] = first + i;
}

__global__ void __launch_bounds__(kEndThreads)
    EndStepKernel(SlotState slots, StepTensors drawn, int num_logits, StepOutputs* outputs,
                  uint64_t* num_done) {
  BeginOverlapped();
  const uint64_t step = *slots.num_steps;
  StepOutputs& out = outputs[step % kNumArenas];
  for (auto j = static_cast<int>(threadIdx.x); j < num_logits; j += kEndThreads) {
    out.ids[j] = drawn.sampled_ids[j];
    out.log_probs[j] = drawn.log_probs[j];
    out.log_probs_all[j] = drawn.log_probs_all[j];
  }
  if (threadIdx.x == 0) {
    out.begin_ns = *slots.begin_ns;
    out.end_ns = NowNs();
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  const uint64_t count = step + 1;
  *slots.num_steps = count;
  __threadfence_system();
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(num_done), "l"(count) : "memory");
}

__global__ void BadLaunchKernel() {}

__global__ void TrapKernel() { __trap(); }

__global__ void SpinKernel(uint64_t duration_ns) {
  const uint64_t end = NowNs() + duration_ns;
  while (NowNs() < end) __nanosleep(10000);
}

}  // namespace

Status SetUpSlot(const SlotState& slots, int slot, const int32_t* tokens, int num_tokens,
                 const std::byte* prompt_table, cudaStream_t stream) {
  const int work = std::max(num_tokens, slots.max_blocks);
  const int blocks =
      std::min((work + 4 * kSetUpThreads - 1) / (4 * kSetUpThreads), kMaxSetUpBlocks);
  SetUpSlotKernel<<<blocks, kSetUpThreads, 0, stream>>>(slots, slot, tokens, num_tokens,
                                                        prompt_table);
  return LaunchStatus("set_up_slot");
}

Status PlaceBeams(const SlotState& slots, const BeamPlaces& places, const int32_t* tables,
                  const int32_t* tokens, cudaStream_t stream) {
  PlaceBeamsKernel<<<places.num_beams, kPlaceThreads, 0, stream>>>(slots, places, tables, tokens);
  return LaunchStatus("place_beams");
}

Status FillRange(int32_t* values, int first, int count, cudaStream_t stream) {
  const int blocks = (count + kFillThreads - 1) / kFillThreads;
  FillRangeKernel<<<blocks, kFillThreads, 0, stream>>>(values, first, count);
  return LaunchStatus("fill_range");
}

Status BeginStep(const StepArena* arenas, const SlotState& slots, const StepTensors& tensors,
                 const StepPadding& padding, cudaStream_t stream) {
  LaunchOverlapped(BeginStepKernel, 1, kBeginThreads, 0, stream, arenas, slots, tensors, padding);
  return LaunchStatus("begin_step");
}

Status ExpandPrefill(const SlotState& slots, const StepTensors& tensors, int num_decode_rows,
                     int num_rows, int num_tokens, cudaStream_t stream) {
  const int blocks = (num_tokens - num_decode_rows + kExpandThreads - 1) / kExpandThreads;
  LaunchOverlapped(ExpandPrefillKernel, blocks, kExpandThreads, 0, stream, slots, tensors,
                   num_decode_rows, num_rows, num_tokens);
  return LaunchStatus("expand_prefill");
}

Status EndStep(const SlotState& slots, const StepTensors& tensors, int num_logits,
               StepOutputs* outputs, uint64_t* num_done, cudaStream_t stream) {
  LaunchOverlapped(EndStepKernel, 1, kEndThreads, 0, stream, slots, tensors, num_logits, outputs,
                   num_done);
  return LaunchStatus("end_step");
}

Status LaunchBadly(cudaStream_t stream) {
  BadLaunchKernel<<<1, 4096, 0, stream>>>();  // more threads than any GPU allows
  return LaunchStatus("injected fault");
}

Status LaunchTrap(cudaStream_t stream) {
  TrapKernel<<<1, 1, 0, stream>>>();
  return LaunchStatus("injected trap");
}

Status LaunchSpin(int seconds, cudaStream_t stream) {
  SpinKernel<<<1, 1, 0, stream>>>(static_cast<uint64_t>(seconds) * 1'000'000'000);
  return LaunchStatus("injected spin");
}

}  // namespace inflight::executor::cuda
