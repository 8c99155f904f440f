// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
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

__global__ void SetRule(SlotRule* rules, int slot, const __grid_constant__ SlotRule rule) {
  rules[slot] = rule;
}

using KernelFunction = void (*)(SampleKernelParams);

KernelFunction FindKernel(bool is_sampled, bool is_resident) {
  if (is_sampled) return is_resident ? SampleKernel<true, true> : SampleKernel<true, false>;
  return is_resident ? SampleKernel<false, true> : SampleKernel<false, false>;
}

int ChunkSize(int vocab_size, int cluster_size) {
  return ((vocab_size + cluster_size - 1) / cluster_size + 3) / 4 * 4;
}

size_t DynamicSharedBytes(int chunk_size, bool is_resident) {
  const size_t values = static_cast<size_t>(is_resident ? chunk_size : kTileSize) * sizeof(float);
  return RowSampler<true>::SharedBytes() + std::max(values, kMaxCandidates * sizeof(uint64_t));
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
bool CanRunClusters(KernelFunction kernel, size_t shared_bytes, const Device& device) {
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
  std::unique_ptr<DeviceSampler> sampler(new DeviceSampler(max_slots, vocab_size));
  RETURN_IF_ERROR(inflight::cuda::ToStatus(cudaSetDevice(device.cuda().index), "cudaSetDevice"));
  ASSIGN_OR_RETURN(
      sampler->rules_,
      Buffer::Allocate(device, "sampler", static_cast<uint64_t>(max_slots) * sizeof(SlotRule)));
  const uint64_t edit_bytes = EditBytes(max_slots, vocab_size);
  ASSIGN_OR_RETURN(sampler->edits_, Buffer::Allocate(device, "sampler", edit_bytes));
  ASSIGN_OR_RETURN(sampler->pinned_, PinnedBuffer::Allocate(device, edit_bytes));
  const size_t max_shared_bytes = device.cuda().max_shared_bytes_per_block;
  for (const bool is_sampled : {false, true}) {
    for (const bool is_resident : {false, true}) {
      const KernelFunction kernel = FindKernel(is_sampled, is_resident);
      RETURN_IF_ERROR(inflight::cuda::ToStatus(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(max_shared_bytes)),
          "sampler's shared memory"));
    }
  }
  const size_t resident_bytes =
      DynamicSharedBytes(ChunkSize(vocab_size, kMaxClusterSize), /*is_resident=*/true);
  const bool fits = resident_bytes <= max_shared_bytes;
  const size_t shared_bytes = fits ? resident_bytes : DynamicSharedBytes(0, /*is_resident=*/false);
  if (may_use_clusters &&
      CanRunClusters(FindKernel(/*is_sampled=*/true, fits), shared_bytes, device)) {
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
  if (rule.bias != nullptr) {
    CHECK_EQ(rule.bias->size(), static_cast<size_t>(vocab_size_));
    float* const bias = BiasOf(pinned_.data(), max_slots_, vocab_size_, slot);
    std::ranges::copy(*rule.bias, bias);
    RETURN_IF_ERROR(upload(BiasOf(edits_.data(), max_slots_, vocab_size_, slot), bias,
                           static_cast<size_t>(vocab_size_)));
  }
  SetRule<<<1, 1, 0, handle>>>(reinterpret_cast<SlotRule*>(rules_.data()), slot,
                               MakeSlotRule(rule, tokens));
  return inflight::cuda::LaunchStatus("sampler's rule of a slot");
}

Status DeviceSampler::Sample(const DeviceSampleParams& params, Stream& stream) const {
  if (params.num_rows == 0) return Status::Ok();
  const int chunk_size = ChunkSize(vocab_size_, cluster_size_);
  int id_bits = 1;
  while (vocab_size_ > 1 << id_bits) ++id_bits;
  const SampleKernelParams kernel_params = {
      .sample = params,
      .rules = reinterpret_cast<SlotRule*>(rules_.data()),
      .lists = ListOf(edits_.data(), 0),
      .biases = BiasOf(edits_.data(), max_slots_, vocab_size_, 0),
      .vocab_size = vocab_size_,
      .chunk_size = chunk_size,
      .id_bits = id_bits,
      .is_aligned =
          vocab_size_ % 4 == 0 && reinterpret_cast<uintptr_t>(params.logits) % sizeof(float4) == 0};
  const Launch launch(params.num_rows, cluster_size_,
                      DynamicSharedBytes(chunk_size, row_is_resident_),
                      ops::cuda::AsCuda(stream).handle());
  return inflight::cuda::ToStatus(
      cudaLaunchKernelEx(&launch.config, FindKernel(params.any_row_samples, row_is_resident_),
                         kernel_params),
      "sample");
}

}  // namespace inflight::decoding
