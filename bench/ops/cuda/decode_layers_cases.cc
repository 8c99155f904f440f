// SPDX-License-Identifier: Apache-2.0
// All layers of a decode step in one kernel, by the form of their weights, rows and context.
#include <fmt/format.h>

#include <vector>

#include "cases.h"
#include "llama_3_8b.h"
#include "ops/cuda/decode_layers.h"

namespace inflight::bench {
namespace {

using ops::DeviceTensor;
using ops::Tensor;

constexpr int64_t kHidden = kShape.hidden_size, kInner = kShape.intermediate_size;
constexpr int64_t kQWidth = int64_t{kShape.num_heads} * kShape.head_dim;
constexpr int64_t kKvWidth = int64_t{kShape.num_kv_heads} * kShape.head_dim;
constexpr int kBlockSize = 64;
constexpr int kMaxRows = ops::cuda::kMaxDecodeLayersRows;

// The weights of one of a layer's products, which layers have in turns.
struct Product {
  Rotation rows, scales;
  int64_t n, k;

  Product(Device& device, DType dtype, int64_t out_features, int64_t in_features)
      : rows(device, dtype, {out_features, in_features}),
        scales(device, DType::kF32, {out_features}),
        n(out_features),
        k(in_features) {}

  ops::Weight At(int layer, DType dtype) const {
    return {.data = rows.At(layer).data,
            .dtype = dtype,
            .layout = ops::WeightLayout::kTensorCore,
            .out_features = n,
            .in_features = k,
            .scales = scales.At(layer).as<const float>()};
  }
};

void FormCases(CudaBench& bench, DType dtype) {
  Device& device = bench.device();
  const Product qkv(device, dtype, kQWidth + 2 * kKvWidth, kHidden);
  const Product dense(device, dtype, kHidden, kQWidth);
  const Product fc(device, dtype, kInner, kHidden), gate(device, dtype, kInner, kHidden);
  const Product proj(device, dtype, kHidden, kInner);
  const Rotation norm(device, DType::kF32, {kHidden});
  std::vector<ops::DecodeLayer> layers;
  for (int i = 0; i < kNumLayers; ++i)
    layers.push_back({.input_norm = norm.At(i),
                      .post_norm = norm.At(i),
                      .qkv = qkv.At(i, dtype),
                      .dense = dense.At(i, dtype),
                      .fc = fc.At(i, dtype),
                      .gate = gate.At(i, dtype),
                      .proj = proj.At(i, dtype)});
  const auto buffer = [&](Shape shape) { return DeviceTensor(device, DType::kBF16, shape); };
  const DeviceTensor residual = buffer({kMaxRows, kHidden}), y = buffer({kMaxRows, kHidden});
  const DeviceTensor q = buffer({kMaxRows, kQWidth + 2 * kKvWidth});
  const DeviceTensor attention = buffer({kMaxRows, kQWidth}), inner = buffer({kMaxRows, kInner});
  for (const int context : {256, 2048, 16384}) {
    const DeviceTensor cos_sin(device, DType::kF32, {context, 2, kShape.head_dim / 2});
    const int blocks = context / kBlockSize;
    const DeviceTensor cache(device, DType::kBF16,
                             {int64_t{kNumLayers} * kMaxRows * blocks, 2 * kKvWidth * kBlockSize});
    for (const int rows : {1, 2, 4}) {
      std::vector<int> tables(static_cast<size_t>(rows * blocks)), lengths, positions;
      std::vector<int64_t> slots;
      for (size_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<int>(i);
      for (int r = 0; r < rows; ++r) {
        lengths.push_back(context);
        positions.push_back(context - 1);
        slots.push_back(int64_t{r + 1} * context - 1);
      }
      const DeviceTensor of_tables(device, Tensor::Int32(tables));
      const DeviceTensor of_lengths(device, Tensor::Int32(lengths));
      const DeviceTensor of_positions(device, Tensor::Int32(positions));
      const DeviceTensor of_slots(device, Tensor::Int64(slots));
      TensorView table_view = of_tables.view();
      table_view.shape = {rows, blocks};
      ops::DecodeLayersParams params = {
          .residual = residual.view(),
          .layers = layers,
          .final_norm = norm.At(0),
          .norm_eps = 1e-5F,
          .num_heads = kShape.num_heads,
          .attention_scale = 0.088F,
          .rope = {ops::RopeStyle::kNeox, kShape.head_dim, cos_sin.view()},
          .batch = {.num_rows = rows,
                    .num_tokens = rows,
                    .seq_lens_kv = of_lengths.view(),
                    .positions = of_positions.view(),
                    .slot_mapping = of_slots.view(),
                    .block_tables = table_view,
                    .num_decode_rows = rows},
          .kv = {.data = cache.view().as<std::byte>(),
                 .dtype = DType::kBF16,
                 .num_layers = kNumLayers,
                 .num_blocks = int64_t{kMaxRows} * blocks,
                 .num_kv_heads = kShape.num_kv_heads,
                 .block_size = kBlockSize,
                 .head_dim = kShape.head_dim},
          .q = q.view(),
          .attention = attention.view(),
          .inner = inner.view(),
          .y = y.view()};
      if (ops::cuda::MostDecodeLayersRows(params, bench.stream()) < rows) continue;
      const int64_t weights =
          (kQWidth + 2 * kKvWidth) * kHidden + kHidden * kQWidth + 3 * kHidden * kInner;
      bench.Time({.kernel = "decode_layers",
                  .shape = fmt::format("{} rows {} context {}", DTypeName(dtype), rows, context),
                  .dtype = DType::kBF16,
                  .bytes = kNumLayers * (static_cast<double>(BytesOf(dtype, weights)) +
                                         4.0 * static_cast<double>(rows * context * kKvWidth)),
                  .flop = 2.0 * kNumLayers * rows * static_cast<double>(weights),
                  .launch = [&](int) { return ops::cuda::DecodeLayers(params, bench.stream()); }});
    }
  }
}

}  // namespace

void DecodeLayersCases(CudaBench& bench) {
  if (!bench.Wants("decode_layers")) return;
  for (const DType dtype : {DType::kI8, DType::kI4}) FormCases(bench, dtype);
}

}  // namespace inflight::bench
