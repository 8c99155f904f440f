// SPDX-License-Identifier: Apache-2.0
// Adapters of low rank (ops/lora.h): a CTA for each tile of tokens that have one adapter, whose
// sums stand in memory between the two kernels. Tokens without an adapter are in no tile and keep
// their bits.
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/float32/activate.cuh"
#include "ops/cuda/float32/dots.cuh"
#include "ops/cuda/float32/kernels.h"
#include "ops/cuda/lora_params.h"
#include "ops/cuda/overlap.cuh"
#include "ops/lora.h"

namespace inflight::ops::cuda::float32 {
namespace {

constexpr int kTileThreads = 256;
constexpr int kTileWarps = kTileThreads / kWarp;
constexpr int kMaxSites = 2;

// Calls use(part, first_column, first_sum) for each part that the adapter has at the launch's
// sites: the columns of y that it adds to begin at the one, its rows among the token's sums at the
// other.
template <typename Use>
__device__ void ForEachPart(const LoraAddParams& p, int adapter, const Use& use) {
  const int64_t layer = int64_t{adapter} * p.lora.num_layers + p.layer;
  const LoraDevicePart* const parts =
      p.lora.parts + (layer * kNumLoraSites + static_cast<int>(p.first_site)) * kMaxLoraParts;
  int first_sum = 0;
  for (int i = 0; i < p.num_sites * kMaxLoraParts; ++i) {
    if (parts[i].num_features == 0) continue;
    use(parts[i], i / kMaxLoraParts * p.out_features + parts[i].first_feature, first_sum);
    first_sum += parts[i].rank;
  }
}

// sums[token][row] = x[token] A[row]^T; a warp has one of them at a time.
__global__ void __launch_bounds__(kTileThreads)
    ShrinkKernel(const __grid_constant__ LoraAddParams p) {
  BeginOverlapped();
  const auto own = static_cast<int>(blockIdx.x);
  if (own >= *p.lora.num_tiles) return;
  const LoraTile tile = p.lora.tiles[own];
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  ForEachPart(p, tile.adapter, [&](const LoraDevicePart& part, int64_t, int first_sum) {
    const auto* const a = static_cast<const float*>(part.a);
    for (int i = warp; i < tile.num * part.rank; i += kTileWarps) {
      const int entry = tile.first + i / part.rank;
      const int row = i % part.rank;
      const float* const x[1] = {static_cast<const float*>(p.x) +
                                 p.lora.order[entry] * p.in_features};
      const float* const w[1] = {a + row * LoraStride(p.in_features)};
      float sum[1][1];
      Dots<1, 1, /*kIsAligned=*/false>(x, w, p.in_features, sum);
      if (threadIdx.x % kWarp == 0)
        p.lora.sums[entry * p.lora.sums_stride + first_sum + row] = sum[0][0];
    }
  });
}

// y[token] = act(z[token] + sums[token] B + bias), of columns that a part adds to. CTA (t, c): tile
// t, columns from kTileThreads * c on, one of a thread.
__global__ void __launch_bounds__(kTileThreads)
    ExpandKernel(const __grid_constant__ LoraAddParams p) {
  BeginOverlapped();
  const auto own = static_cast<int>(blockIdx.x);
  const int64_t column = int64_t{blockIdx.y} * kTileThreads + threadIdx.x;
  if (own >= *p.lora.num_tiles || column >= p.num_sites * p.out_features) return;
  const LoraTile tile = p.lora.tiles[own];
  for (int entry = tile.first; entry < tile.first + tile.num; ++entry) {
    const float* const sums = p.lora.sums + entry * p.lora.sums_stride;
    bool is_changed = false;
    float added = 0;
    ForEachPart(p, tile.adapter, [&](const LoraDevicePart& part, int64_t first, int first_sum) {
      const int64_t at = column - first;
      if (at < 0 || at >= part.num_features) return;
      is_changed = true;
      const auto* const b = static_cast<const float*>(part.b) + at;
      if (part.rank == 0) added += b[0];
      const int64_t stride = LoraStride(part.num_features);
      for (int r = 0; r < part.rank; ++r) added = fmaf(sums[first_sum + r], b[r * stride], added);
    });
    if (!is_changed) continue;
    const int64_t at = p.lora.order[entry] * p.y_stride + column;
    float y = static_cast<const float*>(p.z)[at] + added;
    if (p.bias != nullptr) y += p.bias[column];
    static_cast<float*>(p.y)[at] = Activate(p.activation, y);
  }
}

}  // namespace

Adapters::Adapters(const LoraTerm& lora, LoraSite first_site, int num_sites, const TensorView& x,
                   const TensorView& y)
    : has_any_(lora.batch != nullptr) {
  if (has_any_) params_ = LoraParamsOf(lora, first_site, num_sites, x, y);
}

void Adapters::ActivateInto(const TensorView& y, const float* bias, ActivationKind activation) {
  params_.y = y.data;
  params_.bias = bias;
  params_.activation = activation;
}

Status Adapters::Add(CudaStream& stream) const {
  const LoraAddParams& p = params_;
  if (!has_any_ || p.num_tokens == 0) return Status::Ok();
  const bool has_room = p.lora.sums == nullptr || p.num_tokens <= p.lora.num_sums;
  if (p.num_sites > kMaxSites || !has_room)
    return InvalidArgument("lora: got " + std::to_string(p.num_tokens) + " tokens and " +
                           std::to_string(p.num_sites) + " sites, needed at most " +
                           std::to_string(p.lora.num_sums) + " and " + std::to_string(kMaxSites));
  const auto tiles = static_cast<unsigned>(p.num_tokens);  // at most: of a token each
  const int64_t columns = p.num_sites * p.out_features;
  LaunchOverlapped(ShrinkKernel, tiles, kTileThreads, 0, stream.handle(), p);
  RETURN_IF_ERROR(inflight::cuda::LaunchStatus("float32_lora_shrink"));
  LaunchOverlapped(ExpandKernel,
                   dim3(tiles, static_cast<unsigned>((columns + kTileThreads - 1) / kTileThreads)),
                   kTileThreads, 0, stream.handle(), p);
  return inflight::cuda::LaunchStatus("float32_lora_expand");
}

}  // namespace inflight::ops::cuda::float32
