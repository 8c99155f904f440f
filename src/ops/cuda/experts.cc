// SPDX-License-Identifier: Apache-2.0
// The operators of experts: checks of what the host can see, then the kernels of experts.h.
#include "ops/cuda/experts.h"

#include <fmt/format.h>

#include <bit>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/tensor_core_order.h"

namespace inflight::ops::cuda {
namespace {

// Their tiles, of 128 places where there are many and at most one more for each expert, are the
// second dimension of a grid: at most 65,535.
constexpr int64_t kMaxPlaces = (65535 - kMaxExperts) * int64_t{128};

Status ExpectRoutes(const ExpertRoutes& routes, int64_t num_places) {
  const int64_t num_experts = routes.begins.num_elements() - 1;
  if (num_experts < 1 || num_experts > kMaxExperts)
    return InvalidArgument(
        fmt::format("routes.begins: got {} experts, needed [1, {}]", num_experts, kMaxExperts));
  if (num_places > kMaxPlaces)
    return InvalidArgument(
        fmt::format("routes.tokens: got {} places, needed at most {}", num_places, kMaxPlaces));
  RETURN_IF_ERROR(Expect("routes.begins", routes.begins, {DType::kI32}, {num_experts + 1}));
  RETURN_IF_ERROR(Expect("routes.tokens", routes.tokens, {DType::kI32}, {num_places}));
  RETURN_IF_ERROR(Expect("routes.weights", routes.weights, {DType::kF32}, {num_places}));
  return Expect("routes.places", routes.places, {DType::kI32}, {num_places});
}

// What the kernels of packed experts are told of groups.
int GroupShift(const Weight& weight) {
  constexpr int kWholeRows = 31;
  if (weight.group_size == 0 || weight.group_size == weight.in_features) return kWholeRows;
  return std::countr_zero(static_cast<uint64_t>(weight.group_size));
}

bool IsPacked(const Weight& weight) {
  return weight.layout == WeightLayout::kTensorCore &&
         ExpertsTakeCodes({.codes = weight.dtype,
                           .in_features = weight.in_features,
                           .group_size = weight.group_size}) &&
         (weight.dtype == DType::kF4E2M1
              ? weight.exponents != nullptr && IsAligned(weight.exponents)
              : weight.scales != nullptr && IsAligned(weight.scales)) &&
         (weight.offsets == nullptr || IsAligned(weight.offsets));
}

Status ExpectWeight(const Weight& weight) {
  const bool is_fp8 = weight.dtype == DType::kF8E4M3;
  const bool is_plain = (IsHalf(weight.dtype) || (is_fp8 && weight.scales != nullptr)) &&
                        weight.layout == WeightLayout::kRowMajor && weight.group_size == 0 &&
                        weight.in_features % (is_fp8 ? 16 : 8) == 0;
  if (!weight.empty() && weight.in_features > 0 && IsAligned(weight.data) &&
      (is_plain || IsPacked(weight)))
    return Status::Ok();
  return InvalidArgument(fmt::format(
      "weight: got {} {} [{}, {}] in groups of {}, experts have float16, bfloat16 or FP8 with "
      "scales, row_major, rows of a multiple of 16 bytes; or, tensor_core, float4 with exponents "
      "of "
      "groups of {}, rows of a multiple of {}, FP8 in groups of 128, int8 and int4 in groups of a "
      "power of two or one of each row, rows of a multiple of 64 or 128",
      DTypeName(weight.dtype), WeightLayoutName(weight.layout), weight.out_features,
      weight.in_features, weight.group_size, kFloat4Unit, 2 * kFloat4Unit));
}

// The dtype of x, and of a gated y, that `weight` is computed with; `x` is what there is.
DType OperandDType(const Weight& weight, const TensorView& x) {
  if (!IsInteger(weight.dtype) && !IsGroupedFp8(weight)) return weight.dtype;
  return IsHalf(x.dtype) ? x.dtype : DType::kBF16;
}

// A weight of `num_experts` times `rows`, and x that it reads.
Status ExpectOperands(const Activation& x, const Weight& weight, int64_t num_experts,
                      int64_t rows) {
  RETURN_IF_ERROR(ExpectWeight(weight));
  if (rows % kExpertPanel != 0 || weight.out_features != num_experts * rows)
    return InvalidArgument(
        fmt::format("weight: got {} rows, needed {} of each of {} experts, a multiple of {}",
                    weight.out_features, rows, num_experts, kExpertPanel));
  const DType dtype = OperandDType(weight, x.values);
  RETURN_IF_ERROR(ExpectMatrix("x", x.values, {dtype}));
  RETURN_IF_ERROR(Expect("x", x.values, {dtype}, {x.values.shape[0], weight.in_features}));
  if (dtype == DType::kF8E4M3)
    RETURN_IF_ERROR(Expect("x.scales", x.scales, {DType::kF32}, {x.values.shape[0]}));
  if (IsAligned(x.values.data)) return Status::Ok();
  return InvalidArgument("x: rows of experts begin at multiples of 16 bytes");
}

ExpertProduct ProductOf(const Activation& x, const ExpertRoutes& routes, const Weight& weight,
                        const TensorView& bias, int64_t width) {
  return {.dtype = x.values.dtype,
          .x = x.values.data,
          .begins = routes.begins.as<const int32_t>(),
          .w = weight.data,
          .bias = bias.empty() ? nullptr : bias.as<const float>(),
          .k = weight.in_features,
          .packed = IsPacked(weight) ? std::optional(weight.dtype) : std::nullopt,
          .x_scales = x.scales.empty() ? nullptr : x.scales.as<const float>(),
          .w_scales = weight.scales,
          .w_offsets = weight.offsets,
          .exponents = weight.exponents,
          .group_shift = GroupShift(weight),
          .width = static_cast<int>(width),
          .num_experts = static_cast<int>(routes.begins.num_elements() - 1),
          .num_places = static_cast<int>(routes.tokens.num_elements()),
          .num_holders = routes.num_holders};
}

}  // namespace

Status Route(const RouteParams& p, Stream& stream) {
  RETURN_IF_ERROR(ExpectMatrix("logits", p.logits, {DType::kF32}));
  const int64_t num_tokens = p.logits.shape[0];
  RETURN_IF_ERROR(CheckNumbers(p));
  const int64_t num_places = num_tokens * PlacesOfToken(p);
  RETURN_IF_ERROR(ExpectRoutes(p.routes, num_places));
  RETURN_IF_ERROR(Expect("chosen", p.chosen, {DType::kI32}, {num_places}));
  RETURN_IF_ERROR(Expect("chosen_weights", p.chosen_weights, {DType::kF32}, {num_places}));
  return num_tokens == 0 ? Status::Ok() : LaunchRoute(p, AsCuda(stream));
}

Status ExpertGatedLinear(const ExpertGatedLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(ExpectMatrix("y", p.y, {OperandDType(p.weight, p.x.values)}));
  const int64_t num_places = p.y.shape[0];
  const int64_t width = p.y.shape[1];
  const bool is_fp8 = p.weight.dtype == DType::kF8E4M3 && p.weight.group_size == 0;
  const TensorView& product_y = is_fp8 ? p.workspace : p.y;
  if (is_fp8)
    RETURN_IF_ERROR(
        Expect("workspace", p.workspace, {DType::kF16, DType::kBF16}, {num_places, width}));
  RETURN_IF_ERROR(ExpectRoutes(p.routes, num_places));
  RETURN_IF_ERROR(ExpectOperands(p.x, p.weight, p.routes.begins.num_elements() - 1, 2 * width));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, {DType::kF32}, {p.weight.out_features}));
  if (width % kExpertPanel != 0 || !IsAligned(product_y.data))
    return InvalidArgument(fmt::format("y: got {}, needed a width of a multiple of {}, aligned",
                                       p.y.ToString(), kExpertPanel));
  if (!(p.limit >= 0))
    return InvalidArgument(fmt::format("limit: got {}, needed 0 or one above it", p.limit));
  if (num_places == 0) return Status::Ok();
  ExpertProduct product = ProductOf(p.x, p.routes, p.weight, p.bias, width);
  product.tokens = p.routes.tokens.as<const int32_t>();
  product.y_dtype = product_y.dtype;
  product.y = product_y.data;
  product.activation = p.activation;
  product.limit = p.limit;
  RETURN_IF_ERROR(LaunchExpertGated(product, AsCuda(stream)));
  if (!is_fp8) return Status::Ok();
  return Quantize({.x = p.workspace, .y = p.y, .scales = p.y_scales}, stream);
}

