// SPDX-License-Identifier: Apache-2.0
// What adapters of rank 16 add to the linears of Llama-3-8B in a decode step: the kernel before the
// product, the one behind it, the product alone (tuned as at load), and the three in order. "64x4":
// 64 adapters of four rows each.
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "cases.h"
#include "llama_3_8b.h"
#include "ops/cuda/gemm_plans.h"
#include "ops/cuda/kernels.h"

namespace inflight::bench {
namespace {

using ops::LoraDevicePart;
using ops::LoraSite;
using ops::cuda::GemmParams;
using ops::cuda::LoraAddParams;

constexpr int kRank = 16;
constexpr int64_t kNumSums = 8192;  // as of AdapterCache
constexpr int64_t kSumsStride = 64 * ops::kMaxLoraParts;

// A linear, or two side by side, and the outputs of the factors of each.
struct AdaptedLinear {
  const char* name;
  LoraSite site;
  int num_sites;
  int64_t in_features;
  std::vector<int64_t> widths;  // of one site
};

int64_t OutFeatures(const AdaptedLinear& linear) {
  int64_t sum = 0;
  for (const int64_t width : linear.widths) sum += width;
  return sum;
}

template <typename T>
ops::DeviceTensor Upload(Device& device, const std::vector<T>& values) {
  const size_t num_bytes = values.size() * sizeof(T);
  ops::Tensor bytes(DType::kU8, {static_cast<int64_t>(num_bytes)});
  std::memcpy(bytes.view().data, values.data(), num_bytes);
  return {device, bytes};
}

// Adapters of one linear, whose factors rotate, and the rows of a step that have them in turn.
class StepOfAdapters {
 public:
  StepOfAdapters(Device& device, const AdaptedLinear& linear, int num_adapters, int rows_each)
      : factors_(device, DType::kBF16, {num_adapters * ElementsOf(linear)}),
        sums_(device, DType::kF32, {kNumSums, kSumsStride}) {
    const int num_layers = factors_.num_copies();
    std::vector<LoraDevicePart> parts;
    for (int adapter = 0; adapter < num_adapters; ++adapter)
      for (int layer = 0; layer < num_layers; ++layer) {
        const size_t first = parts.size();
        parts.resize(first + ops::kNumLoraSites * ops::kMaxLoraParts);
        AddParts(linear, factors_.At(layer).as<uint16_t>() + adapter * ElementsOf(linear),
                 &parts[first]);
      }
    std::vector<int32_t> order;
    std::vector<ops::LoraTile> tiles;
    for (int adapter = 0; adapter < num_adapters; ++adapter)
      for (int row = 0; row < rows_each; ++row) {
        if (row % ops::kSmallLoraTile == 0)
          tiles.push_back({.adapter = adapter, .first = adapter * rows_each + row});
        ++tiles.back().num;
        order.push_back(row * num_adapters + adapter);
      }
    const auto num_tiles = static_cast<int32_t>(tiles.size());
    tiles.resize(order.size());  // kernels look behind the last one
    parts_ = Upload(device, parts);
    order_ = Upload(device, order);
    tiles_ = Upload(device, tiles);
    num_tiles_ = Upload(device, std::vector<int32_t>{num_tiles});
    lora_ = {.parts = static_cast<const LoraDevicePart*>(parts_.view().data),
             .num_layers = num_layers,
             .order = order_.view().as<const int32_t>(),
             .tiles = static_cast<const ops::LoraTile*>(tiles_.view().data),
             .num_tiles = num_tiles_.view().as<const int32_t>(),
             .tile_tokens = ops::kSmallLoraTile,
             .sums = sums_.view().as<float>(),
             .num_sums = kNumSums,
             .sums_stride = kSumsStride};
  }

  const ops::LoraDevice& lora() const { return lora_; }

 private:
  static int64_t ElementsOf(const AdaptedLinear& linear) {
    int64_t sum = 0;
    for (const int64_t width : linear.widths)
      sum += kRank * (linear.in_features + width) + ops::kLoraPadding;
    return sum * linear.num_sites;
  }

  // The adapter's parts in one layer, from the layer's first on; `factors` is the first A.
  static void AddParts(const AdaptedLinear& linear, const uint16_t* factors,
                       LoraDevicePart* parts) {
    for (int site = 0; site < linear.num_sites; ++site) {
      LoraDevicePart* part = parts + (static_cast<int>(linear.site) + site) * ops::kMaxLoraParts;
      int64_t first_feature = 0;
      for (const int64_t width : linear.widths) {
        *part++ = {.a = factors,
                   .b = factors + kRank * linear.in_features,
                   .rank = kRank,
                   .first_feature = static_cast<int32_t>(first_feature),
                   .num_features = static_cast<int32_t>(width)};
        factors += kRank * (linear.in_features + width) + ops::kLoraPadding;
        first_feature += width;
      }
    }
  }

