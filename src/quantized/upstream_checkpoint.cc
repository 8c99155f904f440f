// SPDX-License-Identifier: Apache-2.0
// Checkpoints of TensorRT-LLM whose weights stand for numbers by scales of the whole tensor, of
// groups or of rows, beside factors of columns (tensorrt_llm/models/modeling_utils.py,
// preprocess_weights, and tensorrt_llm/quantization/layer.py):
//
//   FP8                          weight e4m3 or its bytes [out, in]; weights_scaling_factor [1]
//   W4A16_AWQ                    weight int8 [out / 2, in], of rows 2j (low bits) and 2j + 1;
//                                weights_scaling_factor [out, in / group_size];
//                                prequant_scaling_factor [in], by which activations are multiplied;
//                                zero [in / group_size, out], the offset (8 - z) s of a zero point
//   W8A8_SQ_..._PER_TOKEN_...    weight int8 [out, in]; per_channel_scale [out] or [1];
//                                smoother [in], by which activations are divided
//
// In the first two experts have a dimension before these: weight [num_experts, out, in], FP8's
// weights_scaling_factor [num_experts, 1] (tensorrt_llm/layers/moe.py).
//
// A factor of activations is one of the weight's columns. Scales of activations are left out.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "quantized/method.h"
#include "tensor/element.h"

namespace inflight::quantized {
namespace {

using artifact::StoredTensor;

// A matrix of floats whose columns are multiplied by factors, or divided by them.
class ColumnFactors final : public artifact::TensorReader {
 public:
  ColumnFactors(StoredTensor matrix, std::vector<float> factors, bool divides)
      : matrix_(std::move(matrix)), factors_(std::move(factors)), divides_(divides) {}

  void Read(const artifact::TensorBlock& block, void* out) const override {
    matrix_.reader->Read(block, out);
    auto* values = static_cast<float*>(out);
    for (int64_t row = 0; row < block.num_rows; ++row)
      for (int64_t k = block.column; k < block.column + block.num_columns; ++k, ++values) {
        const float factor = factors_[static_cast<size_t>(k)];
        *values = divides_ ? *values / factor : *values * factor;
      }
  }

 private:
  StoredTensor matrix_;
  std::vector<float> factors_;  // [in]
  bool divides_;
};

// Whether the weight is no floats of its own.
bool HasBytes(const Module& module) {
  const StoredTensor* const weight = module.Find("weight");
  return weight != nullptr && (weight->dtype == DType::kI8 || weight->dtype == DType::kF8E4M3);
}

// Codes of a matrix, or of one of each expert, which lie one behind the other.
struct Stack {
  const StoredTensor* codes = nullptr;
  int64_t num_experts = 0;  // 0: one matrix, without a dimension of experts
  int64_t rows = 0;         // of each
  int64_t columns = 0;

  int64_t size() const { return std::max<int64_t>(num_experts, 1); }
  // Of a tensor that has a matrix for each.
  Shape ShapeOf(int64_t a, int64_t b) const {
    return num_experts == 0 ? Shape{a, b} : Shape{num_experts, a, b};
  }
};

Result<Stack> StackOf(const Module& module, DType dtype) {
  ASSIGN_OR_RETURN(const StoredTensor* const found, module.Get("weight"));
  const Shape& shape = found->shape;
  if (shape.rank() != 3) {
    ASSIGN_OR_RETURN(const StoredTensor* const codes, module.GetMatrix("weight", dtype));
    return Stack{codes, 0, shape[0], shape[1]};
  }
  if (shape.num_elements() == 0)
    return InvalidArgument(fmt::format("{}: shape {}, a matrix of each expert is needed",
                                       module.NameOf("weight"), shape.ToString()));
  ASSIGN_OR_RETURN(const StoredTensor* const codes, module.Get("weight", {dtype}, shape));
  return Stack{codes, shape[0], shape[1], shape[2]};
}

// The weight that `matrix` has of all of them.
StoredTensor TensorOf(const Module& module, const Stack& stack, const PackedMatrix& matrix) {
  StoredTensor tensor = matrix.AsTensor(module.NameOf("weight"));
  tensor.shape = stack.ShapeOf(matrix.out_features / stack.size(), matrix.in_features);
  return tensor;
}

// The elements of `tensor`, one for each of `in` columns. Experts have the same.
Result<std::vector<float>> FactorsOf(const Module& module, std::string_view tensor,
                                     const Stack& stack, int64_t in) {
  ASSIGN_OR_RETURN(const StoredTensor* const found, module.Get(tensor));
  const bool is_of_each = stack.num_experts > 0 && found->shape.rank() == 2 && found->shape[0] > 1;
  const int64_t num_rows = is_of_each ? stack.num_experts : 1;
  const Shape shape = found->shape.rank() == 2 ? Shape{num_rows, in} : Shape{in};
  RETURN_IF_ERROR(module.Get(tensor, kScaleDTypes, shape).status());
  std::vector<float> factors(static_cast<size_t>(in));
  for (int64_t i = 0; i < num_rows * in; ++i) {
    const float factor = LoadFloat(found->data.data(), found->dtype, i);
    float& of_column = factors[static_cast<size_t>(i % in)];
    if (i < in) of_column = factor;
    if (of_column != factor)
      return Unimplemented(
          fmt::format("{}: got {} of column {} of expert {}, expert 0 has {}; only factors that "
                      "all experts share are supported",
                      module.NameOf(tensor), factor, i % in, i / in, of_column));
  }
  return factors;
}

// The weight of `matrix`, with the factors that `tensor` has where it is there. Factors of 1 change
// nothing, and the codes are kept.
Result<Weight> WithFactors(const Module& module, const Stack& stack, const PackedMatrix& matrix,
                           std::string_view tensor, bool divides) {
  StoredTensor widened = TensorOf(module, stack, matrix);
  std::vector<float> factors;
  if (module.Find(tensor) != nullptr) {
    ASSIGN_OR_RETURN(factors, FactorsOf(module, tensor, stack, matrix.in_features));
  }
  if (std::ranges::all_of(factors, [](float factor) { return factor == 1; }))
    return Weight{.widened = std::move(widened), .native = NativeFormOf(module, matrix)};
  const auto reader = std::make_shared<ColumnFactors>(widened, std::move(factors), divides);
  widened.reader = reader;
  return Weight{.widened = std::move(widened), .native = {}};
}

class UpstreamFp8 final : public Method {
 public:
  std::string Describe() const override { return "FP8, a scale per tensor, static activations"; }
  std::vector<std::string_view> Parts() const override {
    return {"weight", "weights_scaling_factor", "activation_scaling_factor"};
  }

