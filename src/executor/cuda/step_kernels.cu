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

constexpr int kBeginThreads = 1024;
constexpr int kExpandThreads = 256;
constexpr int kSetUpThreads = 256;
constexpr int kEndThreads = 256;
constexpr int kMaxSetUpBlocks = 64;

__device__ uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Each thread's first row and table entry are read beside the header, before it says whether they
// are any: one trip to host memory instead of two.
__global__ void __launch_bounds__(kBeginThreads)
    BeginStepKernel(const StepArena* arenas, SlotState slots, StepTensors out, int padded_rows) {
  BeginOverlapped();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) *slots.begin_ns = NowNs();
  const StepArena& arena = arenas[*slots.num_steps % kNumArenas];
  const int4 header = __ldcv(reinterpret_cast<const int4*>(&arena));
  const int4 first_row = __ldcv(reinterpret_cast<const int4*>(arena.rows + thread));
  const int2 first_entry = __ldcv(reinterpret_cast<const int2*>(arena.entries + thread));
  const int num_rows = header.x;
  const int num_decode_rows = header.y;
  const int num_entries = header.z;

  if (thread < num_entries) slots.block_tables[first_entry.x] = first_entry.y;
  for (int i = thread + kBeginThreads; i < num_entries; i += kBeginThreads) {
    const int2 entry = __ldcv(reinterpret_cast<const int2*>(arena.entries + i));
    slots.block_tables[entry.x] = entry.y;
  }
  __syncthreads();

  if (thread == 0) out.cu_seqlens_q[0] = 0;
  for (int r = thread; r < padded_rows; r += kBeginThreads) {
    int4 row = first_row;
    if (r != thread) row = __ldcv(reinterpret_cast<const int4*>(arena.rows + r));
    if (r >= num_rows) row = make_int4(slots.scratch_slot(), 0, r + 1, r);
    const int slot = row.x;
    const bool is_scratch = slot == slots.scratch_slot();
    out.table_rows[r] = slot;
    out.cu_seqlens_q[r + 1] = row.z;
    if (row.w >= 0) {
      out.logit_rows[row.w] = row.z - 1;
      out.logit_slots[row.w] = is_scratch ? -1 : slot;
    }
    const bool is_decode = r < num_decode_rows || r >= num_rows;
    out.first_positions[r] = row.y;
    if (!is_decode) {
      const int begin = r == 0 ? 0 : __ldcv(&arena.rows[r - 1].end_token);
      out.seq_lens_kv[r] = row.y + row.z - begin;
      continue;
    }
    const int known = is_scratch ? 1 : slots.num_tokens[slot];
    const int position = known - 1;
    const int block = slots.block_tables[static_cast<int64_t>(slot) * slots.max_blocks +
                                         position / slots.block_size];
    out.ids[r] = slots.tokens[static_cast<int64_t>(slot) * slots.max_tokens + position];
    out.positions[r] = position;
    out.seq_lens_kv[r] = known;
    out.slot_mapping[r] =
        static_cast<int64_t>(block) * slots.block_size + position % slots.block_size;
  }
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
  out.ids[t] = slots.tokens[slot * slots.max_tokens + position];
  out.positions[t] = position;
  out.slot_mapping[t] =
      static_cast<int64_t>(block) * slots.block_size + position % slots.block_size;
}

__global__ void __launch_bounds__(kSetUpThreads)
    SetUpSlotKernel(SlotState slots, int slot, const int32_t* tokens, int num_tokens) {
  const auto thread = static_cast<int>(blockIdx.x * kSetUpThreads + threadIdx.x);
  const auto stride = static_cast<int>(gridDim.x * kSetUpThreads);
  if (thread == 0) slots.num_tokens[slot] = num_tokens;
  int32_t* const to = slots.tokens + static_cast<int64_t>(slot) * slots.max_tokens;
  for (int i = thread; i < num_tokens; i += stride) to[i] = __ldcv(tokens + i);
  int32_t* const table = slots.block_tables + static_cast<int64_t>(slot) * slots.max_blocks;
  for (int i = thread; i < slots.max_blocks; i += stride) table[i] = 0;
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
                 cudaStream_t stream) {
  const int work = std::max(num_tokens, slots.max_blocks);
  const int blocks =
      std::min((work + 4 * kSetUpThreads - 1) / (4 * kSetUpThreads), kMaxSetUpBlocks);
  SetUpSlotKernel<<<blocks, kSetUpThreads, 0, stream>>>(slots, slot, tokens, num_tokens);
  return LaunchStatus("set_up_slot");
}

Status BeginStep(const StepArena* arenas, const SlotState& slots, const StepTensors& tensors,
                 int padded_rows, cudaStream_t stream) {
  LaunchOverlapped(BeginStepKernel, 1, kBeginThreads, 0, stream, arenas, slots, tensors,
                   padded_rows);
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
