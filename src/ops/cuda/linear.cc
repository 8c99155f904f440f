// SPDX-License-Identifier: Apache-2.0
// The linears: one matrix product, and the kernel that finishes it. FP8 products are of the codes;
// their scales are applied by whatever reads the product next (PendingScales). int8 and int4
// weights, and FP8 ones in groups, in the order of tensor cores are read as they are
// (skinny_integers.h, streamed_integers.h), and so are float4 ones (float4_linear.h); others, and
// those of many tokens, are rounded to the activations' dtype into the stream's workspace.
#include "ops/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/float4_linear.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora_params.h"
#include "ops/cuda/skinny_integers.h"
#include "ops/cuda/streamed_integers.h"
#include "ops/tensor_core_order.h"

namespace inflight::ops::cuda {
namespace {

// The 16-bit dtype that a product of x has: x's own, or of FP8 the one that `product` asks for.
DType ModelDType(const TensorView& x, const TensorView& product) {
  if (x.dtype != DType::kF8E4M3) return x.dtype;
  return IsHalf(product.dtype) ? product.dtype : DType::kBF16;
}

const float* FloatsOf(const TensorView& view) { return view.as<const float>(); }

const std::byte* DataOf(const Weight& weight) { return static_cast<const std::byte*>(weight.data); }

int64_t RowBytes(const Weight& weight) {
  return static_cast<int64_t>(BytesOf(weight.dtype, weight.in_features));
}

// Whose products read activations of the model's dtype, the weight's codes as they are or widened.
bool IsWidened(const Weight& weight) { return IsInteger(weight.dtype) || IsGroupedFp8(weight); }
// Whose products are of codes on both sides.
bool IsRowFp8(const Weight& weight) {
  return weight.dtype == DType::kF8E4M3 && weight.group_size == 0;
}

Status ExpectGroups(const char* field, const Weight& weight) {
  const int64_t group = weight.group_size;
  if (group == 0 && weight.offsets != nullptr)
    return InvalidArgument(fmt::format("{}.offsets: got some, needed none without groups", field));
  if (group == 0 || (IsWidened(weight) && group > 0 && group % kGroupStep == 0 &&
                     weight.in_features % group == 0))
    return Status::Ok();
  return InvalidArgument(
      fmt::format("{}.group_size: got {} of {} weights with {} in_features, needed 0, or of int8, "
                  "int4 and FP8 a multiple of {} that divides in_features",
                  field, group, DTypeName(weight.dtype), weight.in_features, kGroupStep));
}

// float4 has groups with an exponent each, and nothing else.
Status ExpectExponents(const char* field, const Weight& weight) {
  if (weight.exponents != nullptr && weight.offsets == nullptr && weight.group_size == kFloat4Unit)
    return Status::Ok();
  return InvalidArgument(
      fmt::format("{}.exponents: got {} beside groups of {}, needed uint8 of groups of {} of {} "
                  "weights, and no offsets",
                  field, weight.exponents == nullptr ? "none" : "some", weight.group_size,
                  kFloat4Unit, DTypeName(weight.dtype)));
}

Status ExpectWeight(const char* field, const Weight& weight) {
  const bool is_quantized = IsInteger(weight.dtype) || weight.dtype == DType::kF8E4M3;
  const bool dtype_ok = IsHalf(weight.dtype) || is_quantized;
  const bool layout_ok = weight.layout == WeightLayout::kRowMajor ||
                         (weight.layout == WeightLayout::kTensorCore && IsWidened(weight));
  if (weight.empty() || !dtype_ok || !layout_ok || weight.out_features <= 0 ||
      weight.in_features <= 0)
    return InvalidArgument(fmt::format(
        "{}: got {} {} [{}, {}] at {}, needed float16, bfloat16, int8, int4, float4_e2m1fn or "
        "float8_e4m3fn, row_major, or of integers tensor_core",
        field, DTypeName(weight.dtype), WeightLayoutName(weight.layout), weight.out_features,
        weight.in_features, weight.data));
  RETURN_IF_ERROR(ExpectGroups(field, weight));
  if (weight.dtype == DType::kF4E2M1) return ExpectExponents(field, weight);
  if (is_quantized == (weight.scales != nullptr)) return Status::Ok();
  const std::string groups = weight.group_size == 0 ? "" : fmt::format(", {}", weight.num_groups());
  return InvalidArgument(fmt::format("{}.scales: got {}, needed [{}{}] float32 of {} weights",
                                     field, weight.scales == nullptr ? "none" : "some",
                                     weight.out_features, groups, DTypeName(weight.dtype)));
}

// x [num_tokens, in_features] as linears of `weight` read it.
Status ExpectInput(const Activation& x, const Weight& weight) {
  if (x.pending_norm != nullptr)
    return Unimplemented("x: CUDA linears take normalized activations; apply add_norm before");
  if (x.values.shape.rank() != 2)
    return InvalidArgument("x: got " + x.values.ToString() + ", needed [num_tokens, in_features]");
  const int64_t num_tokens = x.values.shape[0];
  DType dtype = weight.dtype;
  if (IsWidened(weight)) dtype = IsHalf(x.values.dtype) ? x.values.dtype : DType::kBF16;
  RETURN_IF_ERROR(Expect("x", x.values, {dtype}, {num_tokens, weight.in_features}));
  if (dtype == DType::kF8E4M3) return Expect("x.scales", x.scales, {DType::kF32}, {num_tokens});
  return Status::Ok();
}

// y [num_tokens, width] of x's product, unless float32 is wanted.
Status ExpectProduct(const char* field, const TensorView& y, const Activation& x, int64_t width) {
  const DType dtype = y.dtype == DType::kF32 ? DType::kF32 : ModelDType(x.values, y);
  return Expect(field, y, {dtype}, {x.values.shape[0], width});
}

// One product of `num_tokens` rows: the weight's rows into columns [0, out_features) of y.
struct Product {
  TensorView x;
  Weight weight;
  void* y = nullptr;
  DType y_dtype = DType::kBF16;
  int64_t y_stride = 0;
  const float* bias = nullptr;
  ActivationKind activation = ActivationKind::kNone;
  float scale = 1;  // of the sums; of f8e4m3 operands beside Fp8ProductScale
};

GemmParams ParamsOf(const Product& p) {
  const bool is_fp8 = p.x.dtype == DType::kF8E4M3;
  return {.x = p.x.data,
          .w = p.weight.data,
          .y = p.y,
          .dtype = p.x.dtype,
          .y_dtype = p.y_dtype,
          .m = p.x.shape[0],
          .n = p.weight.out_features,
          .k = p.weight.in_features,
          .y_stride = p.y_stride,
          .scale = is_fp8 ? p.scale * Fp8ProductScale(p.y_dtype, p.weight.in_features) : p.scale,
          .bias = p.bias,
          .activation = p.activation};
}

// By a kernel that reads integers, or widened, as many rows of the weight at a time as the
// workspace takes: all of them, but for wide heads.
Status ProjectIntegers(const Product& p, CudaStream& stream) {
  const StreamWorkspace& workspace = stream.workspace();
  const int64_t row_bytes = p.weight.in_features * static_cast<int64_t>(SizeOf(p.x.dtype));
  // In whole panels of scales, where they lie in panels (ops/weight.h).
  const int64_t step = p.weight.layout == WeightLayout::kTensorCore ? 64 : 16;
  const int64_t capacity = static_cast<int64_t>(workspace.weights_bytes) / row_bytes / step * step;
  if (capacity <= 0)
    return InvalidArgument(
        fmt::format("weight: got {}, which this stream was not made for (weight_dtype)",
                    DTypeName(p.weight.dtype)));
  const GemmParams all = ParamsOf(p);
  if (p.weight.dtype == DType::kF4E2M1) {
    if (PreferFloat4Linear(all, p.weight, stream)) return Float4Linear(all, p.weight, stream);
  } else if (PreferStreamedIntegers(all, p.weight, stream)) {
    return StreamedIntegers(all, p.weight, stream);
  } else if (PreferSkinnyIntegers(all, p.weight, stream)) {
    return SkinnyIntegers(all, p.weight, stream);
  }
  for (int64_t first = 0; first < p.weight.out_features; first += capacity) {
    const int64_t count = std::min(capacity, p.weight.out_features - first);
    RETURN_IF_ERROR(
        Dequantize(RowsOf(p.weight, first, count), p.x.dtype, workspace.weights, stream));
    GemmParams params = all;
    params.w = workspace.weights;
    params.y = static_cast<std::byte*>(p.y) + first * static_cast<int64_t>(SizeOf(p.y_dtype));
    params.n = count;
    if (p.y_stride == 0 && params.n != p.weight.out_features)
      params.y_stride = p.weight.out_features;
    if (p.bias != nullptr) params.bias = p.bias + first;
    RETURN_IF_ERROR(Gemm(params, stream));
  }
  return Status::Ok();
}

Status Project(const Product& product, CudaStream& stream) {
  if (IsWidened(product.weight)) return ProjectIntegers(product, stream);
  return Gemm(ParamsOf(product), stream);
}

// The scales that a product of `weight` in `sum_dtype` leaves to its reader; none but of FP8.
PendingScales PendingOf(const Activation& x, const Weight& weight, DType sum_dtype) {
  if (!IsRowFp8(weight)) return {};
  return {.token = x.scales,
          .feature = weight.scales,
          .factor = 1 / Fp8ProductScale(sum_dtype, weight.in_features)};
}

// Adapters beside the product of a linear: Shrink before it, Expand behind it. Without adapters
// both do nothing.
class Adapters {
 public:
  // `y`: what the product is put into, of `num_sites` linears side by side.
  Adapters(const LoraTerm& lora, LoraSite first_site, int num_sites, const TensorView& x,
           const TensorView& y)
      : has_any_(lora.batch != nullptr) {
    if (has_any_) params_ = LoraParamsOf(lora, first_site, num_sites, x, y);
  }
  bool has_any() const { return has_any_; }
  Status Shrink(CudaStream& stream) const {
    return has_any_ ? LoraShrink(params_, stream) : Status::Ok();
  }
  Status Expand(CudaStream& stream) const {
    return has_any_ ? LoraExpand(params_, stream) : Status::Ok();
  }
  // Of tokens with adapters y is act(z + what these add + bias) instead.
  void ActivateInto(const TensorView& y, const float* bias, ActivationKind activation) {
    params_.y = y.data;
    params_.bias = bias;
    params_.activation = activation;
  }