 protected:
  bool IsPacked(const Module& module) const override {
    return HasBytes(module) || module.Find("weights_scaling_factor") != nullptr;
  }
  Result<Weight> Unpack(const Module& module) const override {
    ASSIGN_OR_RETURN(const StoredTensor* const found, module.Get("weight"));
    const bool is_bytes = found->dtype == DType::kI8;
    ASSIGN_OR_RETURN(const Stack stack, StackOf(module, is_bytes ? DType::kI8 : DType::kF8E4M3));
    PackedMatrix matrix{.out_features = stack.size() * stack.rows,
                        .in_features = stack.columns,
                        .bits = 8,
                        .layout = CodeLayout::kFp8,
                        .codes = stack.codes->data};
    if (stack.num_experts == 0) {
      RETURN_IF_ERROR(SetScale(module, "weights_scaling_factor", matrix));
    } else {
      RETURN_IF_ERROR(SetExpertScales(module, stack, matrix));
    }
    return Weight{.widened = TensorOf(module, stack, matrix),
                  .native = NativeFormOf(module, matrix)};
  }

 private:
  // One for each expert.
  static Status SetExpertScales(const Module& module, const Stack& stack, PackedMatrix& matrix) {
    constexpr std::string_view kScales = "weights_scaling_factor";
    ASSIGN_OR_RETURN(const StoredTensor* const found, module.Get(kScales));
    const Shape shape =
        found->shape.rank() == 1 ? Shape{stack.num_experts} : Shape{stack.num_experts, 1};
    RETURN_IF_ERROR(module.Get(kScales, kScaleDTypes, shape).status());
    matrix.scales = found->data;
    matrix.scale_dtype = found->dtype;
    matrix.block_rows = stack.rows;
    matrix.row_stride = 1;
    matrix.group_size = matrix.in_features;
    return Status::Ok();
  }
};

class UpstreamAwq final : public Method {
 public:
  explicit UpstreamAwq(bool has_zeros) : has_zeros_(has_zeros) {}

  std::string Describe() const override {
    return has_zeros_ ? "AWQ, int4 with zero points in groups, factors of columns"
                      : "AWQ, int4 in groups, factors of columns";
  }
  std::vector<std::string_view> Parts() const override {
    std::vector<std::string_view> parts = {"weight", "weights_scaling_factor",
                                           "prequant_scaling_factor"};
    if (has_zeros_) parts.emplace_back(kZero);
    return parts;
  }

 protected:
  bool IsPacked(const Module& module) const override {
    return HasBytes(module) || module.Find("weights_scaling_factor") != nullptr;
  }
  Result<Weight> Unpack(const Module& module) const override {
    ASSIGN_OR_RETURN(const Stack stack, StackOf(module, DType::kI8));
    PackedMatrix matrix{.out_features = stack.size() * 2 * stack.rows,
                        .in_features = stack.columns,
                        .layout = CodeLayout::kRowPairs,
                        .codes = stack.codes->data,
                        .zero = 8};
    RETURN_IF_ERROR(SetGroups(module, stack, matrix));
    if (has_zeros_) RETURN_IF_ERROR(SetZeros(module, stack, matrix));
    return WithFactors(module, stack, matrix, "prequant_scaling_factor", /*divides=*/false);
  }

