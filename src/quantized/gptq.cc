// SPDX-License-Identifier: Apache-2.0
// GPTQ (arXiv:2210.17323) as AutoGPTQ and GPTQModel write it, P = 32 / bits codes a word:
//
//   qweight [in / P, out] int32      qzeros [G, out / P] int32      scales [G, out]
//   g_idx [in] int32, the group of each input: k / g unless inputs were taken by activation order
//   w[n, k] = (q[k, n] - z[g, n]) * s[g, n], in the dtype of the scales
//
// Of checkpoint_format "gptq" z is one more than what is stored, of "gptq_v2" what is stored
// (AutoGPTQ/AutoGPTQ/auto_gptq/nn_modules/qlinear/qlinear_cuda.py).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"
#include "quantized/method.h"

namespace inflight::quantized {
namespace {

using artifact::StoredTensor;

struct GptqFields {
  int bits = 4;
  int64_t group_size = 128;
  bool has_order = false;
  bool is_symmetric = true;
  bool is_v2 = false;
};

class Gptq final : public Method {
 public:
  explicit Gptq(const GptqFields& fields) : fields_(fields) {}

  std::string Describe() const override {
    return fmt::format("GPTQ, int{}, {}, {}{}", fields_.bits,
                       fields_.is_symmetric ? "symmetric" : "with zero points",
                       fields_.group_size == -1 ? "a scale per channel"
                                                : fmt::format("groups of {}", fields_.group_size),
                       fields_.has_order ? ", act-order" : "");
  }

  std::vector<std::string_view> Parts() const override {
    return {"qweight", "qzeros", "scales", "g_idx"};
  }

 protected:
  bool IsPacked(const Module& module) const override {
    return module.Find("qweight") != nullptr || module.Find("qzeros") != nullptr;
  }

  Result<Weight> Unpack(const Module& module) const override {
    ASSIGN_OR_RETURN(const StoredTensor* const codes, module.GetMatrix("qweight", DType::kI32));
    const int64_t per_word = 32 / fields_.bits;
    const int64_t in = codes->shape[0] * per_word;
    const int64_t out = codes->shape[1];
    if (out % per_word != 0)
      return InvalidArgument(fmt::format("{}: shape {}: the {} columns fill no whole words of {}",
                                         module.NameOf("qweight"), codes->shape.ToString(), out,
                                         module.NameOf("qzeros")));
    PackedMatrix matrix{.out_features = out,
                        .in_features = in,
                        .bits = fields_.bits,
                        .layout = CodeLayout::kGptq,
                        .codes = codes->data};
    ASSIGN_OR_RETURN(matrix.group_size, module.GroupSize("group_size", fields_.group_size, in));
    matrix.num_groups = in / matrix.group_size;
    matrix.row_stride = 1;
    matrix.group_stride = out;
    ASSIGN_OR_RETURN(const StoredTensor* const scales,
                     module.Get("scales", kScaleDTypes, Shape{matrix.num_groups, out}));
    ASSIGN_OR_RETURN(const StoredTensor* const zeros,
                     module.Get("qzeros", {DType::kI32}, Shape{matrix.num_groups, out / per_word}));
    if (fields_.has_order || module.Find("g_idx") != nullptr) {
      ASSIGN_OR_RETURN(matrix.groups, module.Groups("g_idx", in, matrix.num_groups));
    }
    matrix.scales = scales->data;
    matrix.scale_dtype = scales->dtype;
    matrix.zero_layout = ZeroLayout::kGptq;
    matrix.zeros = zeros->data;
    matrix.zero = fields_.is_v2 ? 0 : 1;
    matrix.rounds_to = scales->dtype;
    return Weight{.widened = matrix.AsTensor(module.NameOf("weight")),
                  .native = NativeFormOf(module, matrix)};
  }

 private:
  GptqFields fields_;
};

// What GPTQModel says of single modules: "-:EXPRESSION" are those that it leaves alone.
Status RefuseOverrides(const artifact::JsonFields& fields) {
  const nlohmann::json* const dynamic = fields.Find("dynamic");
  if (dynamic == nullptr || dynamic->is_boolean()) return Status::Ok();
  if (!dynamic->is_object()) return NotSupported(fields, "dynamic", "an object is needed");
  for (const auto& [name, value] : dynamic->items())
    if (!name.starts_with("-:"))
      return NotSupported(fields, "dynamic", "settings of single modules are not supported");
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<const Method>> ReadGptq(artifact::JsonFields& fields) {
  GptqFields read;
  const int64_t bits = fields.Int("bits", 1, 64);
  read.group_size = fields.IntOr("group_size", 128, -1, INT32_MAX);
  read.has_order = fields.BoolOr("desc_act", false);
  read.is_symmetric = fields.BoolOr("sym", true);
  const char* const format = fields.Has("checkpoint_format") ? "checkpoint_format" : "format";
  const std::string layout = fields.StringOr(format, "gptq");
  const bool is_marlin = fields.BoolOr("is_marlin_format", false);
  const std::string words = fields.StringOr("pack_dtype", "int32");
  RETURN_IF_ERROR(fields.status());
  if (bits != 4 && bits != 8) return NotSupported(fields, "bits", "4 and 8 are supported");
  if (read.group_size == 0)
    return NotSupported(fields, "group_size", "-1 or the columns of a group are needed");
  if (layout != "gptq" && layout != "gptq_v2")
    return NotSupported(fields, format, "gptq and gptq_v2 are supported");
  if (is_marlin)
    return NotSupported(fields, "is_marlin_format", "the layouts gptq and gptq_v2 are supported");
  if (words != "int32") return NotSupported(fields, "pack_dtype", "words of int32 are supported");
  RETURN_IF_ERROR(RefuseOverrides(fields));
  read.bits = static_cast<int>(bits);
  read.is_v2 = layout == "gptq_v2";
  auto method = std::make_shared<Gptq>(read);
  method->ignored = ModuleList::Read(fields, "modules_to_not_convert", ListSyntax::kTransformers);
  RETURN_IF_ERROR(fields.status());
  return std::shared_ptr<const Method>(std::move(method));
}

}  // namespace inflight::quantized