 private:
  bool has_any_;
  LoraAddParams params_;
};

// Gate and up as one weight of twice the rows, where they lie one behind the other.
bool AreAdjacent(const Weight& gate, const Weight& up) {
  if (gate.layout != up.layout || up.data != DataOf(gate) + gate.out_features * RowBytes(gate))
    return false;
  if (!IsWidened(gate)) return true;
  const int64_t num_scales = gate.out_features * gate.num_groups();
  if (gate.dtype == DType::kF4E2M1) return up.exponents == gate.exponents + num_scales;
  const bool offsets_too =
      gate.offsets == nullptr ? up.offsets == nullptr : up.offsets == gate.offsets + num_scales;
  return gate.group_size == up.group_size && up.scales == gate.scales + num_scales && offsets_too;
}

Status Validate(const LinearParams& p) {
  RETURN_IF_ERROR(ExpectWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  RETURN_IF_ERROR(ExpectProduct("y", p.y, p.x, p.weight.out_features));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, {DType::kF32}, {p.weight.out_features}));
  if (p.lora.batch != nullptr && p.y.dtype != p.x.values.dtype)
    return InvalidArgument(fmt::format("y: got {}, beside adapters it has the dtype of x, {}",
                                       DTypeName(p.y.dtype), DTypeName(p.x.values.dtype)));
  if (p.lora.batch != nullptr && p.activation != ActivationKind::kNone)
    RETURN_IF_ERROR(Expect("workspace", p.workspace, {p.x.values.dtype},
                           {p.x.values.shape[0], p.weight.out_features}));
  if (!p.defer_scales || (p.bias.empty() && p.activation == ActivationKind::kNone))
    return Status::Ok();
  return InvalidArgument("defer_scales: a bias or an activation comes after the scales");
}

Status Validate(const GatedLinearParams& p) {
  RETURN_IF_ERROR(ExpectWeight("gate", p.gate));
  RETURN_IF_ERROR(ExpectWeight("up", p.up));
  if (p.gate.dtype != p.up.dtype || p.gate.out_features != p.up.out_features ||
      p.gate.in_features != p.up.in_features)
    return InvalidArgument(fmt::format(
        "up: got {} [{}, {}], needed {} [{}, {}] as gate", DTypeName(p.up.dtype), p.up.out_features,
        p.up.in_features, DTypeName(p.gate.dtype), p.gate.out_features, p.gate.in_features));
  RETURN_IF_ERROR(ExpectInput(p.x, p.gate));
  const int64_t num_tokens = p.x.values.shape[0];
  const int64_t n = p.gate.out_features;
  const DType dtype = ModelDType(p.x.values, p.workspace);
  RETURN_IF_ERROR(ExpectOrEmpty("gate_bias", p.gate_bias, {DType::kF32}, {n}));
  RETURN_IF_ERROR(ExpectOrEmpty("up_bias", p.up_bias, {DType::kF32}, {n}));
  RETURN_IF_ERROR(Expect("workspace", p.workspace, {dtype}, {num_tokens, 2 * n}));
  if (p.y.dtype != DType::kF8E4M3) return Expect("y", p.y, {dtype}, {num_tokens, n});
  RETURN_IF_ERROR(Expect("y", p.y, {DType::kF8E4M3}, {num_tokens, n}));
  return Expect("y_scales", p.y_scales, {DType::kF32}, {num_tokens});
}

// What RopeKv checks itself, the cache and the batch, is left to it.
Status Validate(const QkvRopeKvParams& p) {
  RETURN_IF_ERROR(ExpectWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  const int64_t width = int64_t{p.num_heads + 2 * p.kv.num_kv_heads} * p.kv.head_dim;
  if (p.x.values.shape[0] != p.batch.num_tokens || p.weight.out_features != width)
    return InvalidArgument(fmt::format(
        "weight: got {} rows for x {}, needed {} for {} heads of {} over {} kv heads and {} tokens",
        p.weight.out_features, p.x.values.ToString(), width, p.num_heads, p.kv.head_dim,
        p.kv.num_kv_heads, p.batch.num_tokens));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, {DType::kF32}, {width}));
  return Expect("workspace", p.workspace, {ModelDType(p.x.values, p.workspace)},
                {p.batch.num_tokens, width});
}

