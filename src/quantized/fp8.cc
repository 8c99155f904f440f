// SPDX-License-Identifier: Apache-2.0
// Hugging Face's "fp8": weights in float8_e4m3fn with
//
//   weight_scale_inv [ceil(out / r), ceil(in / c)] of blocks of weight_block_size [r, c], as
//   DeepSeek and Qwen publish them (huggingface/transformers/src/transformers/integrations/
//   finegrained_fp8.py), or without that field
//   weight_scale, one for the tensor, as AutoFP8 writes it (neuralmagic/AutoFP8)
//
//   w[n, k] = q[n, k] * s
//
// Scales of activations (input_scale, activation_scale) are left out: activations are not rounded
// to them.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "quantized/method.h"

namespace inflight::quantized {
namespace {

using artifact::StoredTensor;

class Fp8 final : public Method {
 public:
  Fp8(std::optional<BlockSize> block, bool is_static) : block_(block), is_static_(is_static) {}

  std::string Describe() const override {
    return fmt::format(
        "FP8, {}, {} activations",
        block_ ? fmt::format("a scale per block of {} x {}", block_->rows, block_->columns)
               : "a scale per tensor",
        is_static_ ? "static" : "dynamic");
  }

  std::vector<std::string_view> Parts() const override {
    return {"weight", "weight_scale_inv", "weight_scale", "input_scale", "activation_scale"};
  }

 protected:
  bool IsPacked(const Module& module) const override {
    const StoredTensor* const weight = module.Find("weight");
    return (weight != nullptr && weight->dtype == DType::kF8E4M3) ||
           module.Find("weight_scale_inv") != nullptr || module.Find("weight_scale") != nullptr;
  }

  Result<Weight> Unpack(const Module& module) const override {
    ASSIGN_OR_RETURN(const StoredTensor* const codes, module.GetMatrix("weight", DType::kF8E4M3));
    PackedMatrix matrix{.out_features = codes->shape[0],
                        .in_features = codes->shape[1],
                        .bits = 8,
                        .layout = CodeLayout::kFp8,
                        .codes = codes->data};
    if (block_)
      RETURN_IF_ERROR(
          SetBlockScales(module, "weight_scale_inv", block_->rows, block_->columns, matrix));
    else
      RETURN_IF_ERROR(SetScale(module, "weight_scale", matrix));
    return Weight{.widened = matrix.AsTensor(module.NameOf("weight")),
                  .native = NativeFormOf(module, matrix)};
  }

 private:
  std::optional<BlockSize> block_;
  bool is_static_;
};

}  // namespace

Result<std::shared_ptr<const Method>> ReadFp8(artifact::JsonFields& fields) {
  const std::string scheme = fields.StringOr("activation_scheme", "dynamic");
  const std::string format = fields.StringOr("fmt", "e4m3");
  const std::string scales = fields.StringOr("scale_fmt", "float");
  const char* const list =
      fields.Has("ignored_layers") ? "ignored_layers" : "modules_to_not_convert";
  ModuleList ignored = ModuleList::Read(fields, list, ListSyntax::kTransformers);
  const std::optional<BlockSize> block = ReadBlockSize(fields, "weight_block_size");
  RETURN_IF_ERROR(fields.status());
  if (scheme != "dynamic" && scheme != "static")
    return NotSupported(fields, "activation_scheme", "dynamic and static are supported");
  if (format != "e4m3") return NotSupported(fields, "fmt", "e4m3 is supported");
  // Of "ue8m0" the scales are powers of two, which are read where their dtype is a float's.
  if (scales != "float" && scales != "ue8m0")
    return NotSupported(fields, "scale_fmt", "float and ue8m0 are supported");
  auto method = std::make_shared<Fp8>(block, scheme == "static");
  method->ignored = std::move(ignored);
  return std::shared_ptr<const Method>(std::move(method));
}

}  // namespace inflight::quantized
