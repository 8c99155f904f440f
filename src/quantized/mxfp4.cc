// SPDX-License-Identifier: Apache-2.0
// Hugging Face's "mxfp4", as gpt-oss is published: of the experts' matrices
//
//   NAME_blocks [num_experts, out, in / 32, 16] uint8, in which byte i of a block holds element 2i
//               in its low bits and 2i + 1 above, each e2m1
//   NAME_scales [num_experts, out, in / 32] uint8, each e8m0
//
//   w[e, n, k] = e2m1(code[e, n, k]) * 2^(scale[e, n, k / 32] - 127)
//
// (OCP Microscaling Formats 1.0; convert_moe_packed_tensors of
// huggingface/transformers/src/transformers/integrations/mxfp4.py.) They become NAME.weight.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "quantized/method.h"
#include "tensor/element.h"

namespace inflight::quantized {
namespace {

using artifact::StoredTensor;

constexpr int64_t kMxBlock = 32;  // elements of a scale
constexpr int64_t kMxBytes = kMxBlock / 2;

class Mxfp4Reader final : public artifact::TensorReader {
 public:
  // Rows of all experts, `in` elements each.
  Mxfp4Reader(std::span<const std::byte> blocks, std::span<const std::byte> scales, int64_t in)
      : blocks_(blocks), scales_(scales), in_(in) {}

  void Read(const artifact::TensorBlock& block, void* out) const override {
    auto* values = static_cast<float*>(out);
    for (int64_t row = block.row; row < block.row + block.num_rows; ++row) {
      int64_t i = row * in_ + block.column;
      const int64_t end = i + block.num_columns;
      while (i < end) {
        const int64_t scaled_end = std::min(end, (i / kMxBlock + 1) * kMxBlock);
        const float scale = HalfOfE8M0(scales_[static_cast<size_t>(i / kMxBlock)]);
        for (; i < scaled_end; ++i) *values++ = TimesElement(scale, i);
      }
    }
  }

 private:
  // Half of the element's block's scale times twice its code, -0 too.
  float TimesElement(float scale, int64_t i) const {
    const auto byte = std::to_integer<unsigned>(blocks_[static_cast<size_t>(i / 2)]);
    const unsigned code = i % 2 == 0 ? byte & 15U : byte >> 4U;
    const float magnitude = scale * static_cast<float>(kTwiceE2M1[code & 7U]);
    return code > 7 ? -magnitude : magnitude;
  }

  std::span<const std::byte> blocks_, scales_;
  int64_t in_;
};

class Mxfp4 final : public Method {
 public:
  std::string Describe() const override {
    return fmt::format("MXFP4, blocks of {}, of experts", kMxBlock);
  }
  char Separator() const override { return '_'; }
  std::vector<std::string_view> Parts() const override { return {"blocks", "scales"}; }

 protected:
  bool IsPacked(const Module& module) const override { return module.Find("blocks") != nullptr; }

  Result<Weight> Unpack(const Module& module) const override {
    ASSIGN_OR_RETURN(const StoredTensor* const blocks, module.Get("blocks"));
    const Shape& shape = blocks->shape;
    if (blocks->dtype != DType::kU8 || shape.rank() != 4 || shape[3] != kMxBytes)
      return InvalidArgument(fmt::format(
          "{}: got {} {}, uint8 [num_experts, out, in / {}, {}] is needed", module.NameOf("blocks"),
          DTypeName(blocks->dtype), shape.ToString(), kMxBlock, kMxBytes));
    ASSIGN_OR_RETURN(const StoredTensor* const scales,
                     module.Get("scales", {DType::kU8}, {shape[0], shape[1], shape[2]}));
    const int64_t in = shape[2] * kMxBlock;
    const int64_t num_rows = shape[0] * shape[1];
    return Weight{
        .widened = {.name = module.name() + ".weight",
                    .dtype = DType::kF32,
                    .shape = {shape[0], shape[1], in},
                    .data = {},
                    .reader = std::make_shared<Mxfp4Reader>(blocks->data, scales->data, in)},
        .native = NativeForm{.codes = {.name = module.NameOf("blocks"),
                                       .dtype = DType::kF4E2M1,
                                       .shape = {num_rows, in},
                                       .data = blocks->data},
                             .scales = {.name = module.NameOf("scales"),
                                        .dtype = DType::kU8,
                                        .shape = {num_rows, shape[2]},
                                        .data = scales->data},
                             .group_size = kMxBlock}};
  }
};

}  // namespace

Result<std::shared_ptr<const Method>> ReadMxfp4(artifact::JsonFields& fields) {
  ModuleList ignored =
      ModuleList::Read(fields, "modules_to_not_convert", ListSyntax::kTransformers);
  RETURN_IF_ERROR(fields.status());
  auto method = std::make_shared<Mxfp4>();
  method->ignored = std::move(ignored);
  return std::shared_ptr<const Method>(std::move(method));
}

}  // namespace inflight::quantized
