// SPDX-License-Identifier: Apache-2.0
// A CTA has a panel of 64 rows: threads take a slab each, and scales turn in shared memory.
#include <string>

#include "base/check.h"
#include "base/status_macros.h"
#include "ops/tensor_core_order.h"
#include "tensor/cuda_status.h"

namespace inflight::ops {
namespace {

constexpr int kThreads = 256;
// Scales of a panel that a CTA turns at a time; 16 KiB and a column of padding.
constexpr int kTurnGroups = 64;

struct Args {
  uint8_t* codes;     // [n][row_slabs][64]
  int64_t row_slabs;  // of float4 units of 16 bytes
};

// S: of scales, or of exponents.
template <typename S>
struct TurnArgs {
  const S* scales;  // [n / 64][64][num_groups]
  S* turned;        // [n / 64][num_groups][64]
  int num_groups;
};

template <int kBits>
__device__ void OrderSlab(uint8_t* slab) {
  auto* const vectors = reinterpret_cast<uint4*>(slab);
  uint32_t words[16];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 v = vectors[i];
    words[4 * i] = v.x, words[4 * i + 1] = v.y, words[4 * i + 2] = v.z, words[4 * i + 3] = v.w;
  }
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    uint32_t out[4] = {};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (kBits == 4) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // elements 32 w + 8 i + 2 q and the one behind
          const uint32_t two = words[4 * w + i] >> (8 * q);
          out[w] |= (two & 0xfU) << (4 * i) | (two >> 4 & 0xfU) << (4 * i + 16);
        }
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {  // elements 16 w + 8 i + 2 q and the one behind
          const uint32_t two = words[4 * w + 2 * i + q / 2] >> (16 * (q % 2));
          out[w] |= (two & 0xffU) << (8 * i) | (two >> 8 & 0xffU) << (8 * i + 16);
        }
      }
    }
    vectors[q] = make_uint4(out[0], out[1], out[2], out[3]);
  }
}

template <int kBits>
__global__ void __launch_bounds__(kThreads) OrderKernel(const Args args) {
  const int64_t panel = blockIdx.x;
  const int64_t num_slabs = kScalePanelRows * args.row_slabs;
  for (int64_t i = threadIdx.x; i < num_slabs; i += kThreads)
    OrderSlab<kBits>(args.codes + (panel * num_slabs + i) * kSlabBytes);
}

__global__ void __launch_bounds__(kThreads) OrderFloat4Kernel(const Args args) {
  const int64_t num_units = kScalePanelRows * args.row_slabs;
  auto* const units = reinterpret_cast<uint4*>(args.codes) + int64_t{blockIdx.x} * num_units;
  for (int64_t i = threadIdx.x; i < num_units; i += kThreads) {
    const uint4 v = units[i];
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    units[i] = make_uint4(OrderedFloat4(words, 0), OrderedFloat4(words, 1), OrderedFloat4(words, 2),
                          OrderedFloat4(words, 3));
  }
}

// Of scales, or offsets, into memory of their own.
template <typename S>
__global__ void __launch_bounds__(kThreads) TurnKernel(const TurnArgs<S> args) {
  __shared__ S tile[kTurnGroups][kScalePanelRows + 1];
  const int64_t panel = int64_t{blockIdx.x} * kScalePanelRows * args.num_groups;
  for (int begin = 0; begin < args.num_groups; begin += kTurnGroups) {
    const int count = min(kTurnGroups, args.num_groups - begin);
    for (int i = static_cast<int>(threadIdx.x); i < kScalePanelRows * count; i += kThreads)
      tile[i % count][i / count] =
          args.scales[panel + int64_t{i / count} * args.num_groups + begin + i % count];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kScalePanelRows * count; i += kThreads)
      args.turned[panel + int64_t{begin} * kScalePanelRows + i] =
          tile[i / kScalePanelRows][i % kScalePanelRows];
    __syncthreads();
  }
}