Status Validate(const LmHeadParams& p) {
  RETURN_IF_ERROR(ExpectWeight("weight", p.weight));
  if (!IsRowFp8(p.weight)) {
    RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  } else if (p.x.values.shape.rank() != 2 || !IsHalf(p.x.values.dtype) ||
             p.x.values.shape[1] != p.weight.in_features) {
    return InvalidArgument(fmt::format(
        "x: got {}, needed [num_tokens, {}] float16 or bfloat16, which are rounded here",
        p.x.values.ToString(), p.weight.in_features));
  }
  const int64_t num_rows = p.rows.num_elements();
  RETURN_IF_ERROR(Expect("rows", p.rows, {DType::kI32}, {num_rows}));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, {DType::kF32}, {p.weight.out_features}));
  return Expect("logits", p.logits, {DType::kF32}, {num_rows, p.weight.out_features});
}

}  // namespace

Status QkvRopeKv(const QkvRopeKvParams& params, Stream& stream) {
  RETURN_IF_ERROR(Validate(params));
  if (params.batch.num_tokens == 0) return Status::Ok();
  CudaStream& cuda_stream = AsCuda(stream);
  const Adapters adapters(params.lora, LoraSite::kQkv, 1, params.x.values, params.workspace);
  RETURN_IF_ERROR(adapters.Shrink(cuda_stream));
  RETURN_IF_ERROR(Project({.x = params.x.values,
                           .weight = params.weight,
                           .y = params.workspace.data,
                           .y_dtype = params.workspace.dtype},
                          cuda_stream));
  RETURN_IF_ERROR(adapters.Expand(cuda_stream));
  return RopeKv(params, PendingOf(params.x, params.weight, params.workspace.dtype), cuda_stream);
}

