// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "base/check.h"
#include "base/status_macros.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/peers.cuh"
#include "ops/cuda/stage_link.h"

namespace inflight::ops::cuda {
namespace {

constexpr int kLinkThreads = 512;

// Until the number there is `call` or one after it.
__device__ void AwaitCall(const uint32_t* from, uint32_t call, const uint32_t* abort) {
  for (int polls = 1; static_cast<int32_t>(LoadAcquire(from) - call) < 0; ++polls)
    if (polls % kPollsPerLook == 0 && IsAborted(abort)) break;
}

__device__ uint4* PlaceOf(const StageLink& link, uint32_t call) {
  return reinterpret_cast<uint4*>(link.places + call % kStagePlaces * link.place_bytes);
}

// The vectors of a CTA do not depend on how many there are in all.
__device__ void CopyShare(const uint4* from, uint4* to, int64_t num_vectors) {
  for (int64_t i = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x; i < num_vectors;
       i += int64_t{gridDim.x} * kLinkThreads)
    to[i] = from[i];
}

__global__ void __launch_bounds__(kLinkThreads)
    SendRowsKernel(const StageLink link, const uint4* values, int64_t num_vectors) {
  BeginOverlapped();
  uint32_t& sent = link.sender->sent[blockIdx.x];
  const uint32_t call = sent + 1;
  if (threadIdx.x == 0) AwaitCall(&link.sender->taken[blockIdx.x], call - kStagePlaces, link.abort);
  __syncthreads();
  CopyShare(values, PlaceOf(link, call), num_vectors);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  StoreRelease(&link.receiver->arrived[blockIdx.x], call);
  sent = call;
}

__global__ void __launch_bounds__(kLinkThreads)
    ReceiveRowsKernel(const StageLink link, uint4* values, int64_t num_vectors) {
  BeginOverlapped();
  uint32_t& received = link.receiver->received[blockIdx.x];
  const uint32_t call = received + 1;
  if (threadIdx.x == 0) AwaitCall(&link.receiver->arrived[blockIdx.x], call, link.abort);
  __syncthreads();
  CopyShare(PlaceOf(link, call), values, num_vectors);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  StoreRelease(&link.sender->taken[blockIdx.x], call);
  received = call;
}

Status CheckMessage(const StageLink& link, const void* values, size_t num_bytes) {
  CHECK_LE(link.num_ctas, kMaxStageCtas);
  constexpr size_t kVectorBytes = sizeof(uint4);
  const bool fits = num_bytes <= link.place_bytes && num_bytes % kVectorBytes == 0 &&
                    reinterpret_cast<uintptr_t>(values) % kVectorBytes == 0;
  if (fits) return Status::Ok();
  return InvalidArgument("rows between stages: got " + std::to_string(num_bytes) +
                         " bytes, needed vectors of " + std::to_string(kVectorBytes) +
                         ", at most " + std::to_string(link.place_bytes) + " bytes");
}

}  // namespace

Status SendRows(const StageLink& link, const void* values, size_t num_bytes, CudaStream& stream) {
  RETURN_IF_ERROR(CheckMessage(link, values, num_bytes));
  LaunchOverlapped(SendRowsKernel, static_cast<unsigned>(link.num_ctas), kLinkThreads, 0,
                   stream.handle(), link, static_cast<const uint4*>(values),
                   static_cast<int64_t>(num_bytes / sizeof(uint4)));
  return inflight::cuda::LaunchStatus("rows to the next stage");
}

Status ReceiveRows(const StageLink& link, void* values, size_t num_bytes, CudaStream& stream) {
  RETURN_IF_ERROR(CheckMessage(link, values, num_bytes));
  LaunchOverlapped(ReceiveRowsKernel, static_cast<unsigned>(link.num_ctas), kLinkThreads, 0,
                   stream.handle(), link, static_cast<uint4*>(values),
                   static_cast<int64_t>(num_bytes / sizeof(uint4)));
  return inflight::cuda::LaunchStatus("rows of the stage before");
}

}  // namespace inflight::ops::cuda
