// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "decoding/cuda/best_of_row.cuh"
#include "decoding/cuda/device_sampler.h"
#include "decoding/cuda/sample_row.cuh"
#include "decoding/cuda/slot_rule.h"
#include "ops/cuda/cuda_stream.h"
#include "tensor/cuda_status.h"

namespace inflight::decoding {
namespace {

extern __shared__ __align__(16) std::byte sample_memory[];

template <bool kSampled, bool kResident>
__global__ void __launch_bounds__(kThreads, 3)
    SampleKernel(const __grid_constant__ SampleKernelParams params) {
  const int row = static_cast<int>(blockIdx.x) / cuda::ClusterSize();
  const int slot = params.sample.row_slots[row];
  if (slot < 0) return;
  RowSampler<kResident>(params, row, slot, sample_memory).template Run<kSampled>();
}

template <bool kResident>
__global__ void __launch_bounds__(kThreads, 2)
    FindBestKernel(const __grid_constant__ SampleKernelParams params, int count, std::byte* best) {
  const int row = static_cast<int>(blockIdx.x) / cuda::ClusterSize();
  const int slot = params.sample.row_slots[row];
  if (slot < 0) return;
  std::byte* const out = best + static_cast<size_t>(row) * BestLogits::Bytes(count);
  BestOfRow<kResident>(params, row, slot, sample_memory)
      .Run(count, reinterpret_cast<BestLogits*>(out));
}

__global__ void SetRule(SlotRule* rules, int slot, const __grid_constant__ SlotRule rule) {
  rules[slot] = rule;
}

using KernelFunction = void (*)(SampleKernelParams);
using BestKernelFunction = void (*)(SampleKernelParams, int, std::byte*);

KernelFunction FindKernel(bool is_sampled, bool is_resident) {
  if (is_sampled) return is_resident ? SampleKernel<true, true> : SampleKernel<true, false>;
  return is_resident ? SampleKernel<false, true> : SampleKernel<false, false>;
}

BestKernelFunction FindBestKernelFor(bool is_resident) {
  return is_resident ? FindBestKernel<true> : FindBestKernel<false>;
}

int ChunkSize(int vocab_size, int cluster_size, int unit = 4) {
  return ((vocab_size + cluster_size - 1) / cluster_size + unit - 1) / unit * unit;
}

size_t DynamicSharedBytes(int chunk_size, bool is_resident) {
  const size_t values = static_cast<size_t>(is_resident ? chunk_size : kTileSize) * sizeof(float);
  return RowSampler<true>::SharedBytes() + std::max(values, kMaxCandidates * sizeof(uint64_t));
}

size_t BestSharedBytes(int chunk_size, bool is_resident) {
  const auto values = static_cast<size_t>(is_resident ? chunk_size : kTileSize);
  return BestOfRow<true>::SharedBytes() + values * sizeof(float);
}

// A slot's list comes before all biases, so that rows of either are aligned as the first is.
static_assert(kMaxListSize * sizeof(int32_t) % sizeof(float4) == 0);
uint64_t EditBytes(int max_slots, int vocab_size) {
  return static_cast<uint64_t>(max_slots) *
         (kMaxListSize * sizeof(int32_t) + static_cast<uint64_t>(vocab_size) * sizeof(float));
}

int32_t* ListOf(std::byte* edits, int slot) {
  return reinterpret_cast<int32_t*>(edits) + static_cast<size_t>(slot) * kMaxListSize;
}

float* BiasOf(std::byte* edits, int max_slots, int vocab_size, int slot) {
  return reinterpret_cast<float*>(ListOf(edits, max_slots)) +
         static_cast<size_t>(slot) * static_cast<size_t>(vocab_size);
}

struct Launch {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute cluster = {};

  Launch(int num_rows, int cluster_size, size_t shared_bytes, cudaStream_t stream) {
    config.gridDim = dim3(static_cast<unsigned>(num_rows * cluster_size));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    if (cluster_size == 1) return;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(cluster_size), 1, 1};
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
};

// Whether the GPU runs `kernel` in clusters, and its code is such that knows them.
template <typename Kernel>
bool CanRunClusters(Kernel kernel, size_t shared_bytes, const Device& device) {
  cudaFuncAttributes attributes = {};
  if (device.cuda().compute_major < 9 ||
      cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess || attributes.ptxVersion < 90)
    return false;
  const Launch launch(/*num_rows=*/1, kMaxClusterSize, shared_bytes, /*stream=*/nullptr);
  int num_clusters = 0;
  const cudaError_t error = cudaOccupancyMaxActiveClusters(&num_clusters, kernel, &launch.config);
  if (error != cudaSuccess) cudaGetLastError();  // not to be found by the next launch
  return error == cudaSuccess && num_clusters > 0;
}

}  // namespace

uint64_t DeviceSampler::Bytes(int max_slots, int vocab_size) {
  return static_cast<uint64_t>(max_slots) * sizeof(SlotRule) + EditBytes(max_slots, vocab_size);
}

Result<std::unique_ptr<DeviceSampler>> DeviceSampler::Create(Device& device, int max_slots,
                                                             int vocab_size,
                                                             bool may_use_clusters) {
  std::unique_ptr<DeviceSampler> sampler(new DeviceSampler(device, max_slots, vocab_size));
  RETURN_IF_ERROR(inflight::cuda::ToStatus(cudaSetDevice(device.cuda().index), "cudaSetDevice"));
  ASSIGN_OR_RETURN(
      sampler->rules_,
      Buffer::Allocate(device, "sampler", static_cast<uint64_t>(max_slots) * sizeof(SlotRule)));
  const uint64_t edit_bytes = EditBytes(max_slots, vocab_size);
  ASSIGN_OR_RETURN(sampler->edits_, Buffer::Allocate(device, "sampler", edit_bytes));
  ASSIGN_OR_RETURN(sampler->pinned_, PinnedBuffer::Allocate(device, edit_bytes));
  const size_t max_shared_bytes = device.cuda().max_shared_bytes_per_block;
  const auto allow_shared_bytes = [max_shared_bytes](auto kernel) {
    return inflight::cuda::ToStatus(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(max_shared_bytes)),
        "sampler's shared memory");
  };
  for (const bool is_resident : {false, true}) {
    for (const bool is_sampled : {false, true})
      RETURN_IF_ERROR(allow_shared_bytes(FindKernel(is_sampled, is_resident)));
    RETURN_IF_ERROR(allow_shared_bytes(FindBestKernelFor(is_resident)));
  }
  const size_t sample_bytes =
      DynamicSharedBytes(ChunkSize(vocab_size, kMaxClusterSize), /*is_resident=*/true);
  const size_t best_bytes =
      BestSharedBytes(ChunkSize(vocab_size, kMaxClusterSize, kSumBlock), /*is_resident=*/true);
  const bool fits = std::max(sample_bytes, best_bytes) <= max_shared_bytes;
  if (may_use_clusters &&
      CanRunClusters(FindKernel(/*is_sampled=*/true, fits),
                     fits ? sample_bytes : DynamicSharedBytes(0, /*is_resident=*/false), device) &&
      CanRunClusters(FindBestKernelFor(fits),
                     fits ? best_bytes : BestSharedBytes(0, /*is_resident=*/false), device)) {
    sampler->cluster_size_ = kMaxClusterSize;
    sampler->row_is_resident_ = fits;
  }
  // The rules were cleared in the default stream.
  RETURN_IF_ERROR(inflight::cuda::ToStatus(cudaDeviceSynchronize(), "sampler"));
  return Result<std::unique_ptr<DeviceSampler>>(std::move(sampler));
}

