// SPDX-License-Identifier: Apache-2.0
#include "ops/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "base/status_macros.h"

namespace inflight::ops {
namespace {

constexpr std::initializer_list<DType> kFloat32 = {DType::kF32};
constexpr std::initializer_list<DType> kBFloat16 = {DType::kBF16};
constexpr std::initializer_list<DType> kInt32 = {DType::kI32};
constexpr std::initializer_list<DType> kInt64 = {DType::kI64};
constexpr std::initializer_list<DType> kOutputs = {DType::kF32, DType::kBF16};
constexpr std::initializer_list<DType> kNormOutputs = {DType::kF32, DType::kBF16, DType::kF16};

std::string Names(std::initializer_list<DType> dtypes) {
  std::string names;
  for (const DType dtype : dtypes) {
    if (!names.empty()) names += " or ";
    names += DTypeName(dtype);
  }
  return names;
}

Status Expect(const char* field, const TensorView& view, std::initializer_list<DType> dtypes,
              const Shape& shape) {
  bool dtype_ok = false;
  for (const DType dtype : dtypes) dtype_ok = dtype_ok || dtype == view.dtype;
  const bool present = !view.empty() || shape.num_elements() == 0;
  if (dtype_ok && present && view.shape == shape) return Status::Ok();
  return InvalidArgument(fmt::format("{}: got {}, needed {} {}", field,
                                     view.empty() ? "no tensor" : view.ToString(), Names(dtypes),
                                     shape.ToString()));
}

Status ExpectOrEmpty(const char* field, const TensorView& view, std::initializer_list<DType> dtypes,
                     const Shape& shape) {
  return view.empty() ? Status::Ok() : Expect(field, view, dtypes, shape);
}

// The dtypes in which linears of `weight` read their activations.
std::initializer_list<DType> InputDTypes(const Weight& weight) {
  if (IsInteger(weight.dtype)) return kOutputs;
  return weight.dtype == DType::kBF16 || weight.dtype == DType::kF8E4M3 ? kBFloat16 : kFloat32;
}

Status ExpectWeight(const char* field, const Weight& weight) {
  const bool float_dtype =
      weight.dtype == DType::kF32 || weight.dtype == DType::kBF16 || weight.dtype == DType::kF16;
  const bool layout_ok =
      weight.layout == WeightLayout::kRowMajor || weight.layout == CpuWeightLayout(weight.dtype);
  if (!weight.empty() && float_dtype && layout_ok) return Status::Ok();
  return InvalidArgument(
      fmt::format("{}: got {} {} [{}, {}] at {}, needed float32, bfloat16 or float16, row-major or "
                  "in the layout of its dtype",
                  field, DTypeName(weight.dtype), WeightLayoutName(weight.layout),
                  weight.out_features, weight.in_features, weight.data));
}

// Groups are whole steps that divide the columns; offsets are of groups.
Status ExpectGroups(const char* field, const Weight& weight) {
  const int64_t size = weight.group_size;
  if (size == 0 && weight.order != nullptr)
    return InvalidArgument(
        fmt::format("{}.order: got one beside a scale for each row, needed groups", field));
  if (weight.num_inputs != 0 &&
      (weight.order == nullptr || weight.num_inputs < 0 || weight.num_inputs > weight.in_features))
    return InvalidArgument(
        fmt::format("{}.num_inputs: got {} {} an order of {} columns, needed one of as many or "
                    "more",
                    field, weight.num_inputs, weight.order == nullptr ? "without" : "beside",
                    weight.in_features));
  if (size == 0 && !weight.has_offsets() && weight.scale_blocks == nullptr) return Status::Ok();
  if (size > 0 && size % kGroupStep == 0 && weight.in_features % size == 0) return Status::Ok();
  return InvalidArgument(
      fmt::format("{}.group_size: got {} of {} columns, needed a multiple of {} that divides them",
                  field, size, weight.in_features, kGroupStep));
}

// float4 has groups with an exponent each, and nothing else.
Status ExpectExponents(const char* field, const Weight& weight) {
  if (weight.exponents != nullptr && weight.group_size > 0 && weight.offsets == nullptr)
    return Status::Ok();
  return InvalidArgument(fmt::format(
      "{}.exponents: got {} beside groups of {}, {} weights need them, groups, and no offsets",
      field, static_cast<const void*>(weight.exponents), weight.group_size,
      DTypeName(weight.dtype)));
}

// float8 has groups of so many columns, with scales alone.
Status ExpectFp8(const char* field, const Weight& weight) {
  constexpr int64_t kGroup = 128;
  const bool layout_ok =
      weight.layout == WeightLayout::kRowMajor || weight.layout == CpuWeightLayout(weight.dtype);
  if (!weight.empty() && layout_ok && weight.scales != nullptr && weight.offsets == nullptr &&
      weight.order == nullptr && weight.group_size == kGroup && weight.in_features % kGroup == 0)
    return Status::Ok();
  return InvalidArgument(fmt::format(
      "{}: got {} {} [{}, {}] at {} in groups of {} with scales at {}, needed scales of groups of "
      "{} columns, which divide them, no offsets and no order, row-major or {}",
      field, DTypeName(weight.dtype), WeightLayoutName(weight.layout), weight.out_features,
      weight.in_features, weight.data, weight.group_size, static_cast<const void*>(weight.scales),
      kGroup, WeightLayoutName(CpuWeightLayout(weight.dtype))));
}

// Scales are float32, or in blocks that divide the groups, and so are offsets where there are any.
Status ExpectScales(const char* field, const Weight& weight) {
  const bool has_blocks = !weight.blocks.empty();
  if (has_blocks == (weight.scale_blocks != nullptr) && weight.exponents == nullptr &&
      has_blocks == (weight.scales == nullptr && weight.offsets == nullptr) &&
      (has_blocks || weight.offset_blocks == nullptr) && weight.blocks.groups >= 0 &&
      weight.blocks.groups <= ScaleBlocks::kMaxGroups &&
      (!has_blocks || weight.num_groups() % weight.blocks.groups == 0))
    return Status::Ok();
  return InvalidArgument(fmt::format(
      "{}.blocks: got blocks of {} of {} groups with scales at {}, in blocks at {}, needed scales "
      "and offsets in blocks of at most {} groups that divide them, or both as float32",
      field, weight.blocks.groups, weight.num_groups(), static_cast<const void*>(weight.scales),
      static_cast<const void*>(weight.scale_blocks), ScaleBlocks::kMaxGroups));
}

// Of a linear: float weights, or integers with a scale for each row or group.
Status ExpectLinearWeight(const char* field, const Weight& weight) {
  if (weight.dtype == DType::kF8E4M3) return ExpectFp8(field, weight);
  if (!IsInteger(weight.dtype)) return ExpectWeight(field, weight);
  RETURN_IF_ERROR(ExpectGroups(field, weight));
  const bool is_float4 = weight.dtype == DType::kF4E2M1;
  if (is_float4) RETURN_IF_ERROR(ExpectExponents(field, weight));
  if (!weight.blocks.empty() || weight.scale_blocks != nullptr)
    RETURN_IF_ERROR(ExpectScales(field, weight));
  const bool layout_ok =
      weight.layout == WeightLayout::kRowMajor || weight.layout == CpuWeightLayout(weight.dtype);
  const bool is_int4 = weight.dtype == DType::kI4;
  const bool columns_ok =
      weight.in_features <= kMaxInt8Features && !(is_int4 && weight.in_features % 2 != 0);
  const bool scales_ok = is_float4 || weight.scales != nullptr || weight.scale_blocks != nullptr;
  if (!weight.empty() && scales_ok && layout_ok && columns_ok) return Status::Ok();
  return InvalidArgument(fmt::format(
      "{}: got {} {} [{}, {}] at {} with scales at {}, needed scales, row-major or "
      "{}, and at most {} columns{}",
      field, DTypeName(weight.dtype), WeightLayoutName(weight.layout), weight.out_features,
      weight.in_features, weight.data, static_cast<const void*>(weight.scales),
      WeightLayoutName(CpuWeightLayout(weight.dtype)), kMaxInt8Features,
      is_int4 ? ", an even number" : ""));
}

Status ExpectScratch(const TensorView& scratch, const Weight& weight, int64_t num_tokens) {
  const size_t needed =
      LinearScratchBytes(weight.dtype, num_tokens, weight.in_features, weight.group_size);
  if (needed == 0 ||
      (!scratch.empty() && scratch.dtype == DType::kU8 && scratch.num_bytes() >= needed &&
       reinterpret_cast<uintptr_t>(scratch.data) % 64 == 0))
    return Status::Ok();
  return InvalidArgument(fmt::format("scratch: got {} at {}, needed uint8 [{}] at a multiple of 64",
                                     scratch.empty() ? "no tensor" : scratch.ToString(),
                                     scratch.data, needed));
}

// x [num_tokens, weight.x_features()]
Status ExpectInput(const Activation& x, const Weight& weight) {
  if (x.pending_norm != nullptr || !x.scales.empty())
    return Unimplemented(
        "x: CPU linears take normalized, unquantised activations; apply add_norm before");
  if (x.values.shape.rank() != 2)
    return InvalidArgument("x: got " + x.values.ToString() + ", needed [num_tokens, in_features]");
  return Expect("x", x.values, InputDTypes(weight), {x.values.shape[0], weight.x_features()});
}

// Of one weight: factors of its widths, and a place for each token of x.
Status ExpectLora(const LoraTerm& lora, LoraSite site, const Weight& weight, int64_t num_tokens) {
  if (lora.batch == nullptr) return Status::Ok();
  if (lora.batch->num_tokens() != num_tokens)
    return InvalidArgument(fmt::format("lora: got a batch of {} tokens, needed {}",
                                       lora.batch->num_tokens(), num_tokens));
  for (const LoraBatch::Run& run : lora.batch->runs())
    for (const LoraPart& part : run.adapter->Of(lora.layer, site))
      if ((part.rank < 1) != (part.bias != nullptr) || part.rank > kMaxLoraRank ||
          part.in_features != weight.x_features() || part.first_feature < 0 ||
          part.first_feature + part.num_features > weight.out_features)
        return InvalidArgument(fmt::format(
            "lora: got rank {} of {} features to [{}, {}), needed a rank in [1, {}] or a bias, "
            "{} features and at most {}",
            part.rank, part.in_features, part.first_feature, part.first_feature + part.num_features,
            kMaxLoraRank, weight.x_features(), weight.out_features));
  return Status::Ok();
}

Status ExpectIndices(const char* field, const TensorView& view, int64_t limit) {
  const auto* values = view.as<const int32_t>();
  const int64_t n = view.num_elements();
  for (int64_t i = 0; i < n; ++i)
    if (values[i] < 0 || values[i] >= limit)
      return InvalidArgument(
          fmt::format("{}[{}]: got {}, needed [0, {})", field, i, values[i], limit));
  return Status::Ok();
}

Status ExpectCache(const KvCacheView& kv, int layer) {
  const bool dtype_ok =
      kv.dtype == DType::kF32 || kv.dtype == DType::kF16 || kv.dtype == DType::kBF16;
  if (kv.data == nullptr || !dtype_ok || kv.num_kv_heads <= 0 || kv.block_size <= 0 ||
      kv.block_size % 16 != 0 || kv.head_dim <= 0 || kv.head_dim % 8 != 0)
    return InvalidArgument(fmt::format(
        "kv: got {} with num_kv_heads {}, block_size {}, head_dim {}, needed a float dtype, a "
        "block_size that is a multiple of 16 and a head_dim that is a multiple of 8",
        DTypeName(kv.dtype), kv.num_kv_heads, kv.block_size, kv.head_dim));
  if (layer < 0 || layer >= kv.num_layers)
    return InvalidArgument(fmt::format("layer: got {}, needed [0, {})", layer, kv.num_layers));
  return Status::Ok();
}

// A token of a tree sees itself, no key behind it, and as many as its position says.
Status ExpectTrees(const PagedBatch& batch) {
  if (batch.tree_masks.empty()) return Status::Ok();
  RETURN_IF_ERROR(Expect("batch.tree_masks", batch.tree_masks, kInt64, {batch.num_tokens}));
  for (int row = 0; row < batch.num_rows; ++row) {
    const int end = batch.cu_seqlens_q.as<const int32_t>()[row + 1];
    const int num_places = batch.seq_lens_kv.as<const int32_t>()[row];
    for (int t = batch.cu_seqlens_q.as<const int32_t>()[row]; t < end; ++t) {
      const auto mask = static_cast<uint64_t>(batch.tree_masks.as<const int64_t>()[t]);
      if (mask == 0) continue;
      const int position = batch.positions.as<const int32_t>()[t];
      const int num_seen = std::max(0, num_places - kMaxTreePlaces) + std::popcount(mask);
      const bool ends_with_itself = std::countr_zero(mask) == end - 1 - t;
      const bool is_text = static_cast<int>(std::bit_width(mask)) <= num_places;
      if (ends_with_itself && is_text && num_seen == position + 1) continue;
      return InvalidArgument(fmt::format(
          "batch.tree_masks[{}]: got {:#x} at position {}, {} places before the last of {}, needed "
          "{} keys, its own the last of them",
          t, mask, position, end - 1 - t, num_places, position + 1));
    }
  }
  return Status::Ok();
}

Status ExpectBatch(const PagedBatch& batch) {
  RETURN_IF_ERROR(Expect("batch.cu_seqlens_q", batch.cu_seqlens_q, kInt32, {batch.num_rows + 1}));
  RETURN_IF_ERROR(Expect("batch.seq_lens_kv", batch.seq_lens_kv, kInt32, {batch.num_rows}));
  RETURN_IF_ERROR(Expect("batch.positions", batch.positions, kInt32, {batch.num_tokens}));
  RETURN_IF_ERROR(Expect("batch.slot_mapping", batch.slot_mapping, kInt64, {batch.num_tokens}));
  const Shape& tables = batch.block_tables.shape;
  const int64_t width = tables.rank() == 2 ? tables[1] : 0;
  RETURN_IF_ERROR(
      Expect("batch.block_tables", batch.block_tables, kInt32, {batch.num_rows, width}));
  return ExpectTrees(batch);
}

Status ExpectRope(const Rope& rope, const PagedBatch& batch, int head_dim) {
  if (rope.style == RopeStyle::kNone) return Status::Ok();
  if (rope.rotary_dim <= 0 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim)
    return InvalidArgument(fmt::format("rope.rotary_dim: got {}, needed an even number in [2, {}]",
                                       rope.rotary_dim, head_dim));
  const int64_t max_seq_len = rope.cos_sin.shape.rank() == 3 ? rope.cos_sin.shape[0] : 0;
  RETURN_IF_ERROR(
      Expect("rope.cos_sin", rope.cos_sin, kFloat32, {max_seq_len, 2, rope.rotary_dim / 2}));
  return ExpectIndices("batch.positions", batch.positions, max_seq_len);
}

Status ExpectCap(float softcap) {
  if (softcap >= 0) return Status::Ok();
  return InvalidArgument(fmt::format("softcap: got {}, needed 0 or a cap above it", softcap));
}

// Ids of tokens without a row of their own.
Status ExpectOwnRows(const EmbedParams& p) {
  if (p.prompt_dtype != DType::kF32 && p.prompt_dtype != DType::kBF16 &&
      p.prompt_dtype != DType::kF16)
    return InvalidArgument(fmt::format("prompt_dtype: got {}, needed float32, bfloat16 or float16",
                                       DTypeName(p.prompt_dtype)));
  for (int64_t t = 0; t < p.ids.num_elements(); ++t) {
    const int32_t id = p.ids.as<const int32_t>()[t];
    const bool has_row = p.prompt_rows[t] != nullptr;
    if (!has_row && (id < 0 || id >= p.table.out_features))
      return InvalidArgument(fmt::format("ids[{}]: got {}, needed [0, {}) or a row of prompt_rows",
                                         t, id, p.table.out_features));
  }
  return Status::Ok();
}

// Of `num_places` places, whatever stands in them.
Status ExpectRoutes(const ExpertRoutes& routes, int64_t num_places) {
  const int64_t num_experts = routes.begins.num_elements() - 1;
  if (num_experts < 1 || num_experts > kMaxExperts)
    return InvalidArgument(
        fmt::format("routes.begins: got {} experts, needed [1, {}]", num_experts, kMaxExperts));
  RETURN_IF_ERROR(Expect("routes.begins", routes.begins, kInt32, {num_experts + 1}));
  RETURN_IF_ERROR(Expect("routes.tokens", routes.tokens, kInt32, {num_places}));
  return Expect("routes.weights", routes.weights, kFloat32, {num_places});
}

// The places are those of `begins`, their tokens below `num_tokens`. All are written where one rank
// holds all experts.
Status ExpectPlaces(const ExpertRoutes& routes, int64_t num_places, int64_t num_tokens) {
  RETURN_IF_ERROR(ExpectRoutes(routes, num_places));
  const auto* begins = routes.begins.as<const int32_t>();
  const int64_t num_experts = routes.begins.num_elements() - 1;
  const int64_t num_written = begins[num_experts];
  bool is_ascending = begins[0] == 0 && num_written <= num_places &&
                      (num_written == num_places || routes.num_holders > 1);
  for (int64_t e = 0; e < num_experts; ++e)
    is_ascending = is_ascending && begins[e] <= begins[e + 1];
  if (!is_ascending)
    return InvalidArgument(
        fmt::format("routes.begins: got numbers from {} to {}, needed ascending ones from 0 to {}",
                    begins[0], begins[num_experts], num_places));
  TensorView written = routes.tokens;
  written.shape = {num_written};
  return ExpectIndices("routes.tokens", written, num_tokens);
}

// `weight` holds rows of all experts, of each a multiple of 64.
Status ExpectExpertRows(const Weight& weight, int64_t num_experts, int64_t rows, int64_t panel) {
  if (weight.out_features == num_experts * rows && rows % panel == 0) return Status::Ok();
  return InvalidArgument(fmt::format(
      "weight: got {} rows, needed {} of each of {} experts, in parts of a multiple of {}",
      weight.out_features, rows, num_experts, panel));
}

}  // namespace

Status Validate(const EmbedParams& p) {
  RETURN_IF_ERROR(ExpectLinearWeight("table", p.table));
  const int64_t num_tokens = p.ids.num_elements();
  const int64_t hidden_size = p.table.in_features;
  RETURN_IF_ERROR(Expect("ids", p.ids, kInt32, {num_tokens}));
  RETURN_IF_ERROR(Expect("y", p.y, kFloat32, {num_tokens, hidden_size}));
  if (!p.is_part)
    RETURN_IF_ERROR(p.prompt_rows == nullptr ? ExpectIndices("ids", p.ids, p.table.out_features)
                                             : ExpectOwnRows(p));
  if (p.position_table.empty()) return Status::Ok();
  const int64_t max_positions = p.position_table.shape[0];
  if (IsInteger(p.table.dtype))
    RETURN_IF_ERROR(
        Expect("position_table", p.position_table, kNormOutputs, {max_positions, hidden_size}));
  else
    RETURN_IF_ERROR(
        Expect("position_table", p.position_table, {p.table.dtype}, {max_positions, hidden_size}));
  RETURN_IF_ERROR(Expect("positions", p.positions, kInt32, {num_tokens}));
  return ExpectIndices("positions", p.positions, max_positions);
}

Status Validate(const AddNormParams& p) {
  if (p.residual.shape.rank() != 2)
    return InvalidArgument("residual: got " + p.residual.ToString() +
                           ", needed [num_tokens, hidden_size]");
  const int64_t hidden_size = p.residual.shape[1];
  RETURN_IF_ERROR(Expect("residual", p.residual, kFloat32, p.residual.shape));
  RETURN_IF_ERROR(ExpectOrEmpty("delta", p.delta, kFloat32, p.residual.shape));
  if (p.norm.kind != NormKind::kNone)
    RETURN_IF_ERROR(Expect("norm.weight", p.norm.weight, kFloat32, {hidden_size}));
  else if (!p.norm.weight.empty())
    return InvalidArgument("norm.weight: got a tensor, needed none without a norm");
  RETURN_IF_ERROR(ExpectOrEmpty("norm.bias", p.norm.bias, kFloat32, {hidden_size}));
  return Expect("y", p.y, kNormOutputs, p.residual.shape);
}

Status Validate(const QkvRopeKvParams& p) {
  RETURN_IF_ERROR(ExpectCache(p.kv, p.layer));
  RETURN_IF_ERROR(ExpectBatch(p.batch));
  RETURN_IF_ERROR(ExpectLinearWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  const int64_t num_tokens = p.batch.num_tokens;
  const int64_t width = static_cast<int64_t>(p.num_heads + 2 * p.kv.num_kv_heads) * p.kv.head_dim;
  if (p.x.values.shape[0] != num_tokens || p.weight.out_features != width)
    return InvalidArgument(fmt::format(
        "weight: got {} rows for x {}, needed {} for {} heads of {} over {} kv heads and {} tokens",
        p.weight.out_features, p.x.values.ToString(), width, p.num_heads, p.kv.head_dim,
        p.kv.num_kv_heads, num_tokens));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, kFloat32, {width}));
  const bool is_wide = p.q_norm.num_elements() > p.kv.head_dim;
  const int64_t head_dim = p.kv.head_dim;
  RETURN_IF_ERROR(
      ExpectOrEmpty("q_norm", p.q_norm, kFloat32, {is_wide ? p.num_heads * head_dim : head_dim}));
  RETURN_IF_ERROR(ExpectOrEmpty("k_norm", p.k_norm, kFloat32,
                                {is_wide ? p.kv.num_kv_heads * head_dim : head_dim}));
  if (p.q_norm.empty() != p.k_norm.empty())
    return InvalidArgument("k_norm: q_norm and k_norm are needed both, or none of them");
  RETURN_IF_ERROR(ExpectRope(p.rope, p.batch, p.kv.head_dim));
  RETURN_IF_ERROR(Expect("workspace", p.workspace, kFloat32, {num_tokens, width}));
  RETURN_IF_ERROR(ExpectScratch(p.scratch, p.weight, num_tokens));
  RETURN_IF_ERROR(ExpectLora(p.lora, LoraSite::kQkv, p.weight, num_tokens));
  return Expect("q", p.q, kFloat32, {num_tokens, p.num_heads, p.kv.head_dim});
}

