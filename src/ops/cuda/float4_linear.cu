// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/expert_packed.cuh"
#include "ops/cuda/float4_linear.h"
#include "ops/cuda/store_product.cuh"

namespace inflight::ops::cuda {
namespace {

// As of integers (streamed_integers.cc): of more tokens a weight is widened once for all of them.
constexpr int64_t kMostTokensOfCodes = 256;

template <typename T, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kCtas)
    Float4LinearKernel(const ExpertProduct p, const ProductOutput out) {
  extern __shared__ __align__(128) uint8_t shared[];
  BeginOverlapped();
  const int first = static_cast<int>(blockIdx.y) * Tile::kTokens;
  const ExpertPlaces places = {0, first, min(Tile::kTokens, p.num_places - first)};
  const int first_column = static_cast<int>(blockIdx.x) * Tile::kRows;
  PackedSums<T, Tile, false> sums(places.count, typename Tile::Groups(p));
  SumPacked(p, places, first_column, SharedAddress(shared), sums);
  const int row = first_column + sums.warp_row + sums.lane / 4;
#pragma unroll
  for (int r = 0; r < Tile::kRowTiles; ++r) {
    if (first_column + sums.warp_row + 16 * r >= p.width) continue;
#pragma unroll
    for (int t = 0; t < Tile::kTokenTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = sums.warp_token + 8 * t + sums.lane % 4 * 2 + i % 2;
        if (token < places.count)
          StoreProduct(out, first + token, row + 16 * r + i / 2 * 8, sums.sum[r][t][i]);
      }
  }
}

template <typename T, typename Tile>
Status LaunchTile(const ExpertProduct& p, const ProductOutput& out, CudaStream& stream) {
  static SharedMemoryLimit shared_memory;
  RETURN_IF_ERROR(shared_memory.Raise(Float4LinearKernel<T, Tile>, Tile::kSharedBytes, stream));
  const dim3 grid(static_cast<unsigned>((p.width + Tile::kRows - 1) / Tile::kRows),
                  static_cast<unsigned>((p.num_places + Tile::kTokens - 1) / Tile::kTokens));
  return inflight::cuda::ToStatus(
      LaunchOverlapped(Float4LinearKernel<T, Tile>, grid, dim3(Tile::kThreads),
                       Tile::kStages * Tile::StageBytes(typename Tile::Groups(p)), stream.handle(),
                       p, out),
      "float4_linear");
}

template <typename T>
Status LaunchTiles(const ExpertProduct& p, const ProductOutput& out, CudaStream& stream) {
  using Tiles = PackedTiles<Float4Experts>;
  if (p.num_places <= 8) return LaunchTile<T, Tiles::Of8>(p, out, stream);
  if (p.num_places <= 16) return LaunchTile<T, Tiles::Of16>(p, out, stream);
  if (p.num_places <= 32) return LaunchTile<T, Tiles::Of32>(p, out, stream);
  if (p.num_places <= 64) return LaunchTile<T, Tiles::Of64>(p, out, stream);
  return LaunchTile<T, Tiles::Of128>(p, out, stream);
}

}  // namespace

bool Float4LinearCanRun(const GemmParams& p, const Weight& weight) {
  constexpr int64_t kMost = int64_t{1} << 30;
  constexpr int64_t kMostTiles = 65535;  // of a grid's second dimension
  return weight.dtype == DType::kF4E2M1 && weight.layout == WeightLayout::kTensorCore &&
         weight.exponents != nullptr && IsHalf(p.dtype) &&
         (p.y_dtype == p.dtype || p.y_dtype == DType::kF32) && p.n < kMost && p.k < kMost &&
         p.m <= kMostTiles * PackedTiles<Float4Experts>::Of128::kTokens && IsAligned(p.x) &&
         IsAligned(weight.data) && IsAligned(weight.exponents);
}

bool PreferFloat4Linear(const GemmParams& p, const Weight& weight, const CudaStream& stream) {
  return (stream.is_fixed() || p.m <= kMostTokensOfCodes) && Float4LinearCanRun(p, weight);
}

Status Float4Linear(const GemmParams& p, const Weight& weight, CudaStream& stream) {
  if (p.m == 0 || p.n == 0) return Status::Ok();
  if (!Float4LinearCanRun(p, weight))
    return Unimplemented("no product of codes of " + std::string(DTypeName(weight.dtype)) + " " +
                         std::string(WeightLayoutName(weight.layout)) + " weights of [" +
                         std::to_string(p.n) + ", " + std::to_string(p.k) + "] with " +
                         std::string(DTypeName(p.dtype)) + " (float4_linear.h says what it takes)");
  const ExpertProduct product = {.dtype = p.dtype,
                                 .x = p.x,
                                 .w = weight.data,
                                 .k = p.k,
                                 .packed = weight.dtype,
                                 .exponents = weight.exponents,
                                 .width = static_cast<int>(p.n),
                                 .num_experts = 1,
                                 .num_places = static_cast<int>(p.m)};
  const ProductOutput out = OutputOf(p);
  return WithHalf(p.dtype, [&](auto type) {
    return LaunchTiles<typename decltype(type)::type>(product, out, stream);
  });
}

}  // namespace inflight::ops::cuda