Status DeviceSampler::Setup(int slot, const SamplingRule& rule, std::span<const TokenId> tokens,
                            Stream& stream) {
  CHECK_LT(slot, max_slots_);
  cudaStream_t const handle = ops::cuda::AsCuda(stream).handle();
  const auto upload = [&](auto* to, const auto* from, size_t count) {
    return inflight::cuda::ToStatus(
        cudaMemcpyAsync(to, from, count * sizeof(*to), cudaMemcpyHostToDevice, handle),
        "sampler's words and bias of a slot");
  };
  if (rule.has_bans()) {
    int32_t* const list = ListOf(pinned_.data(), slot);
    const size_t size = WriteList(rule, {list, kMaxListSize});
    RETURN_IF_ERROR(upload(ListOf(edits_.data(), slot), list, size));
  }
  RETURN_IF_ERROR(bad_texts_.Set(slot, rule.bad_texts, stream));
  if (rule.bias != nullptr) {
    CHECK_EQ(rule.bias->size(), static_cast<size_t>(vocab_size_));
    float* const bias = BiasOf(pinned_.data(), max_slots_, vocab_size_, slot);
    std::ranges::copy(*rule.bias, bias);
    RETURN_IF_ERROR(upload(BiasOf(edits_.data(), max_slots_, vocab_size_, slot), bias,
                           static_cast<size_t>(vocab_size_)));
  }
  SetRule<<<1, 1, 0, handle>>>(reinterpret_cast<SlotRule*>(rules_.data()), slot,
                               MakeSlotRule(rule, tokens, bad_texts_.Of(slot)));
  return inflight::cuda::LaunchStatus("sampler's rule of a slot");
}

SampleKernelParams DeviceSampler::KernelParams(const DeviceSampleParams& params,
                                               int chunk_size) const {
  int id_bits = 1;
  while (vocab_size_ > 1 << id_bits) ++id_bits;
  return {.sample = params,
          .rules = reinterpret_cast<SlotRule*>(rules_.data()),
          .lists = ListOf(edits_.data(), 0),
          .biases = BiasOf(edits_.data(), max_slots_, vocab_size_, 0),
          .vocab_size = vocab_size_,
          .chunk_size = chunk_size,
          .id_bits = id_bits,
          .is_aligned = vocab_size_ % 4 == 0 &&
                        reinterpret_cast<uintptr_t>(params.logits) % sizeof(float4) == 0};
}

Status DeviceSampler::Sample(const DeviceSampleParams& params, Stream& stream) const {
  if (params.num_rows == 0) return Status::Ok();
  const int chunk_size = ChunkSize(vocab_size_, cluster_size_);
  const Launch launch(params.num_rows, cluster_size_,
                      DynamicSharedBytes(chunk_size, row_is_resident_),
                      ops::cuda::AsCuda(stream).handle());
  return inflight::cuda::ToStatus(
      cudaLaunchKernelEx(&launch.config, FindKernel(params.any_row_samples, row_is_resident_),
                         KernelParams(params, chunk_size)),
      "sample");
}

Status DeviceSampler::FindBest(const DeviceSampleParams& params, int count, BestLogits* best,
                               Stream& stream) const {
  CHECK(count > 0 && count <= BestLogits::kMaxCount);
  const int chunk_size = ChunkSize(vocab_size_, cluster_size_, kSumBlock);
  const Launch launch(params.num_rows, cluster_size_, BestSharedBytes(chunk_size, row_is_resident_),
                      ops::cuda::AsCuda(stream).handle());
  return inflight::cuda::ToStatus(
      cudaLaunchKernelEx(&launch.config, FindBestKernelFor(row_is_resident_),
                         KernelParams(params, chunk_size), count,
                         reinterpret_cast<std::byte*>(best)),
      "best logits");
}

}  // namespace inflight::decoding
