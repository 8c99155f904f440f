// SPDX-License-Identifier: Apache-2.0
// Four numbers a thread, from one counter.
#include "ops/cuda/vector.cuh"
#include "ops/random.h"
#include "tensor/cuda_status.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = int64_t{1} << 20;

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};

// Whole vectors where it can: `data` may be host memory behind a bus.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    FillUniformKernel(T* data, int64_t n, float bound, uint64_t stream) {
  const int64_t stride = int64_t{gridDim.x} * kThreads * 4;
  for (int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4; first < n;
       first += stride) {
    Four<T> four;
    for (int j = 0; j < 4; ++j) {
      const float value = UniformAt(stream, static_cast<uint64_t>(first + j), bound);
      if constexpr (std::is_same_v<T, int8_t>)
        four.values[j] = static_cast<int8_t>(floorf(value));
      else
        four.values[j] = cuda::FromFloat<T>(value);
    }
    if (first + 4 <= n)
      *reinterpret_cast<Four<T>*>(data + first) = four;
    else
      for (int j = 0; first + j < n; ++j) data[first + j] = four.values[j];
  }
}

// A byte of two numbers a thread.
__global__ void __launch_bounds__(kThreads)
    FillInt4Kernel(uint8_t* data, int64_t num_bytes, float bound, uint64_t stream) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < num_bytes; i += stride) {
    const auto code = [&](int64_t at) {
      return static_cast<int>(floorf(UniformAt(stream, static_cast<uint64_t>(at), bound)));
    };
    data[i] = PackInt4(code(2 * i), code(2 * i + 1));
  }
}

Status LaunchInt4(const FillUniformParams& p, float bound) {
  const int64_t num_bytes = p.n / 2;
  const int64_t ctas = std::min((num_bytes + kThreads - 1) / kThreads, kMaxCtas);
  FillInt4Kernel<<<static_cast<unsigned>(ctas), kThreads>>>(static_cast<uint8_t*>(p.data),
                                                            num_bytes, bound, p.stream);
  return inflight::cuda::LaunchStatus("fill_uniform");
}

template <typename T>
Status Launch(const FillUniformParams& p) {
  const int64_t ctas = std::min((p.n + 4 * kThreads - 1) / (4 * kThreads), kMaxCtas);
  FillUniformKernel<<<static_cast<unsigned>(ctas), kThreads>>>(static_cast<T*>(p.data), p.n,
                                                               p.bound, p.stream);
  return inflight::cuda::LaunchStatus("fill_uniform");
}

}  // namespace

Status FillUniformOnGpu(const FillUniformParams& p, Device& device) {
  if (p.n == 0) return Status::Ok();
  cudaSetDevice(device.cuda().index);
  switch (p.dtype) {
    case DType::kF32:
      return Launch<float>(p);
    case DType::kF16:
      return Launch<__half>(p);
    case DType::kBF16:
      return Launch<__nv_bfloat16>(p);
    case DType::kF8E4M3:
      return Launch<cuda::Fp8>(p);
    case DType::kI8:
      return Launch<int8_t>(p);
    case DType::kI4:
      return LaunchInt4(p, p.bound);
    case DType::kF4E2M1:  // of all codes
      return LaunchInt4(p, 8.0F);
    default:
      return InvalidArgument("data: a float dtype, i8, i4, f4e2m1 or f8e4m3 is needed");
  }
}

}  // namespace inflight::ops
