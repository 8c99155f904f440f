// SPDX-License-Identifier: Apache-2.0
// Checkpoints of TensorRT-LLM whose weights stand for numbers by scales of the whole tensor, of
// groups or of rows, beside factors of columns (tensorrt_llm/models/modeling_utils.py,
// preprocess_weights, and tensorrt_llm/quantization/layer.py):
//
//   FP8                          weight e4m3 or its bytes [out, in]; weights_scaling_factor [1]
//   W4A16_AWQ                    weight int8 [out / 2, in], of rows 2j (low bits) and 2j + 1;
//                                weights_scaling_factor [out, in / group_size];
//                                prequant_scaling_factor [in], by which activations are multiplied
//   W8A8_SQ_..._PER_TOKEN_...    weight int8 [out, in]; per_channel_scale [out] or [1];
//                                smoother [in], by which activations are divided
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

// The elements of `tensor`, one for each of `in` columns.
Result<std::vector<float>> FactorsOf(const Module& module, std::string_view tensor, int64_t in) {
  ASSIGN_OR_RETURN(const StoredTensor* const found, module.Get(tensor));
  const Shape shape = found->shape.rank() == 2 ? Shape{1, in} : Shape{in};
  RETURN_IF_ERROR(module.Get(tensor, kScaleDTypes, shape).status());
  std::vector<float> factors(static_cast<size_t>(in));
  for (size_t k = 0; k < factors.size(); ++k)
    factors[k] = LoadFloat(found->data.data(), found->dtype, static_cast<int64_t>(k));
  return factors;
}

// The weight of `matrix`, with the factors that `tensor` has where it is there. Factors of 1 change
// nothing, and the codes are kept.
Result<Weight> WithFactors(const Module& module, const PackedMatrix& matrix,
                           std::string_view tensor, bool divides) {
  StoredTensor widened = matrix.AsTensor(module.NameOf("weight"));
  std::vector<float> factors;
  if (module.Find(tensor) != nullptr) {
    ASSIGN_OR_RETURN(factors, FactorsOf(module, tensor, matrix.in_features));
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
    ASSIGN_OR_RETURN(const StoredTensor* const codes,
                     module.GetMatrix("weight", is_bytes ? DType::kI8 : DType::kF8E4M3));
    PackedMatrix matrix{.out_features = codes->shape[0],
                        .in_features = codes->shape[1],
                        .bits = 8,
                        .layout = CodeLayout::kFp8,
                        .codes = codes->data};
    RETURN_IF_ERROR(SetScale(module, "weights_scaling_factor", matrix));
    return Weight{.widened = matrix.AsTensor(module.NameOf("weight")),
                  .native = NativeFormOf(module, matrix)};
  }
};

class UpstreamAwq final : public Method {
 public:
  std::string Describe() const override { return "AWQ, int4 in groups, factors of columns"; }
  std::vector<std::string_view> Parts() const override {
    return {"weight", "weights_scaling_factor", "prequant_scaling_factor"};
  }

 protected:
  bool IsPacked(const Module& module) const override {
    return HasBytes(module) || module.Find("weights_scaling_factor") != nullptr;
  }
  Result<Weight> Unpack(const Module& module) const override {
    ASSIGN_OR_RETURN(const StoredTensor* const codes, module.GetMatrix("weight", DType::kI8));
    ASSIGN_OR_RETURN(const StoredTensor* const scales, module.Get("weights_scaling_factor"));
    PackedMatrix matrix{.out_features = 2 * codes->shape[0],
                        .in_features = codes->shape[1],
                        .layout = CodeLayout::kRowPairs,
                        .codes = codes->data,
                        .zero = 8};
    const int64_t num_groups = scales->shape.rank() == 2 ? scales->shape[1] : 0;
    if (num_groups == 0 || matrix.in_features % num_groups != 0)
      return InvalidArgument(fmt::format(
          "{}: shape {}, a scale for each of {} rows and each group of the {} columns of {} is "
          "needed",
          module.NameOf("weights_scaling_factor"), scales->shape.ToString(), matrix.out_features,
          matrix.in_features, module.NameOf("weight")));
    RETURN_IF_ERROR(
        SetGroupScales(module, "weights_scaling_factor", matrix.in_features / num_groups, matrix));
    return WithFactors(module, matrix, "prequant_scaling_factor", /*divides=*/false);
  }
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
    PackedMatrix matrix{.out_features = codes->shape[0],
                        .in_features = codes->shape[1],
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
    return WithFactors(module, matrix, "smoother", /*divides=*/true);
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
  if (has_zeros) return NotSupported(fields, "has_zero_point", "only false is supported of AWQ");
  return std::shared_ptr<const Method>(std::make_shared<UpstreamAwq>());
}

}  // namespace inflight::quantized
