// SPDX-License-Identifier: Apache-2.0
// What stands between the products of a layer, in the shapes of Llama-3-8B.
#include <fmt/format.h>

#include "cases.h"
#include "llama_3_8b.h"
#include "ops/cuda/kernels.h"

namespace inflight::bench {
namespace {

constexpr int64_t kHidden = kShape.hidden_size;
constexpr int64_t kInner = kShape.intermediate_size;
constexpr int kHeads = kShape.num_heads;
constexpr int kKvHeads = kShape.num_kv_heads;
constexpr int kHeadDim = kShape.head_dim;
constexpr auto kModel = kShape.dtype;
constexpr int64_t kTokens[] = {1, 8, 64, 256, 2048, 8192};

std::string Extents(int64_t rows, int64_t columns) { return fmt::format("{}x{}", rows, columns); }

void AddNormCases(CudaBench& bench) {
  if (!bench.Wants("add_norm")) return;
  for (const bool is_fp8 : {false, true})
    for (const int64_t tokens : kTokens) {
      const DType y_dtype = is_fp8 ? DType::kF8E4M3 : kModel;
      const Rotation residual(bench.device(), kModel, {tokens, kHidden});
      const Rotation delta(bench.device(), kModel, {tokens, kHidden});
      const Rotation y(bench.device(), y_dtype, {tokens, kHidden});
      const Rotation scales(bench.device(), DType::kF32, {tokens});
      const Rotation weight(bench.device(), DType::kF32, {kHidden});
      const double elements = static_cast<double>(tokens) * kHidden;
      bench.Time(
          {.kernel = is_fp8 ? "add_norm_raw_to_fp8" : "add_norm",
           .shape = Extents(tokens, kHidden),
           .dtype = y_dtype,
           .bytes = elements * (is_fp8 ? 7 : 8),
           .launch = [&](int call) {
             ops::AddNormParams params = {.residual = residual.At(call),
                                          .delta = delta.At(call),
                                          .norm = {.weight = weight.At(call)},
                                          .y = y.At(call)};
             if (is_fp8) {
               params.y_scales = scales.At(call);
               params.delta_scales = {scales.At(call + 1), weight.At(call + 1).as<const float>()};
             }
             return ops::cuda::AddNorm(params, bench.stream());
           }});
    }
}

void QuantizeCases(CudaBench& bench) {
  if (!bench.Wants("quantize")) return;
  for (const int64_t tokens : kTokens) {
    const Rotation x(bench.device(), kModel, {tokens, kHidden});
    const Rotation y(bench.device(), DType::kF8E4M3, {tokens, kHidden});
    const Rotation scales(bench.device(), DType::kF32, {tokens});
    bench.Time({.kernel = "quantize",
                .shape = Extents(tokens, kHidden),
                .dtype = DType::kF8E4M3,
                .bytes = static_cast<double>(tokens) * kHidden * 3,
                .launch = [&](int call) {
                  return ops::cuda::Quantize(
                      {.x = x.At(call), .y = y.At(call), .scales = scales.At(call)},
                      bench.stream());
                }});
  }
}

void GateCases(CudaBench& bench) {
  if (!bench.Wants("gate")) return;
  for (const bool is_fp8 : {false, true})
    for (const int64_t tokens : kTokens) {
      const DType y_dtype = is_fp8 ? DType::kF8E4M3 : kModel;
      const Rotation gate_up(bench.device(), kModel, {tokens, 2 * kInner});
      const Rotation y(bench.device(), y_dtype, {tokens, kInner});
      const Rotation scales(bench.device(), DType::kF32, {tokens});
      const Rotation features(bench.device(), DType::kF32, {2 * kInner});
      bench.Time({.kernel = is_fp8 ? "gate_raw_to_fp8" : "gate",
                  .shape = Extents(tokens, kInner),
                  .dtype = y_dtype,
                  .bytes = static_cast<double>(tokens) * kInner * (is_fp8 ? 5 : 6),
                  .launch = [&](int call) {
                    ops::cuda::GateParams params = {.gate_up = gate_up.At(call).data,
                                                    .dtype = kModel,
                                                    .num_tokens = tokens,
                                                    .n = kInner,
                                                    .y = y.At(call)};
                    if (is_fp8) {
                      params.y_scales = scales.At(call);
                      params.token_scales = scales.At(call + 1).as<const float>();
                      params.gate_scales = features.At(call).as<const float>();
                      params.up_scales = params.gate_scales + kInner;
                    }
                    return ops::cuda::Gate(params, bench.stream());
                  }});
    }
}

void RopeKvCases(CudaBench& bench) {
  if (!bench.Wants("rope_kv")) return;
  constexpr int kBlockSize = 64;
  constexpr int64_t kMaxSeqLen = 8192;
  constexpr int64_t kWidth = int64_t{kHeads + 2 * kKvHeads} * kHeadDim;
  for (const bool is_fp8 : {false, true})
    for (const int64_t tokens : kTokens) {
      const DType kv_dtype = is_fp8 ? DType::kF8E4M3 : kModel;
      const int64_t num_blocks = (tokens + kBlockSize - 1) / kBlockSize;
      const Rotation rows(bench.device(), kModel, {tokens, kWidth});
      const Rotation pool(bench.device(), kv_dtype,
                          {num_blocks * kBlockSize, 2 * kKvHeads, kHeadDim});
      const Rotation cos_sin(bench.device(), DType::kF32, {kMaxSeqLen, 2, kHeadDim / 2});
      const Rotation token_scales(bench.device(), DType::kF32, {tokens});
      const Rotation feature_scales(bench.device(), DType::kF32, {kWidth});
      std::vector<int> position_values;
      std::vector<int64_t> slot_values;
      for (int64_t t = 0; t < tokens; ++t) {
        position_values.push_back(static_cast<int>(t * 31 % kMaxSeqLen));
        slot_values.push_back(t);
      }
      const ops::DeviceTensor positions(bench.device(), ops::Tensor::Int32(position_values));
      const ops::DeviceTensor slots(bench.device(), ops::Tensor::Int64(slot_values));
      const double kv_bytes = 2.0 * kKvHeads * kHeadDim * (is_fp8 ? 1 : 2);
      const double row_bytes = 2.0 * kWidth + 2.0 * kHeads * kHeadDim + kv_bytes;
      bench.Time({.kernel = is_fp8 ? "rope_kv_raw" : "rope_kv",
                  .shape = fmt::format("{}x{}+2x{}x{}", tokens, kHeads, kKvHeads, kHeadDim),
                  .dtype = kv_dtype,
                  .bytes = static_cast<double>(tokens) * row_bytes,
                  .launch = [&](int call) {
                    ops::QkvRopeKvParams params = {.num_heads = kHeads,
                                                   .rope = {.style = ops::RopeStyle::kNeox,
                                                            .rotary_dim = kHeadDim,
                                                            .cos_sin = cos_sin.At(0)},
                                                   .kv = {.data = pool.At(call).as<std::byte>(),
                                                          .dtype = kv_dtype,
                                                          .num_layers = 1,
                                                          .num_blocks = num_blocks,
                                                          .num_kv_heads = kKvHeads,
                                                          .block_size = kBlockSize,
                                                          .head_dim = kHeadDim},
                                                   .workspace = rows.At(call),
                                                   .q = rows.At(call),
                                                   .q_stride = kWidth};
                    params.batch.num_tokens = static_cast<int>(tokens);
                    params.batch.positions = positions.view();
                    params.batch.slot_mapping = slots.view();
                    params.q.shape = {tokens, kHeads, kHeadDim};
                    ops::PendingScales pending;
                    if (is_fp8)
                      pending = {token_scales.At(call), feature_scales.At(call).as<const float>()};
                    return ops::cuda::RopeKv(params, pending, bench.stream());
                  }});
    }
}

void EmbedCases(CudaBench& bench) {
  if (!bench.Wants("embed")) return;
  constexpr int64_t kVocabSize = 32000;  // of Llama-2: 262 MB
  const Rotation table(bench.device(), kModel, {kVocabSize, kHidden});
  for (const int64_t tokens : kTokens) {
    const Rotation y(bench.device(), kModel, {tokens, kHidden});
    std::vector<int> id_values;
    for (int64_t t = 0; t < tokens; ++t)
      id_values.push_back(static_cast<int>(t * 7919 % kVocabSize));
    const ops::DeviceTensor ids(bench.device(), ops::Tensor::Int32(id_values));
    bench.Time({.kernel = "embed",
                .shape = Extents(tokens, kHidden),
                .dtype = kModel,
                .bytes = static_cast<double>(tokens) * kHidden * 4,
                .launch = [&](int call) {
                  return ops::cuda::Embed({.ids = ids.view(),
                                           .table = {.data = table.At(0).data,
                                                     .dtype = kModel,
                                                     .out_features = kVocabSize,
                                                     .in_features = kHidden},
                                           .y = y.At(call)},
                                          bench.stream());
                }});
  }
}

void EpilogueCases(CudaBench& bench) {
  if (!bench.Wants("epilogue")) return;
  for (const int64_t tokens : kTokens) {
    const Rotation y(bench.device(), kModel, {tokens, kInner});
    const Rotation bias(bench.device(), DType::kF32, {kInner});
    bench.Time({.kernel = "epilogue_bias_gelu",
                .shape = Extents(tokens, kInner),
                .dtype = kModel,
                .bytes = static_cast<double>(tokens) * kInner * 4,
                .launch = [&](int call) {
                  return ops::cuda::Epilogue({.y = y.At(call).data,
                                              .m = tokens,
                                              .n = kInner,
                                              .bias = bias.At(call).as<const float>(),
                                              .activation = ops::ActivationKind::kGeluTanh},
                                             bench.stream());
                }});
  }
}

void GatherRowsCases(CudaBench& bench) {
  if (!bench.Wants("gather_rows")) return;
  for (const int64_t rows : {8, 256}) {
    const Rotation x(bench.device(), kModel, {2048, kHidden});
    const Rotation out(bench.device(), kModel, {rows, kHidden});
    std::vector<int> row_values;
    for (int64_t r = 0; r < rows; ++r) row_values.push_back(static_cast<int>(r * 601 % 2048));
    const ops::DeviceTensor wanted(bench.device(), ops::Tensor::Int32(row_values));
    bench.Time({.kernel = "gather_rows",
                .shape = Extents(rows, kHidden),
                .dtype = kModel,
                .bytes = static_cast<double>(rows) * kHidden * 4,
                .launch = [&](int call) {
                  return ops::cuda::GatherRows(x.At(call).data, wanted.view().as<const int32_t>(),
                                               rows, kHidden * 2, out.At(call).data,
                                               bench.stream());
                }});
  }
}

void DequantizeCases(CudaBench& bench) {
  for (const DType dtype : {DType::kI8, DType::kI4}) {
    const std::string name = "dequantize_" + std::string(DTypeName(dtype));
    if (!bench.Wants(name)) continue;
    for (const auto& [n, k] :
         {std::pair{kHidden, kHidden}, {2 * kInner, kHidden}, {kHidden, kInner}}) {
      const Rotation w(bench.device(), dtype, {n, k});
      const Rotation scales(bench.device(), DType::kF32, {n});
      const Rotation out(bench.device(), kModel, {n, k});
      bench.Time(
          {.kernel = name,
           .shape = Extents(n, k),
           .dtype = kModel,
           .bytes = static_cast<double>(n * k) * 2 + static_cast<double>(BytesOf(dtype, n * k)),
           .launch = [&](int call) {
             return ops::cuda::Dequantize({.data = w.At(call).data,
                                           .dtype = dtype,
                                           .out_features = n,
                                           .in_features = k,
                                           .scales = scales.At(call).as<const float>()},
                                          kModel, out.At(call).data, bench.stream());
           }});
    }
  }
}

}  // namespace

void ElementwiseCases(CudaBench& bench) {
  EmbedCases(bench);
  AddNormCases(bench);
  QuantizeCases(bench);
  RopeKvCases(bench);
  GateCases(bench);
  EpilogueCases(bench);
  GatherRowsCases(bench);
  DequantizeCases(bench);
}

}  // namespace inflight::bench
