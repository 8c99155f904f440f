// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/cuda/kv_copies.h"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::LaunchStatus;
using scheduler::StepPlan;

constexpr int kThreads = 128;
constexpr int kMaxCtasPerLayer = 64;
constexpr size_t kLaunchCopies = StepPlan::kMaxCopies;  // of one launch; arguments have 4 KB

struct OpenBlocks {
  std::byte* data;
  size_t layer_bytes, block_bytes, head_bytes, token_bytes;
  kv_cache::BlockCopy copies[kLaunchCopies];
};
static_assert(sizeof(OpenBlocks) < 4096);

// CTA (copy, layer, K or V of a head). Tokens of a head follow one another.
__global__ void __launch_bounds__(kThreads)
    CopyOpenBlocksKernel(const __grid_constant__ OpenBlocks params) {
  const kv_cache::BlockCopy& copy = params.copies[blockIdx.x];
  std::byte* const head =
      params.data + blockIdx.y * params.layer_bytes + blockIdx.z * params.head_bytes;
  const auto* const from =
      reinterpret_cast<const int4*>(head + static_cast<size_t>(copy.from) * params.block_bytes);
  auto* const to =
      reinterpret_cast<int4*>(head + static_cast<size_t>(copy.to) * params.block_bytes);
  const size_t count = static_cast<size_t>(copy.num_tokens) * params.token_bytes / sizeof(int4);
  for (size_t i = threadIdx.x; i < count; i += kThreads) to[i] = from[i];
}

struct HostBlocks {
  std::byte* device;
  std::byte* host;
  size_t device_layer_bytes, host_layer_bytes, block_bytes;
  int first_block;
  int num_blocks;
  int num_copies;
  int2 copies[kLaunchCopies];  // from, to
};
static_assert(sizeof(HostBlocks) < 4096);

__device__ int4* AddressOf(const HostBlocks& params, int block, size_t offset) {
  const bool is_host = block >= params.num_blocks;
  std::byte* const layer = is_host ? params.host + blockIdx.y * params.host_layer_bytes
                                   : params.device + blockIdx.y * params.device_layer_bytes;
  const int idx = is_host ? block - params.num_blocks : block + params.first_block;
  return reinterpret_cast<int4*>(layer + static_cast<size_t>(idx) * params.block_bytes + offset);
}

// A thread has the same bytes of every block, so that copies keep their order: one may give a block
// away that the next one fills.
__global__ void __launch_bounds__(kThreads)
    CopyHostBlocksKernel(const __grid_constant__ HostBlocks params) {
  const size_t stride = size_t{gridDim.x} * kThreads * sizeof(int4);
  for (size_t at = (size_t{blockIdx.x} * kThreads + threadIdx.x) * sizeof(int4);
       at < params.block_bytes; at += stride) {
    for (int i = 0; i < params.num_copies; ++i) {
      const int2 copy = params.copies[i];
      *AddressOf(params, copy.y, at) = *AddressOf(params, copy.x, at);
    }
  }
}

size_t LayerBytes(const ops::KvCacheView& kv) {
  return static_cast<size_t>(kv.num_blocks) * kv.block_bytes();
}

}  // namespace

Status CopyOpenBlocks(const ops::KvCacheView& kv, std::span<const kv_cache::BlockCopy> copies,
                      cudaStream_t stream) {
  OpenBlocks params = {
      .data = kv.data,
      .layer_bytes = LayerBytes(kv),
      .block_bytes = kv.block_bytes(),
      .head_bytes = kv.head_bytes(),
      .token_bytes = static_cast<size_t>(kv.row()) * SizeOf(kv.dtype),
  };
  CHECK_EQ(params.token_bytes % sizeof(int4), 0U);
  if (kv.num_layers == 0) return Status::Ok();
  while (!copies.empty()) {
    const auto some = copies.first(std::min(copies.size(), kLaunchCopies));
    std::ranges::copy(some, params.copies);
    const dim3 grid(static_cast<unsigned>(some.size()), static_cast<unsigned>(kv.num_layers),
                    2 * static_cast<unsigned>(kv.num_kv_heads));
    CopyOpenBlocksKernel<<<grid, kThreads, 0, stream>>>(params);
    RETURN_IF_ERROR(LaunchStatus("copy_open_blocks"));
    copies = copies.subspan(some.size());
  }
  return Status::Ok();
}

Status CopyHostBlocks(const HostPool& pool, std::span<const scheduler::HostBlockCopy> copies,
                      cudaStream_t stream) {
  CHECK_LE(copies.size(), kLaunchCopies);
  if (pool.kv.num_layers == 0) return Status::Ok();
  const size_t block_bytes = pool.kv.block_bytes();
  CHECK_EQ(block_bytes % sizeof(int4), 0U);
  HostBlocks params = {.device = pool.kv.data,
                       .host = pool.host.data,
                       .device_layer_bytes = LayerBytes(pool.kv),
                       .host_layer_bytes = LayerBytes(pool.host),
                       .block_bytes = block_bytes,
                       .first_block = pool.first_block,
                       .num_blocks = pool.num_blocks};
  for (const scheduler::HostBlockCopy& copy : copies)
    if (copy.group == pool.group) params.copies[params.num_copies++] = {copy.from, copy.to};
  if (params.num_copies == 0) return Status::Ok();
  const size_t ctas = (block_bytes / sizeof(int4) + kThreads - 1) / kThreads;
  const dim3 grid(static_cast<unsigned>(std::min<size_t>(ctas, kMaxCtasPerLayer)),
                  static_cast<unsigned>(pool.kv.num_layers));
  CopyHostBlocksKernel<<<grid, kThreads, 0, stream>>>(params);
  return LaunchStatus("copy_host_blocks");
}

}  // namespace inflight::executor::cuda
