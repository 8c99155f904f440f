// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/decode_layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/decode_layers_args.h"
#include "ops/tensor_core_order.h"

namespace inflight::ops::cuda {
namespace decode_layers {
namespace {

Form FormOf(DType dtype) { return dtype == DType::kI4 ? Form::kInt4 : Form::kInt8; }

bool IsTaken(const Weight& weight, const DecodeLayersParams& params, int64_t out_features,
             int64_t in_features) {
  const DType dtype = params.layers[0].qkv.dtype;
  return (dtype == DType::kI8 || dtype == DType::kI4) && weight.dtype == dtype &&
         weight.layout == WeightLayout::kTensorCore && weight.group_size == 0 &&
         weight.out_features == out_features && weight.in_features == in_features &&
         in_features * BitsOf(FormOf(dtype)) / 8 % kSlabBytes == 0 && IsAligned(weight.data);
}

bool AreTaken(const DecodeLayersParams& params) {
  if (params.layers.empty() || std::ssize(params.layers) > kMaxDecodeLayers) return false;
  const KvCacheView& kv = params.kv;
  const int64_t hidden = params.residual.shape[1], inner = params.inner.shape[1];
  const int64_t q_width = int64_t{params.num_heads} * kv.head_dim;
  const int64_t kv_width = int64_t{kv.num_kv_heads} * kv.head_dim;
  if ((kv.head_dim != 64 && kv.head_dim != 128) || kv.row() != kv.head_dim ||
      params.num_heads % kv.num_kv_heads != 0 || params.num_heads / kv.num_kv_heads > 8 ||
      (kv.dtype != params.residual.dtype && kv.dtype != DType::kF8E4M3) ||
      params.rope.style != RopeStyle::kNeox || params.rope.rotary_dim != kv.head_dim ||
      hidden % kTileRows != 0 || hidden > kMaxHidden || inner % (kTileRows / 2) != 0 ||
      !params.batch.tree_shifts.empty())
    return false;
  return std::ranges::all_of(params.layers, [&](const DecodeLayer& layer) {
    return IsTaken(layer.qkv, params, q_width + 2 * kv_width, hidden) &&
           IsTaken(layer.dense, params, hidden, q_width) &&
           IsTaken(layer.fc, params, inner, hidden) && IsTaken(layer.gate, params, inner, hidden) &&
           IsTaken(layer.proj, params, hidden, inner);
  });
}

// How shared memory is cut for steps of `num_tokens`.
struct Cut {
  int x_stride = 0, x_bytes = 0, stages = 0;
};
Cut CutFor(const DecodeLayersParams& params, int num_tokens, int shared_bytes) {
  const KvCacheView& kv = params.kv;
  const int64_t widest = std::max(
      {params.residual.shape[1], params.inner.shape[1], int64_t{params.num_heads} * kv.head_dim});
  const auto stride = static_cast<int>(2 * widest) + kXPad;
  const int heads = params.num_heads / kv.num_kv_heads;
  const int attention = kWarps * heads * (kv.head_dim + 2) * static_cast<int>(sizeof(float));
  const int x_bytes = (std::max(stride * num_tokens, attention) + 127) / 128 * 128;
  const int sums = kSumFloats * static_cast<int>(sizeof(float));
  return {stride, x_bytes,
          std::min(kMaxStages, (shared_bytes - kStaticBytes - sums - x_bytes) / kStageBytes)};
}

LinearWeights ArgsOf(const Weight& weight) {
  return {static_cast<const uint8_t*>(weight.data), weight.scales};
}

}  // namespace
}  // namespace decode_layers

int MostDecodeLayersRows(const DecodeLayersParams& params, Stream& stream) {
  using namespace decode_layers;
  const CudaStream& on = AsCuda(stream);
  if (on.is_fixed() || !AreTaken(params)) return 0;
  if (!HasKernels()) return 0;
  const auto limit = static_cast<int>(on.gpu().max_shared_bytes_per_block);
  int rows = 0;
  while (rows < kMaxDecodeLayersRows && CutFor(params, rows + 1, limit).stages >= kMinStages)
    ++rows;
  return rows;
}

Status DecodeLayers(const DecodeLayersParams& params, Stream& stream) {
  using namespace decode_layers;
  CudaStream& on = AsCuda(stream);
  const PagedBatch& batch = params.batch;
  const KvCacheView& kv = params.kv;
  const int num_tokens = batch.num_tokens;
  if (batch.num_decode_rows != num_tokens || num_tokens < 1 ||
      num_tokens > MostDecodeLayersRows(params, stream))
    return InvalidArgument(fmt::format(
        "decode_layers: {} tokens of {} decode rows; it takes decode rows alone, at most {} here",
        num_tokens, batch.num_decode_rows, MostDecodeLayersRows(params, stream)));
  const Cut cut = CutFor(params, num_tokens, static_cast<int>(on.gpu().max_shared_bytes_per_block));
  const int64_t layer_bytes = kv.num_blocks * static_cast<int64_t>(kv.block_bytes());
  Args args = {
      .num_tokens = num_tokens,
      .num_layers = static_cast<int>(params.layers.size()),
      .hidden = static_cast<int>(params.residual.shape[1]),
      .intermediate = static_cast<int>(params.inner.shape[1]),
      .num_heads = params.num_heads,
      .num_kv_heads = kv.num_kv_heads,
      .norm_eps = params.norm_eps,
      .delta_factor = params.delta_factor,
      .scale_log2 = params.attention_scale * 1.4426950409F,
      .activation = params.activation,
      .residual = params.residual.data,
      .q = params.q.data,
      .q_stride = params.q.shape[1],
      .attention = params.attention.data,
      .inner = params.inner.data,
      .y = params.y.data,
      .final_norm = params.final_norm.as<const float>(),
      .cos_sin = params.rope.cos_sin.as<const float>(),
      .positions = batch.positions.as<const int32_t>(),
      .slots = batch.slot_mapping.as<const int64_t>(),
      .seq_lens = batch.seq_lens_kv.as<const int32_t>(),
      .tables = batch.block_tables.as<const int32_t>(),
      .table_rows = batch.table_rows.empty() ? nullptr : batch.table_rows.as<const int32_t>(),
      .table_stride = batch.block_tables.shape[1],
      .cache = kv.data,
      .layer_bytes = layer_bytes,
      .block_bytes = static_cast<int64_t>(kv.block_bytes()),
      .head_bytes = static_cast<int64_t>(kv.head_bytes()),
      .block_size = kv.block_size,
      .splits = std::clamp(on.num_sms() / (num_tokens * kv.num_kv_heads), 1, 16),
      .partials = on.workspace().split,
      .counters = on.workspace().split_counters,
      .x_stride = cut.x_stride,
      .x_bytes = cut.x_bytes,
      .stages = cut.stages,
      .layers = {}};
  for (size_t i = 0; i < params.layers.size(); ++i) {
    const DecodeLayer& layer = params.layers[i];
    args.layers[i] = {.qkv = ArgsOf(layer.qkv),
                      .dense = ArgsOf(layer.dense),
                      .fc = ArgsOf(layer.fc),
                      .gate = ArgsOf(layer.gate),
                      .proj = ArgsOf(layer.proj),
                      .qkv_bias = layer.qkv_bias.as<const float>(),
                      .input_norm = layer.input_norm.as<const float>(),
                      .post_norm = layer.post_norm.as<const float>(),
                      .k_scale = kv.scales == nullptr ? 1.0F : kv.scales[2 * i],
                      .v_scale = kv.scales == nullptr ? 1.0F : kv.scales[2 * i + 1]};
  }
  const auto launch = params.layers[0].qkv.dtype == DType::kI4 ? LaunchInt4 : LaunchInt8;
  return launch(args, params.residual.dtype, kv.dtype, kv.head_dim, on);
}

}  // namespace inflight::ops::cuda