Status Linear(const LinearParams& params, Stream& stream) {
  RETURN_IF_ERROR(Validate(params));
  const int64_t num_tokens = params.x.values.shape[0];
  if (num_tokens == 0) return Status::Ok();
  CudaStream& cuda_stream = AsCuda(stream);
  const bool is_fp8 = IsRowFp8(params.weight);
  Product product = {
      .x = params.x.values, .weight = params.weight, .y = params.y.data, .y_dtype = params.y.dtype};
  if (!is_fp8) {
    product.bias = FloatsOf(params.bias);
    product.activation = params.activation;
  }
  const bool activates = params.activation != ActivationKind::kNone;
  Adapters adapters(params.lora, params.site, 1, params.x.values,
                    activates ? params.workspace : params.y);
  RETURN_IF_ERROR(adapters.Shrink(cuda_stream));
  RETURN_IF_ERROR(Project(product, cuda_stream));
  // What adapters add comes before an activation: their tokens need the product once more, without
  // it. The others keep the bits that they have in y.
  if (adapters.has_any() && activates) {
    product.y = params.workspace.data;
    product.bias = nullptr;
    product.activation = ActivationKind::kNone;
    RETURN_IF_ERROR(Project(product, cuda_stream));
    adapters.ActivateInto(params.y, FloatsOf(params.bias), params.activation);
  }
  RETURN_IF_ERROR(adapters.Expand(cuda_stream));
  if (!is_fp8 || params.defer_scales) return Status::Ok();
  return Epilogue({.y = params.y.data,
                   .dtype = params.y.dtype,
                   .m = num_tokens,
                   .n = params.weight.out_features,
                   .token_scales = FloatsOf(params.x.scales),
                   .token_factor = PendingOf(params.x, params.weight, params.y.dtype).factor,
                   .feature_scales = params.weight.scales,
                   .bias = FloatsOf(params.bias),
                   .activation = params.activation},
                  cuda_stream);
}