  Rotation factors_;
  ops::DeviceTensor sums_, parts_, order_, tiles_, num_tiles_;
  ops::LoraDevice lora_;
};

void LoraCase(CudaBench& bench, const AdaptedLinear& linear, int num_adapters, int rows_each) {
  const int64_t m = int64_t{num_adapters} * rows_each;
  const int64_t k = linear.in_features;
  const int64_t n = linear.num_sites * OutFeatures(linear);
  const StepOfAdapters step(bench.device(), linear, num_adapters, rows_each);
  const Rotation w(bench.device(), DType::kBF16, {n, k});
  const Rotation x(bench.device(), DType::kBF16, {m, k});
  const Rotation y(bench.device(), DType::kBF16, {m, n});
  const auto product = [&](int call) {
    return GemmParams{
        .x = x.At(call).data, .w = w.At(call).data, .y = y.At(call).data, .m = m, .n = n, .k = k};
  };
  if (bench.Wants("lora_product") || bench.Wants("lora_in_order"))
    ops::Must(bench.stream().gemm_plans().TuneRows(product(0), w.num_copies(), bench.stream()));
  const auto adapters = [&](int call) {
    return LoraAddParams{.lora = step.lora(),
                         .layer = call % step.lora().num_layers,
                         .first_site = linear.site,
                         .num_sites = linear.num_sites,
                         .x = x.At(call).data,
                         .in_features = k,
                         .z = y.At(call).data,
                         .y = y.At(call).data,
                         .y_stride = n,
                         .out_features = n / linear.num_sites,
                         .num_tokens = static_cast<int>(m)};
  };
  const auto num_factors =
      static_cast<double>(linear.num_sites) * static_cast<double>(linear.widths.size());
  const double a_bytes = 2.0 * num_adapters * kRank * static_cast<double>(k) * num_factors;
  const double b_bytes = 2.0 * num_adapters * kRank * static_cast<double>(n);
  const auto x_bytes = static_cast<double>(2 * m * k);
  const auto y_bytes = static_cast<double>(2 * m * n);
  const auto w_bytes = static_cast<double>(2 * n * k);
  const double flop = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
  TimedCase timed = {.shape = fmt::format("{}x{} {}", num_adapters, rows_each, linear.name),
                     .dtype = DType::kBF16};
  const auto time = [&](const char* kernel, double bytes, double num_flop, const auto& launch) {
    timed.kernel = kernel;
    timed.bytes = bytes;
    timed.flop = num_flop;
    timed.launch = launch;
    bench.Time(timed);
  };
  time("lora_shrink", a_bytes + x_bytes, 0,
       [&](int call) { return LoraShrink(adapters(call), bench.stream()); });
  time("lora_expand", b_bytes + 2 * y_bytes, 0,
       [&](int call) { return LoraExpand(adapters(call), bench.stream()); });
  time("lora_product", w_bytes + x_bytes + y_bytes, flop,
       [&](int call) { return Gemm(product(call), bench.stream()); });
  time("lora_in_order", w_bytes + a_bytes + b_bytes + x_bytes + y_bytes, flop,
       [&](int call) -> Status {
         RETURN_IF_ERROR(LoraShrink(adapters(call), bench.stream()));
         RETURN_IF_ERROR(Gemm(product(call), bench.stream()));
         return LoraExpand(adapters(call), bench.stream());
       });
}

}  // namespace

void LoraCases(CudaBench& bench) {
  if (!bench.Wants("lora_shrink") && !bench.Wants("lora_expand") && !bench.Wants("lora_product") &&
      !bench.Wants("lora_in_order"))
    return;
  constexpr int64_t kHidden = kShape.hidden_size;
  constexpr int64_t kInner = kShape.intermediate_size;
  constexpr int64_t kKeys = int64_t{kShape.num_kv_heads} * kShape.head_dim;
  const AdaptedLinear linears[] = {{"qkv", LoraSite::kQkv, 1, kHidden, {kHidden, kKeys, kKeys}},
                                   {"o", LoraSite::kDense, 1, kHidden, {kHidden}},
                                   {"gate_up", LoraSite::kFc, 2, kHidden, {kInner}},
                                   {"down", LoraSite::kProj, 1, kInner, {kHidden}}};
  for (const auto& [num_adapters, rows_each] : {std::pair{64, 4}, {64, 1}, {8, 32}, {8, 8}})
    for (const AdaptedLinear& linear : linears) LoraCase(bench, linear, num_adapters, rows_each);
}

}  // namespace inflight::bench