Status Validate(const AttentionParams& p) {
  RETURN_IF_ERROR(ExpectCache(p.kv, p.layer));
  RETURN_IF_ERROR(ExpectBatch(p.batch));
  const int64_t num_tokens = p.batch.num_tokens;
  const int64_t num_heads = p.q.shape.rank() == 3 ? p.q.shape[1] : 0;
  RETURN_IF_ERROR(Expect("q", p.q, kFloat32, {num_tokens, num_heads, p.kv.head_dim}));
  if (num_heads <= 0 || num_heads % p.kv.num_kv_heads != 0)
    return InvalidArgument(fmt::format("q: got {} heads, needed a multiple of the {} kv heads",
                                       num_heads, p.kv.num_kv_heads));
  const SlidingWindow& sliding = p.sliding;
  if (sliding.window < 0 || sliding.num_sinks < 0 ||
      (sliding.window > 0 && sliding.num_sinks >= sliding.window))
    return InvalidArgument(fmt::format("sliding: got a window of {} with {} sinks, needed fewer",
                                       sliding.window, sliding.num_sinks));
  RETURN_IF_ERROR(ExpectCap(p.softcap));
  RETURN_IF_ERROR(ExpectOrEmpty("sink_logits", p.sink_logits, kFloat32, {num_heads}));
  return Expect("y", p.y, kOutputs, {num_tokens, num_heads * p.kv.head_dim});
}

