// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/paged.h"

namespace inflight::ops::cuda {
namespace {

Status ValidateCache(const KvCacheView& kv) {
  if (kv.dtype != DType::kF16 && kv.dtype != DType::kBF16 && kv.dtype != DType::kF8E4M3)
    return InvalidArgument(fmt::format("kv.dtype: got {}, needed float16, bfloat16 or {}",
                                       DTypeName(kv.dtype), DTypeName(DType::kF8E4M3)));
  if (kv.head_dim <= 0 || kv.head_dim % 8 != 0 || kv.row() != CudaRowDim(kv.head_dim) ||
      kv.row() > kCudaHeadDims.back())
    return Unimplemented(fmt::format(
        "kv.head_dim: got {} in rows of {}; there are GPU kernels for multiples of 8 up "
        "to {}, in rows of CudaRowDim",
        kv.head_dim, kv.row(), kCudaHeadDims.back()));
  return Status::Ok();
}

Status ValidateBlocks(const KvCacheView& kv) {
  constexpr std::array kBlockSizes = {16, 32, 64, 128};
  if (std::ranges::count(kBlockSizes, kv.block_size) == 0)
    return Unimplemented(fmt::format(
        "kv.block_size: got {}; there are GPU kernels for 16, 32, 64 and 128", kv.block_size));
  if (!IsAligned(kv.data)) return InvalidArgument("kv.data: not aligned to 16 bytes");
  return Status::Ok();
}

Status ValidateBatch(const PagedBatch& b) {
  if (b.num_decode_rows < 0 || b.num_decode_rows > b.num_rows || b.num_tokens < b.num_decode_rows)
    return InvalidArgument(
        fmt::format("batch.num_decode_rows: got {} of {} rows and {} tokens; a decode row is a row "
                    "of one token",
                    b.num_decode_rows, b.num_rows, b.num_tokens));
  RETURN_IF_ERROR(Expect("batch.seq_lens_kv", b.seq_lens_kv, {DType::kI32}, {b.num_rows}));
  if (b.num_decode_rows < b.num_rows)
    RETURN_IF_ERROR(Expect("batch.cu_seqlens_q", b.cu_seqlens_q, {DType::kI32}, {b.num_rows + 1}));
  if (!b.table_rows.empty())
    RETURN_IF_ERROR(Expect("batch.table_rows", b.table_rows, {DType::kI32}, {b.num_rows}));
  if (!b.tree_shifts.empty()) {
    const Shape& shifts = b.tree_shifts.shape;
    if (shifts.rank() != 2 || shifts[0] < b.num_decode_rows)
      return InvalidArgument(fmt::format("batch.tree_shifts: got {}, needed [{}, {}]",
                                         b.tree_shifts.ToString(), b.num_decode_rows,
                                         kMaxTreeDepth));
    RETURN_IF_ERROR(
        Expect("batch.tree_shifts", b.tree_shifts, {DType::kU8}, {shifts[0], kMaxTreeDepth}));
  }
  const Shape& tables = b.block_tables.shape;
  if (tables.rank() != 2 || (b.table_rows.empty() && tables[0] < b.num_rows))
    return InvalidArgument(
        fmt::format("batch.block_tables: got {}, needed [{}, max_blocks_per_seq]",
                    b.block_tables.ToString(), b.num_rows));
  return Expect("batch.block_tables", b.block_tables, {DType::kI32}, tables);
}

Status Validate(const AttentionParams& p, const CudaStream& stream) {
  const int64_t num_heads = p.q.shape.rank() == 3 ? p.q.shape[1] : 0;
  RETURN_IF_ERROR(
      ValidateForAttention(p.batch, p.kv, static_cast<int>(num_heads), p.sliding, p.plan, stream));
  if (p.layer < 0 || p.layer >= p.kv.num_layers)
    return InvalidArgument(
        fmt::format("layer: got {}, the cache has {}", p.layer, p.kv.num_layers));
  const DType dtype = p.q.dtype;
  if (dtype != DType::kF16 && dtype != DType::kBF16)
    return InvalidArgument(fmt::format("q: got {}, needed float16 or bfloat16", p.q.ToString()));
  if (p.kv.dtype != DType::kF8E4M3 && p.kv.dtype != dtype)
    return InvalidArgument(fmt::format("kv.dtype: got {}, needed {} as q, or {}",
                                       DTypeName(p.kv.dtype), DTypeName(dtype),
                                       DTypeName(DType::kF8E4M3)));
  const int64_t num_tokens = p.batch.num_tokens;
  const int64_t width = num_heads * p.kv.head_dim;
  const int64_t q_width = num_heads * p.kv.row();
  RETURN_IF_ERROR(Expect("q", p.q, {dtype}, {num_tokens, num_heads, p.kv.row()}));
  if (p.q_stride != 0 && (p.q_stride < q_width || p.q_stride % 8 != 0))
    return InvalidArgument(
        fmt::format("q_stride: got {}, needed a multiple of 8 from {} on", p.q_stride, q_width));
  if (!(p.scale > 0)) return InvalidArgument(fmt::format("scale: got {}, needed > 0", p.scale));
  if (!(p.softcap >= 0))
    return InvalidArgument(fmt::format("softcap: got {}, needed >= 0", p.softcap));
  RETURN_IF_ERROR(ExpectOrEmpty("sink_logits", p.sink_logits, {DType::kF32}, {num_heads}));
  if (!IsAligned(p.q.data)) return InvalidArgument("q: not aligned to 16 bytes");
  RETURN_IF_ERROR(Expect("y", p.y, {dtype}, {num_tokens, width}));
  if (!IsAligned(p.y.data)) return InvalidArgument("y: not aligned to 16 bytes");
  return Status::Ok();
}

AttentionArgs Args(const AttentionParams& p, int num_tree_rows, CudaStream& stream) {
  const KvCacheView& kv = p.kv;
  const auto num_heads = static_cast<int>(p.q.shape[1]);
  const float* scales = kv.scales == nullptr ? nullptr : kv.scales + 2 * p.layer;
  const float k_scale = scales == nullptr ? 1.0F : scales[0];
  constexpr float kLog2E = std::numbers::log2e_v<float>;
  const bool is_capped = p.softcap > 0;
  return {.q = p.q.data,
          .q_stride = p.q_stride == 0 ? int64_t{num_heads} * kv.row() : p.q_stride,
          .y = p.y.data,
          .q_is_bf16 = p.q.dtype == DType::kBF16,
          .head_dim = kv.head_dim,
          .cache = kv.Keys(p.layer, 0, 0),
          .block_bytes = static_cast<int64_t>(kv.block_bytes()),
          .head_bytes = static_cast<int64_t>(kv.head_bytes()),
          .block_size_log2 = Log2(kv.block_size),
          .num_heads = num_heads,
          .num_kv_heads = kv.num_kv_heads,
          .group = num_heads / kv.num_kv_heads,
          .tables = p.batch.block_tables.as<const int32_t>(),
          .table_stride = p.batch.block_tables.shape[1],
          .table_rows = p.batch.table_rows.as<const int32_t>(),
          .seq_lens = p.batch.seq_lens_kv.as<const int32_t>(),
          .scale_log2 = (is_capped ? p.softcap : p.scale * k_scale) * kLog2E,
          .cap_scale = is_capped ? 2 * kLog2E * p.scale * k_scale / p.softcap : 0.0F,
          .sink_logits = p.sink_logits.as<const float>(),
          .tree_shifts = p.batch.tree_shifts.as<const uint8_t>(),
          .num_tree_rows = num_tree_rows,
          .v_scale = scales == nullptr ? 1.0F : scales[1],
          .sliding = p.sliding,
          .plan = PlanAt(stream.workspace(), p.plan)};
}

// Calls run.template operator()<row_dim>().
template <typename Run>
Status ForRowDim(int row_dim, const Run& run) {
  switch (row_dim) {
    case 64:
      return run.template operator()<64>();
    case 80:
      return run.template operator()<80>();
    case 96:
      return run.template operator()<96>();
    case 128:
      return run.template operator()<128>();
    default:
      return run.template operator()<256>();
  }
}

Status Decode(const AttentionParams& p, int num_tree_rows, CudaStream& stream) {
  const int num_ctas = ShapeOfDecode(p.kv, stream).num_ctas;
  DecodeArgs args;
  static_cast<AttentionArgs&>(args) = Args(p, num_tree_rows, stream);
  args.heads = DecodeHeads(args.group);
  args.num_rows = p.batch.num_decode_rows;
  args.partials = reinterpret_cast<float*>(stream.workspace().attention_partials);
  args.counters = stream.workspace().attention_counters;
  return ForRowDim(p.kv.row(), [&]<int kHeadDim>() {
    return LaunchDecode<kHeadDim>(args, p.kv.dtype, num_ctas, stream);
  });
}

Status Prefill(const AttentionParams& p, int num_tree_rows, CudaStream& stream) {
  AttentionArgs args = Args(p, num_tree_rows, stream);
  if (!stream.is_fixed() || num_tree_rows == 0) args.tree_shifts = nullptr;  // none of these rows
  args.heads = PrefillHeads(args.group);
  const int max_tiles = MaxPrefillTiles(p.batch, args.group);
  return ForRowDim(p.kv.row(), [&]<int kHeadDim>() {
    return LaunchPrefill<kHeadDim>(args, p.kv.dtype, max_tiles, stream);
  });
}

}  // namespace

Status ValidatePaged(const PagedBatch& batch, const KvCacheView& kv, int num_heads,
                     const SlidingWindow& sliding) {
  RETURN_IF_ERROR(ValidateBlocks(kv));
  if (kv.num_kv_heads <= 0 || num_heads <= 0 || num_heads % kv.num_kv_heads != 0)
    return InvalidArgument(fmt::format("num_heads: got {}, needed a multiple of the {} kv heads",
                                       num_heads, kv.num_kv_heads));
  if (sliding.window < 0 || sliding.num_sinks < 0 ||
      (sliding.window == 0 ? sliding.num_sinks > 0 : sliding.num_sinks >= sliding.window))
    return InvalidArgument(fmt::format("sliding: got a window of {} with {} sinks, needed fewer",
                                       sliding.window, sliding.num_sinks));
  return ValidateBatch(batch);
}

Status ValidateForAttention(const PagedBatch& batch, const KvCacheView& kv, int num_heads,
                            const SlidingWindow& sliding, int plan, const CudaStream& stream) {
  RETURN_IF_ERROR(ValidateCache(kv));
  RETURN_IF_ERROR(ValidatePaged(batch, kv, num_heads, sliding));
  if (plan < 0 || plan >= stream.workspace().num_attention_plans)
    return InvalidArgument(
        fmt::format("plan: got {}, this stream was made for {} (ShapeClass::num_windows)", plan,
                    stream.workspace().num_attention_plans));
  return Status::Ok();
}

// The stream's plan `params.plan` is of this batch and window (PlanAttention).
Status Attention(const AttentionParams& asked, Stream& stream) {
  CudaStream& cuda = AsCuda(stream);
  AttentionParams params = asked;
  params.batch = AsRun(asked.batch, cuda);
  RETURN_IF_ERROR(Validate(params, cuda));
  const PagedBatch& batch = params.batch;
  const int num_tree_rows = batch.tree_shifts.empty() ? 0 : asked.batch.num_decode_rows;
  if (batch.num_decode_rows > 0) RETURN_IF_ERROR(Decode(params, num_tree_rows, cuda));
  if (batch.num_tokens > batch.num_decode_rows)
    RETURN_IF_ERROR(Prefill(params, num_tree_rows, cuda));
  return Status::Ok();
}

}  // namespace inflight::ops::cuda