Status GatedLinear(const GatedLinearParams& params, Stream& stream) {
  RETURN_IF_ERROR(Validate(params));
  const int64_t num_tokens = params.x.values.shape[0];
  if (num_tokens == 0) return Status::Ok();
  CudaStream& cuda_stream = AsCuda(stream);
  const int64_t n = params.gate.out_features;
  const TensorView& gate_up = params.workspace;
  static_assert(static_cast<int>(LoraSite::kGate) == static_cast<int>(LoraSite::kFc) + 1);
  const Adapters adapters(params.lora, LoraSite::kFc, 2, params.x.values, gate_up);
  RETURN_IF_ERROR(adapters.Shrink(cuda_stream));
  if (AreAdjacent(params.gate, params.up)) {
    Weight both = params.gate;
    both.out_features = 2 * n;
    RETURN_IF_ERROR(
        Project({.x = params.x.values, .weight = both, .y = gate_up.data, .y_dtype = gate_up.dtype},
                cuda_stream));
  } else {
    Product product = {.x = params.x.values,
                       .weight = params.gate,
                       .y = gate_up.data,
                       .y_dtype = gate_up.dtype,
                       .y_stride = 2 * n};
    RETURN_IF_ERROR(Project(product, cuda_stream));
    product.weight = params.up;
    product.y = gate_up.as<std::byte>() + n * static_cast<int64_t>(SizeOf(gate_up.dtype));
    RETURN_IF_ERROR(Project(product, cuda_stream));
  }
  RETURN_IF_ERROR(adapters.Expand(cuda_stream));
  const bool is_fp8 = IsRowFp8(params.gate);
  return Gate({.gate_up = params.workspace.data,
               .dtype = params.workspace.dtype,
               .num_tokens = num_tokens,
               .n = n,
               .token_scales = is_fp8 ? FloatsOf(params.x.scales) : nullptr,
               .token_factor = PendingOf(params.x, params.gate, params.workspace.dtype).factor,
               .gate_scales = is_fp8 ? params.gate.scales : nullptr,
               .up_scales = is_fp8 ? params.up.scales : nullptr,
               .gate_bias = FloatsOf(params.gate_bias),
               .up_bias = FloatsOf(params.up_bias),
               .activation = params.activation,
               .y = params.y,
               .y_scales = params.y_scales},
              cuda_stream);
}