 private:
  static constexpr std::string_view kZero = "zero";

  static Status SetGroups(const Module& module, const Stack& stack, PackedMatrix& matrix) {
    constexpr std::string_view kScales = "weights_scaling_factor";
    ASSIGN_OR_RETURN(const StoredTensor* const scales, module.Get(kScales));
    const int rank = stack.num_experts == 0 ? 2 : 3;
    const int64_t num_groups = scales->shape.rank() == rank ? scales->shape[rank - 1] : 0;
    if (num_groups == 0 || matrix.in_features % num_groups != 0)
      return InvalidArgument(fmt::format(
          "{}: shape {}, a scale for each of {} rows and each group of the {} columns of {} is "
          "needed",
          module.NameOf(kScales), scales->shape.ToString(), matrix.out_features, matrix.in_features,
          module.NameOf("weight")));
    RETURN_IF_ERROR(
        module.Get(kScales, kScaleDTypes, stack.ShapeOf(2 * stack.rows, num_groups)).status());
    matrix.scales = scales->data;
    matrix.scale_dtype = scales->dtype;
    matrix.num_groups = matrix.row_stride = num_groups;
    matrix.group_size = matrix.in_features / num_groups;
    matrix.group_stride = 1;
    return Status::Ok();
  }

  static Status SetZeros(const Module& module, const Stack& stack, PackedMatrix& matrix) {
    ASSIGN_OR_RETURN(
        const StoredTensor* const zeros,
        module.Get(kZero, kScaleDTypes, stack.ShapeOf(matrix.num_groups, 2 * stack.rows)));
    matrix.zero_layout = ZeroLayout::kOffsets;
    matrix.zeros = zeros->data;
    matrix.zero_dtype = zeros->dtype;
    matrix.zero_rows = 2 * stack.rows;
    if (matrix.HasMultiples()) return Status::Ok();
    return Unimplemented(
        fmt::format("{}: has offsets that are no multiple from -8 to 8 of their scales, as those "
                    "of zero points are; others are not supported",
                    module.NameOf(kZero)));
  }

  bool has_zeros_;
};

class UpstreamSmoothQuant final : public Method {
 public:
  std::string Describe() const override { return "SmoothQuant, int8, dynamic activations"; }
  std::vector<std::string_view> Parts() const override {
    return {"weight", "per_channel_scale", "smoother"};
  }

 protected:
  bool IsPacked(const Module& module) const override {
    return HasBytes(module) || module.Find("per_channel_scale") != nullptr;
  }
  Result<Weight> Unpack(const Module& module) const override {
    ASSIGN_OR_RETURN(const StoredTensor* const codes, module.GetMatrix("weight", DType::kI8));
    const Stack stack{codes, 0, codes->shape[0], codes->shape[1]};
    PackedMatrix matrix{.out_features = stack.rows,
                        .in_features = stack.columns,
                        .bits = 8,
                        .layout = CodeLayout::kInt8,
                        .codes = codes->data};
    ASSIGN_OR_RETURN(const StoredTensor* const scales, module.Get("per_channel_scale"));
    if (scales->shape.num_elements() == 1) {
      RETURN_IF_ERROR(SetScale(module, "per_channel_scale", matrix));
    } else {
      const Shape shape =
          scales->shape.rank() == 2 ? Shape{1, matrix.out_features} : Shape{matrix.out_features};
      RETURN_IF_ERROR(module.Get("per_channel_scale", kScaleDTypes, shape).status());
      matrix.scales = scales->data;
      matrix.scale_dtype = scales->dtype;
      matrix.row_stride = 1;
      matrix.group_size = matrix.in_features;
    }
    return WithFactors(module, stack, matrix, "smoother", /*divides=*/true);
  }
};

}  // namespace

Result<std::shared_ptr<const Method>> ReadCheckpointMethod(const nlohmann::json& quantization,
                                                           bool is_in_own_layout,
                                                           const std::string& where) {
  artifact::JsonFields fields(where, quantization);
  const std::string algo = fields.StringOr("quant_algo", "");
  const bool has_zeros = fields.BoolOr("has_zero_point", false);
  RETURN_IF_ERROR(fields.status());
  if (algo == "FP8") return std::shared_ptr<const Method>(std::make_shared<UpstreamFp8>());
  if (algo == "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN" ||
      algo == "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN")
    return std::shared_ptr<const Method>(std::make_shared<UpstreamSmoothQuant>());
  if (algo != "W4A16_AWQ" || is_in_own_layout) return std::shared_ptr<const Method>();
  return std::shared_ptr<const Method>(std::make_shared<UpstreamAwq>(has_zeros));
}

}  // namespace inflight::quantized
