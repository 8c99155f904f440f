// SPDX-License-Identifier: Apache-2.0
// AWQ (arXiv:2306.00978) as AutoAWQ writes it, version "gemm":
//
//   qweight [in, out / 8] int32      qzeros [in / g, out / 8] int32      scales [in / g, out]
//   w[n, k] = (q[k, n] - z[k / g, n]) * s[k / g, n], in the dtype of the scales
//
// Of each word's eight columns the even ones come first: 0, 2, 4, 6, 1, 3, 5, 7
// (casper-hansen/AutoAWQ/awq/utils/packing_utils.py).
#include <fmt/format.h>

#include <utility>

#include "base/status_macros.h"
#include "quantized/method.h"

namespace inflight::quantized {
namespace {

using artifact::StoredTensor;

class Awq final : public Method {
 public:
  explicit Awq(int64_t group_size) : group_size_(group_size) {}

  std::string Describe() const override {
    return group_size_ == -1 ? "AWQ, int4 with zero points, a scale per channel"
                             : fmt::format("AWQ, int4 with zero points, groups of {}", group_size_);
  }

  std::vector<std::string_view> Parts() const override { return {"qweight", "qzeros", "scales"}; }

 protected:
  bool IsPacked(const Module& module) const override {
    return module.Find("qweight") != nullptr || module.Find("qzeros") != nullptr;
  }

  Result<Weight> Unpack(const Module& module) const override {
    ASSIGN_OR_RETURN(const StoredTensor* const codes, module.GetMatrix("qweight", DType::kI32));
    const int64_t in = codes->shape[0];
    const int64_t words = codes->shape[1];
    PackedMatrix matrix{.out_features = 8 * words,
                        .in_features = in,
                        .bits = 4,
                        .layout = CodeLayout::kAwq,
                        .codes = codes->data};
    ASSIGN_OR_RETURN(matrix.group_size, module.GroupSize("group_size", group_size_, in));
    matrix.num_groups = in / matrix.group_size;
    matrix.row_stride = 1;
    matrix.group_stride = matrix.out_features;
    ASSIGN_OR_RETURN(
        const StoredTensor* const scales,
        module.Get("scales", kScaleDTypes, Shape{matrix.num_groups, matrix.out_features}));
    ASSIGN_OR_RETURN(const StoredTensor* const zeros,
                     module.Get("qzeros", {DType::kI32}, Shape{matrix.num_groups, words}));
    matrix.scales = scales->data;
    matrix.scale_dtype = scales->dtype;
    matrix.zero_layout = ZeroLayout::kAwq;
    matrix.zeros = zeros->data;
    matrix.rounds_to = scales->dtype;
    return Weight{.widened = matrix.AsTensor(module.NameOf("weight")),
                  .native = NativeFormOf(module, matrix)};
  }

 private:
  int64_t group_size_;
};

}  // namespace

Result<std::shared_ptr<const Method>> ReadAwq(artifact::JsonFields& fields) {
  const char* const bits = fields.Has("w_bit") ? "w_bit" : "bits";
  const char* const group = fields.Has("q_group_size") ? "q_group_size" : "group_size";
  const char* const version = fields.Has("version") ? "version" : "format";
  const int64_t num_bits = fields.IntOr(bits, 4, 1, 64);
  const int64_t group_size = fields.IntOr(group, 128, -1, INT32_MAX);
  const bool has_zeros = fields.BoolOr("zero_point", true);
  const std::string layout = fields.StringOr(version, "gemm");
  auto method = std::make_shared<Awq>(group_size);
  method->ignored = ModuleList::Read(fields, "modules_to_not_convert", ListSyntax::kTransformers);
  RETURN_IF_ERROR(fields.status());
  if (num_bits != 4) return NotSupported(fields, bits, "4 is supported");
  if (group_size == 0)
    return NotSupported(fields, group, "-1 or the columns of a group are needed");
  if (!has_zeros)
    return NotSupported(fields, "zero_point", "weights with zero points are supported");
  if (layout != "gemm" && layout != "GEMM")
    return NotSupported(fields, version, "the layout gemm is supported");
  return std::shared_ptr<const Method>(std::move(method));
}

}  // namespace inflight::quantized