// Memory for as long as the scales of one weight turn.
class Scratch {
 public:
  ~Scratch() { cudaFree(data_); }
  Status Allocate(size_t num_bytes) {
    return cuda::ToStatus(cudaMalloc(&data_, num_bytes), "scales of a weight");
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

template <typename S>
size_t BytesOfScales(const Weight& weight) {
  return static_cast<size_t>(weight.out_features * weight.num_groups()) * sizeof(S);
}

template <typename S>
Status Turn(const Weight& weight, const S* values, const Scratch& scratch) {
  auto* const mine = const_cast<S*>(values);  // the weight's owner gave them to be turned
  const TurnArgs<S> args = {.scales = mine,
                            .turned = static_cast<S*>(scratch.data()),
                            .num_groups = static_cast<int>(weight.num_groups())};
  TurnKernel<S><<<static_cast<unsigned>(weight.out_features / kScalePanelRows), kThreads>>>(args);
  RETURN_IF_ERROR(cuda::LaunchStatus("order_for_tensor_cores"));
  return cuda::ToStatus(
      cudaMemcpyAsync(mine, scratch.data(), BytesOfScales<S>(weight), cudaMemcpyDefault, nullptr),
      "order_for_tensor_cores");
}

bool CanOrderFloat4(const Weight& weight) {
  return weight.group_size == kFloat4Unit && weight.exponents != nullptr &&
         weight.out_features % kScalePanelRows == 0 && weight.in_features % (2 * kFloat4Unit) == 0;
}

void OrderCodes(const Weight& weight) {
  const int64_t unit =
      weight.dtype == DType::kF4E2M1 ? kFloat4Unit : SlabElements(CodeBits(weight));
  const Args args = {
      .codes = static_cast<uint8_t*>(const_cast<void*>(weight.data)),  // as of scales
      .row_slabs = weight.in_features / unit};
  const auto num_panels = static_cast<unsigned>(weight.out_features / kScalePanelRows);
  if (weight.dtype == DType::kF4E2M1)
    OrderFloat4Kernel<<<num_panels, kThreads>>>(args);
  else if (weight.dtype == DType::kI4)
    OrderKernel<4><<<num_panels, kThreads>>>(args);
  else
    OrderKernel<8><<<num_panels, kThreads>>>(args);
}

}  // namespace

bool CanOrderForTensorCores(const Weight& weight) {
  if (weight.layout != WeightLayout::kRowMajor) return false;
  if (weight.dtype == DType::kF4E2M1) return CanOrderFloat4(weight);
  const int64_t slab = SlabElements(CodeBits(weight));
  if (IsGroupedFp8(weight) ? weight.group_size % slab != 0
                           : weight.dtype != DType::kI8 && weight.dtype != DType::kI4)
    return false;
  if (weight.out_features % kScalePanelRows != 0 || weight.in_features % slab != 0) return false;
  const int64_t group = weight.group_size;
  return group == 0 || group % slab == 0 || (slab % group == 0 && group % kGroupStep == 0);
}

Status OrderForTensorCores(Device& device, Weight* weight) {
  CHECK(CanOrderForTensorCores(*weight));
  cudaSetDevice(device.cuda().index);
  OrderCodes(*weight);
  RETURN_IF_ERROR(cuda::LaunchStatus("order_for_tensor_cores"));
  Scratch scratch;
  if (weight->exponents != nullptr) {
    RETURN_IF_ERROR(scratch.Allocate(BytesOfScales<uint8_t>(*weight)));
    RETURN_IF_ERROR(Turn(*weight, weight->exponents, scratch));
  } else if (weight->group_size != 0) {
    RETURN_IF_ERROR(scratch.Allocate(BytesOfScales<float>(*weight)));
    RETURN_IF_ERROR(Turn(*weight, weight->scales, scratch));
    if (weight->offsets != nullptr) RETURN_IF_ERROR(Turn(*weight, weight->offsets, scratch));
  }
  weight->layout = WeightLayout::kTensorCore;
  return cuda::ToStatus(cudaStreamSynchronize(nullptr), "order_for_tensor_cores");
}

}  // namespace inflight::ops