Status Validate(const LinearParams& p) {
  RETURN_IF_ERROR(ExpectLinearWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, kFloat32, {p.weight.out_features}));
  RETURN_IF_ERROR(ExpectScratch(p.scratch, p.weight, p.x.values.shape[0]));
  RETURN_IF_ERROR(ExpectLora(p.lora, p.site, p.weight, p.x.values.shape[0]));
  return Expect("y", p.y, kOutputs, {p.x.values.shape[0], p.weight.out_features});
}

Status Validate(const GatedLinearParams& p) {
  RETURN_IF_ERROR(ExpectLinearWeight("gate", p.gate));
  RETURN_IF_ERROR(ExpectLinearWeight("up", p.up));
  if (p.gate.dtype != p.up.dtype || p.gate.layout != p.up.layout ||
      p.gate.out_features != p.up.out_features || p.gate.in_features != p.up.in_features)
    return InvalidArgument(fmt::format(
        "up: got {} [{}, {}], needed {} [{}, {}] as gate", DTypeName(p.up.dtype), p.up.out_features,
        p.up.in_features, DTypeName(p.gate.dtype), p.gate.out_features, p.gate.in_features));
  if ((p.gate.order == nullptr) != (p.up.order == nullptr))  // they share the rounded activations
    return InvalidArgument("up.order: got one of the two branches, needed the same as gate");
  if (p.gate.group_size != p.up.group_size)
    return InvalidArgument(fmt::format("up.group_size: got {}, needed {} as gate", p.up.group_size,
                                       p.gate.group_size));
  RETURN_IF_ERROR(ExpectInput(p.x, p.gate));
  RETURN_IF_ERROR(ExpectOrEmpty("gate_bias", p.gate_bias, kFloat32, {p.gate.out_features}));
  RETURN_IF_ERROR(ExpectOrEmpty("up_bias", p.up_bias, kFloat32, {p.gate.out_features}));
  RETURN_IF_ERROR(ExpectScratch(p.scratch, p.gate, p.x.values.shape[0]));
  RETURN_IF_ERROR(ExpectLora(p.lora, LoraSite::kFc, p.gate, p.x.values.shape[0]));
  RETURN_IF_ERROR(ExpectLora(p.lora, LoraSite::kGate, p.up, p.x.values.shape[0]));
  return Expect("y", p.y, kOutputs, {p.x.values.shape[0], p.gate.out_features});
}

