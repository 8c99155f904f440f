// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "executor/cuda/medusa_kernels.h"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using decoding::BestLogits;
using inflight::cuda::LaunchStatus;
using ops::cuda::BeginOverlapped;
using ops::cuda::LaunchOverlapped;

constexpr int kRowThreads = 256;
constexpr int kNodeThreads = TreeOnDevice::kMaxDrafts;

__device__ MedusaEntry LoadMedusaEntry(const MedusaArena& arena, int e) {
  static_assert(sizeof(MedusaEntry) == sizeof(int));
  const int word = __ldcv(reinterpret_cast<const int*>(arena.entries) + e);
  return {.slot = static_cast<uint16_t>(word & 0xffff),
          .num_nodes = static_cast<uint16_t>(word >> 16 & 0xffff)};
}

__device__ const MedusaArena& ArenaOf(const MedusaArena* arenas, const SlotState& slots) {
  return arenas[*slots.num_steps % kNumArenas];
}

// A CTA for each row.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    GatherStatesKernel(const MedusaArena* arenas, SlotState slots, const T* states, int width,
                       float* x, T* operand) {
  BeginOverlapped();
  const MedusaArena& arena = ArenaOf(arenas, slots);
  const auto e = static_cast<int>(blockIdx.x);
  const bool is_entry = e < __ldcv(&arena.num_entries);
  const T* const from = states + (is_entry ? int64_t{LoadMedusaEntry(arena, e).slot} * width : 0);
  for (auto i = static_cast<int>(threadIdx.x); i < width; i += kRowThreads) {
    const float value = is_entry ? static_cast<float>(from[i]) : 0.0F;
    x[int64_t{e} * width + i] = value;
    operand[int64_t{e} * width + i] = static_cast<T>(value);
  }
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    AddBlockKernel(float* x, const float* delta, T* operand, int64_t count) {
  BeginOverlapped();
  const int64_t i = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (i >= count) return;
  const float sum = x[i] + delta[i];
  x[i] = sum;
  operand[i] = static_cast<T>(sum);
}

// A CTA for each entry, a thread for each node.
__global__ void __launch_bounds__(kNodeThreads)
    PlaceNodesKernel(const MedusaArena* arenas, SlotState slots, const std::byte* best, int count,
                     int depth) {
  BeginOverlapped();
  const MedusaArena& arena = ArenaOf(arenas, slots);
  const auto e = static_cast<int>(blockIdx.x);
  if (e >= __ldcv(&arena.num_entries)) return;
  const MedusaEntry entry = LoadMedusaEntry(arena, e);
  const auto node = static_cast<int>(threadIdx.x);
  if (node >= entry.num_nodes || slots.tree->depths[node + 1] != depth) return;
  const int place = slots.num_tokens[entry.slot] + node;
  if (place >= slots.max_tokens) return;
  const auto& row = *reinterpret_cast<const BestLogits*>(best + static_cast<size_t>(e) *
                                                                    BestLogits::Bytes(count));
  const auto* const entries = reinterpret_cast<const BestLogits::Entry*>(&row + 1);
  const int choice = min(int{slots.tree->choices[node + 1]}, row.num_entries - 1);
  slots.tokens[int64_t{entry.slot} * slots.max_tokens + place] =
      choice < 0 ? 0 : entries[choice].id;
}

}  // namespace

Status GatherStates(const MedusaArena* arenas, const SlotState& slots, const TensorView& states,
                    const TensorView& x, const TensorView& operand, cudaStream_t stream) {
  const auto width = static_cast<int>(x.shape[1]);
  const auto launch = [&]<typename T>(const T* from) {
    LaunchOverlapped(GatherStatesKernel<T>, static_cast<unsigned>(x.shape[0]), kRowThreads, 0,
                     stream, arenas, slots, from, width, x.as<float>(), operand.as<T>());
  };
  if (states.dtype == DType::kF16)
    launch(states.as<const __half>());
  else
    launch(states.as<const __nv_bfloat16>());
  return LaunchStatus("gather_states");
}

Status AddBlock(const TensorView& x, const TensorView& delta, const TensorView& operand,
                cudaStream_t stream) {
  const int64_t count = x.num_elements();
  const auto blocks = static_cast<unsigned>((count + kRowThreads - 1) / kRowThreads);
  const auto launch = [&]<typename T>(T* to) {
    LaunchOverlapped(AddBlockKernel<T>, blocks, kRowThreads, 0, stream, x.as<float>(),
                     delta.as<const float>(), to, count);
  };
  if (operand.dtype == DType::kF16)
    launch(operand.as<__half>());
  else
    launch(operand.as<__nv_bfloat16>());
  return LaunchStatus("add_block");
}

Status PlaceNodes(const MedusaArena* arenas, const SlotState& slots, const BestLogits* best,
                  int count, int depth, int num_rows, cudaStream_t stream) {
  LaunchOverlapped(PlaceNodesKernel, num_rows, kNodeThreads, 0, stream, arenas, slots,
                   reinterpret_cast<const std::byte*>(best), count, depth);
  return LaunchStatus("place_nodes");
}

}  // namespace inflight::executor::cuda