Status ExpertLinear(const ExpertLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(ExpectMatrix("y", p.y, {DType::kF32, DType::kF16, DType::kBF16}));
  const int64_t num_tokens = p.y.shape[0];
  const int64_t width = p.y.shape[1];
  const int64_t num_places = p.routes.tokens.num_elements();
  RETURN_IF_ERROR(ExpectRoutes(p.routes, num_places));
  RETURN_IF_ERROR(ExpectOperands(p.x, p.weight, p.routes.begins.num_elements() - 1, width));
  RETURN_IF_ERROR(Expect("x", p.x.values, {p.x.values.dtype}, {num_places, p.weight.in_features}));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, {DType::kF32}, {p.weight.out_features}));
  RETURN_IF_ERROR(Expect("workspace", p.workspace, {DType::kF32}, {num_places, width}));
  if (!IsAligned(p.workspace.data) || !IsAligned(p.y.data))
    return InvalidArgument("y: rows of y and workspace begin at multiples of 16 bytes");
  if (num_tokens == 0) return Status::Ok();
  if (num_places % num_tokens != 0)
    return InvalidArgument(fmt::format("x: got {} places of {} tokens, needed equally many of each",
                                       num_places, num_tokens));
  ExpertProduct product = ProductOf(p.x, p.routes, p.weight, p.bias, width);
  product.y = p.workspace.data;
  product.weights = p.routes.weights.as<const float>();
  RETURN_IF_ERROR(LaunchExpertDown(product, AsCuda(stream)));
  return LaunchExpertSum({.parts = p.workspace.as<const float>(),
                          .places = p.routes.places.as<const int32_t>(),
                          .num_tokens = static_cast<int>(num_tokens),
                          .per_token = static_cast<int>(num_places / num_tokens),
                          .has_all = p.routes.num_holders == 1,
                          .width = static_cast<int>(width),
                          .y_dtype = p.y.dtype,
                          .y = p.y.data},
                         AsCuda(stream));
}

}  // namespace inflight::ops::cuda