Status Validate(const LmHeadParams& p) {
  RETURN_IF_ERROR(ExpectLinearWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  const int64_t num_rows = p.rows.num_elements();
  RETURN_IF_ERROR(Expect("rows", p.rows, kInt32, {num_rows}));
  RETURN_IF_ERROR(ExpectIndices("rows", p.rows, p.x.values.shape[0]));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, kFloat32, {p.weight.out_features}));
  RETURN_IF_ERROR(ExpectScratch(p.scratch, p.weight, num_rows));
  RETURN_IF_ERROR(ExpectCap(p.softcap));
  return Expect("logits", p.logits, kFloat32, {num_rows, p.weight.out_features});
}

Status Validate(const RouteParams& p) {
  if (p.logits.shape.rank() != 2)
    return InvalidArgument("logits: got " + p.logits.ToString() +
                           ", needed [num_tokens, num_experts]");
  RETURN_IF_ERROR(Expect("logits", p.logits, kFloat32, p.logits.shape));
  RETURN_IF_ERROR(CheckNumbers(p));
  const int64_t num_places = p.logits.shape[0] * PlacesOfToken(p);
  RETURN_IF_ERROR(ExpectRoutes(p.routes, num_places));
  RETURN_IF_ERROR(Expect("chosen", p.chosen, kInt32, {num_places}));
  return Expect("chosen_weights", p.chosen_weights, kFloat32, {num_places});
}

