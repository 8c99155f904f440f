// SPDX-License-Identifier: Apache-2.0
// FP8 checkpoints of NVIDIA's TensorRT Model Optimizer: weights in float8_e4m3fn with weight_scale,
// one for the tensor, and input_scale, which is left out. They are described in
// hf_quant_config.json, or in config.json as quant_method "modelopt"
// (NVIDIA/TensorRT-Model-Optimizer/modelopt/torch/export/).
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"
#include "quantized/method.h"

namespace inflight::quantized {
namespace {

using artifact::StoredTensor;

class ModelOpt final : public Method {
 public:
  explicit ModelOpt(bool is_per_channel) : is_per_channel_(is_per_channel) {}

  std::string Describe() const override {
    return is_per_channel_ ? "ModelOpt FP8, a scale per channel, dynamic activations"
                           : "ModelOpt FP8, a scale per tensor, static activations";
  }

  std::vector<std::string_view> Parts() const override {
    return {"weight", "weight_scale", "input_scale"};
  }

 protected:
  bool IsPacked(const Module& module) const override {
    const StoredTensor* const weight = module.Find("weight");
    return (weight != nullptr && weight->dtype == DType::kF8E4M3) ||
           module.Find("weight_scale") != nullptr;
  }

  Result<Weight> Unpack(const Module& module) const override {
    ASSIGN_OR_RETURN(const StoredTensor* const codes, module.GetMatrix("weight", DType::kF8E4M3));
    PackedMatrix matrix{.out_features = codes->shape[0],
                        .in_features = codes->shape[1],
                        .bits = 8,
                        .layout = CodeLayout::kFp8,
                        .codes = codes->data};
    RETURN_IF_ERROR(is_per_channel_ ? SetRowScales(module, "weight_scale", matrix)
                                    : SetScale(module, "weight_scale", matrix));
    return Weight{.widened = matrix.AsTensor(module.NameOf("weight")),
                  .native = NativeFormOf(module, matrix)};
  }

 private:
  bool is_per_channel_;
};

}  // namespace

Result<std::shared_ptr<const Method>> ReadModelOpt(artifact::JsonFields& fields) {
  const std::string algo = fields.String("quant_algo");
  const char* const list = fields.Has("ignore") ? "ignore" : "exclude_modules";
  ModuleList ignored = ModuleList::Read(fields, list, ListSyntax::kWildcards);
  RETURN_IF_ERROR(fields.status());
  if (algo != "FP8" && algo != "FP8_PER_CHANNEL_PER_TOKEN")
    return NotSupported(fields, "quant_algo", "FP8 and FP8_PER_CHANNEL_PER_TOKEN are supported");
  auto method = std::make_shared<ModelOpt>(algo != "FP8");
  method->ignored = std::move(ignored);
  return std::shared_ptr<const Method>(std::move(method));
}

Result<std::shared_ptr<const Method>> ReadModelOptFile(const nlohmann::json& object,
                                                       const std::string& where) {
  artifact::JsonFields fields(where, object);
  const nlohmann::json* const quantization = fields.FindObject("quantization");
  if (quantization == nullptr) fields.Fail("quantization", "is missing");
  RETURN_IF_ERROR(fields.status());
  artifact::JsonFields described(fmt::format("{}: quantization", where), *quantization);
  return ReadModelOpt(described);
}

}  // namespace inflight::quantized