// Logits of gathered rows x. FP8 weights read them rounded, as other linears do.
Status ProjectHead(const LmHeadParams& params, const TensorView& x, float* logits,
                   CudaStream& stream) {
  const StreamWorkspace& workspace = stream.workspace();
  Product product = {.x = x, .weight = params.weight, .y = logits, .y_dtype = DType::kF32};
  EpilogueParams epilogue = {.y = logits,
                             .dtype = DType::kF32,
                             .m = x.shape[0],
                             .n = params.weight.out_features,
                             .factor = params.scale,
                             .softcap = params.softcap};
  if (!IsRowFp8(params.weight)) {
    product.bias = FloatsOf(params.bias);
    if (params.bias.empty()) std::swap(product.scale, epilogue.factor);
    RETURN_IF_ERROR(Project(product, stream));
    return Epilogue(epilogue, stream);
  }
  if (workspace.gathered_codes == nullptr)
    return InvalidArgument(
        fmt::format("weight: got {}, which this stream was not made for (weight_dtype)",
                    DTypeName(params.weight.dtype)));
  const int64_t num_rows = x.shape[0];
  product.x = {.data = workspace.gathered_codes, .dtype = DType::kF8E4M3, .shape = x.shape};
  const TensorView scales = {
      .data = workspace.gathered_scales, .dtype = DType::kF32, .shape = {num_rows}};
  RETURN_IF_ERROR(Quantize({.x = x, .y = product.x, .scales = scales}, stream));
  RETURN_IF_ERROR(Project(product, stream));
  epilogue.token_scales = FloatsOf(scales);
  epilogue.feature_scales = params.weight.scales;
  epilogue.bias = FloatsOf(params.bias);
  return Epilogue(epilogue, stream);
}

// The host cannot read `rows`, so they are always gathered: a microsecond of a step.
Status LmHead(const LmHeadParams& params, Stream& stream) {
  RETURN_IF_ERROR(Validate(params));
  CudaStream& cuda_stream = AsCuda(stream);
  const StreamWorkspace& workspace = cuda_stream.workspace();
  const TensorView& x = params.x.values;
  const int64_t num_rows = params.rows.num_elements();
  const int64_t row_bytes = x.shape[1] * static_cast<int64_t>(SizeOf(x.dtype));
  const int64_t capacity = static_cast<int64_t>(workspace.gathered_bytes) / row_bytes;
  if (num_rows > 0 && capacity == 0)
    return InvalidArgument(fmt::format("x: got {}, this stream was made for a hidden_size of {}",
                                       x.ToString(), workspace.gathered_bytes / SizeOf(x.dtype)));
  for (int64_t first = 0; first < num_rows; first += capacity) {
    const int64_t count = std::min(capacity, num_rows - first);
    RETURN_IF_ERROR(GatherRows(x.data, params.rows.as<const int32_t>() + first, count, row_bytes,
                               workspace.gathered, cuda_stream));
    RETURN_IF_ERROR(ProjectHead(
        params, {.data = workspace.gathered, .dtype = x.dtype, .shape = {count, x.shape[1]}},
        params.logits.as<float>() + first * params.weight.out_features, cuda_stream));
  }
  return Status::Ok();
}

}  // namespace inflight::ops::cuda