Status Validate(const ExpertGatedLinearParams& p) {
  RETURN_IF_ERROR(ExpectLinearWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  if (p.y.shape.rank() != 2)
    return InvalidArgument("y: got " + p.y.ToString() + ", needed [num_places, width]");
  const int64_t num_tokens = p.x.values.shape[0];
  const int64_t width = p.y.shape[1];
  RETURN_IF_ERROR(Expect("y", p.y, kOutputs, p.y.shape));
  RETURN_IF_ERROR(ExpectPlaces(p.routes, p.y.shape[0], num_tokens));
  RETURN_IF_ERROR(
      ExpectExpertRows(p.weight, p.routes.begins.num_elements() - 1, 2 * width, 2 * kExpertPanel));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, kFloat32, {p.weight.out_features}));
  if (!(p.limit >= 0))
    return InvalidArgument(fmt::format("limit: got {}, needed 0 or one above it", p.limit));
  return ExpectScratch(p.scratch, p.weight, num_tokens);
}

Status Validate(const ExpertLinearParams& p) {
  RETURN_IF_ERROR(ExpectLinearWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  if (p.y.shape.rank() != 2)
    return InvalidArgument("y: got " + p.y.ToString() + ", needed [num_tokens, width]");
  const int64_t num_places = p.x.values.shape[0];
  RETURN_IF_ERROR(Expect("y", p.y, kFloat32, p.y.shape));
  RETURN_IF_ERROR(ExpectPlaces(p.routes, num_places, p.y.shape[0]));
  RETURN_IF_ERROR(
      ExpectExpertRows(p.weight, p.routes.begins.num_elements() - 1, p.y.shape[1], kExpertPanel));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, kFloat32, {p.weight.out_features}));
  return ExpectScratch(p.scratch, p.weight, num_places);
}

Status Validate(const QuantizeParams& p) {
  if (p.x.shape.rank() != 2)
    return InvalidArgument("x: got " + p.x.ToString() + ", needed [num_tokens, width]");
  RETURN_IF_ERROR(Expect("x", p.x, kNormOutputs, p.x.shape));
  RETURN_IF_ERROR(Expect("y", p.y, {DType::kF8E4M3}, p.x.shape));
  return Expect("scales", p.scales, kFloat32, {p.x.shape[0]});
}

}  // namespace inflight::ops
