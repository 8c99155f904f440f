// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>

#include "executor/cuda/moved_kv.cuh"
#include "executor/cuda/stage_mail.h"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

constexpr int kMailThreads = 256;
constexpr int kMoveDrawnThreads = 128;
constexpr int kPollsPerAbort = 1 << 12;  // between two looks at the host's word

__device__ void WriteDrawn(StageLetter& letter, int j, const DrawnToken& drawn) {
  reinterpret_cast<int4*>(letter.drawn)[j] = *reinterpret_cast<const int4*>(&drawn);
}

// Where drafts are trees: of the row whose logits begin with the j-th the tokens of its path.
__device__ void WritePath(StageLetter& letter, int j, const SlotState& slots,
                          const StepTensors& tensors) {
  const int slot = tensors.logit_slots[j];
  const int first = tensors.logit_positions[j];
  const int32_t* const tokens = slots.tokens + static_cast<int64_t>(slot) * slots.max_tokens;
  uint64_t left = tensors.accepted[j];
  const int num_yielded = 1 + __popcll(left);
  for (int i = 0; i <= tensors.num_nodes[j]; ++i) {
    DrawnToken drawn = {};
    if (i < num_yielded && first + i < slots.max_tokens) {
      const int node = left == 0 ? i : __ffsll(static_cast<long long>(left)) - 1;
      left &= left - 1;
      drawn.slot = static_cast<int16_t>(slot);
      drawn.kv_shift = static_cast<uint16_t>(node - i);
      drawn.at = first + i;
      drawn.id = tokens[first + i];
      drawn.num_tokens = slots.num_tokens[slot];
    }
    WriteDrawn(letter, j + i, drawn);
  }
}

// A CTA for each box.
__global__ void __launch_bounds__(kMailThreads)
    SendDrawnKernel(const __grid_constant__ StageMail mail, SlotState slots, StepTensors tensors,
                    int num_logits) {
  ops::cuda::BeginOverlapped();
  const uint64_t number = *slots.num_steps;  // the step has ended
  StageLetter& letter = mail.boxes[blockIdx.x][(number - 1) % kNumArenas];
  for (auto j = static_cast<int>(threadIdx.x); j < num_logits; j += kMailThreads) {
    const int slot = tensors.logit_slots[j];
    if (slot >= 0 && tensors.accepted != nullptr) {
      if (j == 0 || tensors.logit_slots[j - 1] != slot) WritePath(letter, j, slots, tensors);
      continue;
    }
    DrawnToken drawn = {};
    if (slot >= 0) {
      drawn.slot = static_cast<int16_t>(slot);
      drawn.id = tensors.sampled_ids[j];
      drawn.num_tokens = slots.num_tokens[slot];
      drawn.at =
          tensors.logit_positions == nullptr ? drawn.num_tokens - 1 : tensors.logit_positions[j];
    }
    WriteDrawn(letter, j, drawn);
  }
  if (threadIdx.x == 0) letter.num_drawn = num_logits;
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(&letter.number), "l"(number) : "memory");
}

__global__ void __launch_bounds__(kMailThreads)
    TakeDrawnKernel(const __grid_constant__ StageMail mail, SlotState slots, uint64_t step) {
  ops::cuda::BeginOverlapped();
  const StageLetter& letter = mail.boxes[0][step % kNumArenas];
  if (threadIdx.x == 0) {
    uint64_t number = 0;
    for (int polls = 1; number < step + 1; ++polls) {
      asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                   : "=l"(number)
                   : "l"(&letter.number)
                   : "memory");
      if (polls % kPollsPerAbort == 0 && *static_cast<const volatile uint32_t*>(mail.abort) != 0)
        break;
    }
  }
  __syncthreads();
  const int num_drawn = letter.num_drawn;
  for (auto j = static_cast<int>(threadIdx.x); j < num_drawn; j += kMailThreads) {
    const DrawnToken drawn = letter.drawn[j];
    // What is drawn behind a draft that is not accepted has its place behind the tokens.
    if (drawn.slot < 0 || drawn.at >= drawn.num_tokens) continue;
    slots.tokens[static_cast<int64_t>(drawn.slot) * slots.max_tokens + drawn.at] = drawn.id;
    slots.num_tokens[drawn.slot] = drawn.num_tokens;
  }
}

// CTA (place of the letter, layer); of each slot that with its first token moves what it has.
__global__ void __launch_bounds__(kMoveDrawnThreads)
    MoveDrawnKernel(const __grid_constant__ StageMail mail, MovedKv kv, int group, SlotState slots,
                    uint64_t step) {
  ops::cuda::BeginOverlapped();
  const StageLetter& letter = mail.boxes[0][step % kNumArenas];
  const auto j = static_cast<int>(blockIdx.x);
  const int num_drawn = letter.num_drawn;
  if (j >= num_drawn) return;
  const int slot = letter.drawn[j].slot;
  if (slot < 0 || (j > 0 && letter.drawn[j - 1].slot == slot)) return;
  MoveKv(kv, group, slots, slot, [&](const auto& move) {
    for (int i = j; i < num_drawn && letter.drawn[i].slot == slot; ++i)
      move(letter.drawn[i].at + letter.drawn[i].kv_shift, letter.drawn[i].at);
  });
}

static_assert(sizeof(DrawnToken) == sizeof(int4));

}  // namespace

Status SendDrawn(const StageMail& mail, const SlotState& slots, const StepTensors& tensors,
                 int num_logits, cudaStream_t stream) {
  ops::cuda::LaunchOverlapped(SendDrawnKernel, static_cast<unsigned>(mail.num_boxes), kMailThreads,
                              0, stream, mail, slots, tensors, num_logits);
  return inflight::cuda::LaunchStatus("tokens to the other stages");
}

Status WriteLetter(const StageMail& mail, uint64_t step, std::span<const DrawnToken> drawn) {
  StageLetter& letter = mail.boxes[0][step % kNumArenas];
  if (drawn.size() > std::size(letter.drawn))
    return InvalidArgument("tokens of the last stage: got " + std::to_string(drawn.size()) +
                           ", at most " + std::to_string(std::size(letter.drawn)));
  std::ranges::copy(drawn, letter.drawn);
  letter.num_drawn = static_cast<int32_t>(drawn.size());
  letter.number = step + 1;
  return Status::Ok();
}

Status TakeDrawn(const StageMail& mail, const SlotState& slots, uint64_t step,
                 cudaStream_t stream) {
  ops::cuda::LaunchOverlapped(TakeDrawnKernel, 1U, kMailThreads, 0, stream, mail, slots, step);
  return inflight::cuda::LaunchStatus("tokens of the last stage");
}

Status MoveDrawn(const StageMail& mail, const ops::KvCacheView& kv, int group,
                 const SlotState& slots, uint64_t step, int num_logits, cudaStream_t stream) {
  if (kv.num_layers == 0) return Status::Ok();
  ops::cuda::LaunchOverlapped(
      MoveDrawnKernel,
      dim3(static_cast<unsigned>(num_logits), static_cast<unsigned>(kv.num_layers)),
      kMoveDrawnThreads, 0, stream, mail, MovedKvOf(kv), group, slots, step);
  return inflight::cuda::LaunchStatus("keys and values of the last stage's paths");
}

}  // namespace inflight::executor::cuda
