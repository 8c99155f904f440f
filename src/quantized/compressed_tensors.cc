// SPDX-License-Identifier: Apache-2.0
// compressed-tensors (vllm-project/compressed-tensors), a scheme for each of config_groups:
//
//   pack-quantized   weight_packed [out, ceil(in / P)] int32, codes plus 2^(bits - 1); weight_shape
//   int-quantized    weight [out, in] int8
//   float-quantized  weight [out, in] float8_e4m3fn
//
// with weight_scale, and where a scheme is not symmetric weight_zero_point, per
//
//   tensor [1]      channel [out, 1]      group [out, in / g]      block [ceil(out / r), ceil(in /
//   c)]
//
// Zero points of packed weights are packed along the output, [ceil(out / P), G] int32. Where
// weight_g_idx [in] is there and none of it is -1 it says the group of each input.
//
//   w[n, k] = (q[n, k] - z) * s, in the dtype of the scales
//
// Scales of activations (input_scale) are left out: activations are not rounded to them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "artifact/printable.h"
#include "base/status_macros.h"
#include "quantized/method.h"
#include "tensor/element.h"

namespace inflight::quantized {
namespace {

using artifact::StoredTensor;

enum class Strategy : uint8_t { kTensor, kChannel, kGroup, kBlock };

struct Scheme {
  ModuleList targets;
  bool is_packed = false;
  bool is_float = false;
  bool is_symmetric = true;
  int bits = 8;
  Strategy strategy = Strategy::kTensor;
  int64_t group_size = 0;
  BlockSize block;
  std::string activations = {};  // for people; empty: they are not quantised
};

std::string DescribeScheme(const Scheme& scheme) {
  std::string text = scheme.is_float ? "FP8" : fmt::format("int{}", scheme.bits);
  if (!scheme.is_symmetric) text += " with zero points";
  switch (scheme.strategy) {
    case Strategy::kTensor:
      text += ", a scale per tensor";
      break;
    case Strategy::kChannel:
      text += ", a scale per channel";
      break;
    case Strategy::kGroup:
      text += fmt::format(", groups of {}", scheme.group_size);
      break;
    case Strategy::kBlock:
      text +=
          fmt::format(", a scale per block of {} x {}", scheme.block.rows, scheme.block.columns);
      break;
  }
  return text + scheme.activations;
}

// The group of each input; none where the columns lie in the order of their groups.
Status SetOrder(const Module& module, PackedMatrix& matrix) {
  const StoredTensor* const order = module.Find("weight_g_idx");
  if (order == nullptr) return Status::Ok();
  RETURN_IF_ERROR(module.Get("weight_g_idx", {DType::kI32}, Shape{matrix.in_features}).status());
  for (int64_t k = 0; k < matrix.in_features; ++k)
    if (LoadAs<int32_t>(order->data.data(), k) == -1) return Status::Ok();
  ASSIGN_OR_RETURN(matrix.groups,
                   module.Groups("weight_g_idx", matrix.in_features, matrix.num_groups));
  return Status::Ok();
}

Status SetCodes(const Module& module, const Scheme& scheme, PackedMatrix& matrix) {
  if (!scheme.is_packed) {
    matrix.layout = scheme.is_float ? CodeLayout::kFp8 : CodeLayout::kInt8;
    ASSIGN_OR_RETURN(const StoredTensor* const codes,
                     module.GetMatrix("weight", scheme.is_float ? DType::kF8E4M3 : DType::kI8));
    matrix.out_features = codes->shape[0];
    matrix.in_features = codes->shape[1];
    matrix.codes = codes->data;
    return Status::Ok();
  }
  matrix.layout = CodeLayout::kRowWords;
  ASSIGN_OR_RETURN(const StoredTensor* const codes, module.GetMatrix("weight_packed", DType::kI32));
  ASSIGN_OR_RETURN(const StoredTensor* const shape,
                   module.Get("weight_shape", {DType::kI64, DType::kI32}, Shape{2}));
  const auto extent = [&](int64_t i) {
    return shape->dtype == DType::kI64 ? LoadAs<int64_t>(shape->data.data(), i)
                                       : int64_t{LoadAs<int32_t>(shape->data.data(), i)};
  };
  const int64_t per_word = 32 / scheme.bits;
  matrix.out_features = codes->shape[0];
  matrix.in_features = extent(1);
  const int64_t words = codes->shape[1];
  if (extent(0) != matrix.out_features || matrix.in_features > words * per_word ||
      matrix.in_features <= (words - 1) * per_word)
    return InvalidArgument(fmt::format("{}: got [{}, {}], which does not fit {} {} of int{}",
                                       module.NameOf("weight_shape"), extent(0), extent(1),
                                       module.NameOf("weight_packed"), codes->shape.ToString(),
                                       scheme.bits));
  matrix.codes = codes->data;
  return Status::Ok();
}

Status SetZeros(const Module& module, const Scheme& scheme, PackedMatrix& matrix) {
  const int offset = scheme.is_packed ? 1 << (scheme.bits - 1) : 0;
  matrix.zero = offset;
  if (scheme.is_symmetric) return Status::Ok();
  ASSIGN_OR_RETURN(const StoredTensor* const zeros, module.Get("weight_zero_point"));
  matrix.zeros = zeros->data;
  if (zeros->dtype == DType::kI32 && scheme.is_packed && scheme.strategy != Strategy::kTensor) {
    const int64_t per_word = 32 / scheme.bits;
    const Shape expected{(matrix.out_features + per_word - 1) / per_word, matrix.num_groups};
    RETURN_IF_ERROR(module.Get("weight_zero_point", {DType::kI32}, expected).status());
    matrix.zero_layout = ZeroLayout::kColumnWords;
    matrix.zero = 0;  // codes and zero points have the same offset
    return Status::Ok();
  }
  ASSIGN_OR_RETURN(const StoredTensor* const scales, module.Get("weight_scale"));
  RETURN_IF_ERROR(module.Get("weight_zero_point", {DType::kI8}, scales->shape).status());
  matrix.zero_layout = ZeroLayout::kInt8;
  return Status::Ok();
}

Status SetStrategy(const Module& module, const Scheme& scheme, PackedMatrix& matrix) {
  switch (scheme.strategy) {
    case Strategy::kTensor:
      return SetScale(module, "weight_scale", matrix);
    case Strategy::kChannel:
      return SetRowScales(module, "weight_scale", matrix);
    case Strategy::kGroup: {
      ASSIGN_OR_RETURN(const int64_t size,
                       module.GroupSize("group_size", scheme.group_size, matrix.in_features));
      RETURN_IF_ERROR(SetGroupScales(module, "weight_scale", size, matrix));
      return SetOrder(module, matrix);
    }
    case Strategy::kBlock:
      return SetBlockScales(module, "weight_scale", scheme.block.rows, scheme.block.columns,
                            matrix);
  }
  return Status::Ok();
}

class CompressedTensors final : public Method {
 public:
  explicit CompressedTensors(std::vector<Scheme> schemes) : schemes_(std::move(schemes)) {}

  std::string Describe() const override {
    std::string text = "compressed-tensors";
    for (size_t i = 0; i < schemes_.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? " " : "; ", DescribeScheme(schemes_[i]));
    return text;
  }

  std::vector<std::string_view> Parts() const override {
    return {"weight",       "weight_packed", "weight_scale", "weight_zero_point",
            "weight_shape", "weight_g_idx",  "input_scale",  "input_zero_point"};
  }

 protected:
  bool IsPacked(const Module& module) const override {
    const StoredTensor* const weight = module.Find("weight");
    const bool is_code =
        weight != nullptr && (weight->dtype == DType::kI8 || weight->dtype == DType::kF8E4M3);
    return is_code || module.Find("weight_packed") != nullptr ||
           module.Find("weight_scale") != nullptr;
  }

  Result<Weight> Unpack(const Module& module) const override {
    const Scheme* const scheme = SchemeOf(module.name());
    if (scheme == nullptr)
      return InvalidArgument(
          fmt::format("{}: is packed, and config_groups has no targets that name it",
                      artifact::Printable(module.name())));
    if (scheme->is_packed && module.Find("weight") != nullptr)
      return InvalidArgument(module.NameOf("weight") +
                             ": stands in a module whose format is pack-quantized");
    PackedMatrix matrix{.bits = scheme->bits};
    RETURN_IF_ERROR(SetCodes(module, *scheme, matrix));
    RETURN_IF_ERROR(SetStrategy(module, *scheme, matrix));
    RETURN_IF_ERROR(SetZeros(module, *scheme, matrix));
    matrix.rounds_to = matrix.scale_dtype;
    return Weight{.widened = matrix.AsTensor(module.NameOf("weight")),
                  .native = NativeFormOf(module, matrix)};
  }

 private:
  // What names the module goes before what names its class.
  const Scheme* SchemeOf(std::string_view module) const {
    const Scheme* of_class = nullptr;
    for (const Scheme& scheme : schemes_) {
      const std::string* const entry = scheme.targets.Find(module);
      if (entry == nullptr) continue;
      if (*entry != "Linear") return &scheme;
      if (of_class == nullptr) of_class = &scheme;
    }
    return of_class;
  }

  std::vector<Scheme> schemes_;
};

Status ReadFormat(artifact::JsonFields& fields, std::string_view format, Scheme& scheme) {
  scheme.is_packed = format == "pack-quantized";
  const bool is_known =
      scheme.is_packed || format == "naive-quantized" ||
      format == (scheme.is_float ? std::string_view("float-quantized") : "int-quantized");
  if (is_known && (scheme.is_packed || scheme.bits == 8) && (!scheme.is_packed || !scheme.is_float))
    return Status::Ok();
  return Unimplemented(fmt::format(
      "{}: format: got {} for {} of {} bits; pack-quantized (int of 4 and 8 bits), int-quantized "
      "(int of 8 bits) and float-quantized (float of 8 bits) are supported",
      fields.where(), artifact::Printable(format), scheme.is_float ? "float" : "int", scheme.bits));
}

Status ReadStrategy(artifact::JsonFields& fields, Scheme& scheme) {
  const int64_t size = fields.IntOr("group_size", 0, -1, INT32_MAX);
  const char* const fallback = size > 0 ? "group" : size == -1 ? "channel" : "tensor";
  const std::string strategy = fields.StringOr("strategy", fallback);
  RETURN_IF_ERROR(fields.status());
  if (strategy == "tensor") {
    scheme.strategy = Strategy::kTensor;
  } else if (strategy == "channel") {
    scheme.strategy = Strategy::kChannel;
  } else if (strategy == "group") {
    scheme.strategy = Strategy::kGroup;
    scheme.group_size = size;
    if (size <= 0) fields.Fail("group_size", "the columns of a group are needed");
  } else if (strategy == "block") {
    scheme.strategy = Strategy::kBlock;
    scheme.block = ReadBlockSize(fields, "block_structure").value_or(BlockSize{});
    if (scheme.block.rows == 0) fields.Fail("block_structure", "is missing");
  } else {
    return NotSupported(fields, "strategy", "tensor, channel, group and block are supported");
  }
  return fields.status();
}

Status ReadWeights(artifact::JsonFields& fields, std::string_view format, Scheme& scheme) {
  const std::string type = fields.StringOr("type", "int");
  scheme.bits = static_cast<int>(fields.IntOr("num_bits", 8, 1, 64));
  scheme.is_symmetric = fields.BoolOr("symmetric", true);
  RETURN_IF_ERROR(fields.status());
  if (type != "int" && type != "float")
    return NotSupported(fields, "type", "int and float are supported");
  scheme.is_float = type == "float";
  if (scheme.bits != 8 && (scheme.is_float || scheme.bits != 4))
    return NotSupported(fields, "num_bits", "int of 4 and 8 bits and float of 8 are supported");
  if (scheme.is_float && !scheme.is_symmetric)
    return NotSupported(fields, "symmetric", "zero points of floats are not supported");
  RETURN_IF_ERROR(ReadFormat(fields, format, scheme));
  RETURN_IF_ERROR(ReadStrategy(fields, scheme));
  if (scheme.strategy == Strategy::kBlock && scheme.is_packed)
    return NotSupported(fields, "strategy", "packed weights have no blocks");
  return Status::Ok();
}

// Null weights quantise activations alone.
Result<std::optional<Scheme>> ReadScheme(const std::string& where, const nlohmann::json& group,
                                         const std::string& format) {
  artifact::JsonFields fields(where, group);
  Scheme scheme{.targets = ModuleList::Read(fields, "targets", ListSyntax::kCompressedTensors)};
  const std::string own_format = fields.StringOr("format", format);
  const nlohmann::json* const weights = fields.FindObject("weights");
  const nlohmann::json* const activations = fields.FindObject("input_activations");
  RETURN_IF_ERROR(fields.status());
  if (weights == nullptr) return std::optional<Scheme>();
  artifact::JsonFields of_weights(where + ": weights", *weights);
  RETURN_IF_ERROR(ReadWeights(of_weights, own_format, scheme));
  if (activations != nullptr) {
    const auto dynamic = activations->find("dynamic");
    const bool is_static = dynamic == activations->end() || *dynamic == false;
    scheme.activations = is_static ? ", static activations" : ", dynamic activations";
  }
  return std::optional(std::move(scheme));
}

}  // namespace

Result<std::shared_ptr<const Method>> ReadCompressedTensors(artifact::JsonFields& fields) {
  const std::string format = fields.StringOr("format", "dense");
  const std::string state = fields.StringOr("quantization_status", "compressed");
  const nlohmann::json* const groups = fields.FindObject("config_groups");
  if (groups == nullptr) fields.Fail("config_groups", "is missing");
  ModuleList ignored = ModuleList::Read(fields, "ignore", ListSyntax::kCompressedTensors);
  const nlohmann::json* const sparsity = fields.FindObject("sparsity_config");
  RETURN_IF_ERROR(fields.status());
  if (state != "compressed")
    return NotSupported(fields, "quantization_status", "compressed is supported");
  const auto is_dense = [&] {
    const auto found = sparsity->find("format");
    return found != sparsity->end() && *found == "dense";
  };
  if (sparsity != nullptr && !sparsity->empty() && !is_dense())
    return NotSupported(fields, "sparsity_config", "dense weights are supported");
  std::vector<Scheme> schemes;
  for (const auto& [name, group] : groups->items()) {
    const std::string where =
        fmt::format("{}: config_groups: {}", fields.where(), artifact::Printable(name));
    if (!group.is_object())
      return InvalidArgument(
          fmt::format("{}: got {}, an object is needed", where, artifact::Abbreviate(group)));
    ASSIGN_OR_RETURN(std::optional<Scheme> scheme, ReadScheme(where, group, format));
    if (scheme) schemes.push_back(*std::move(scheme));
  }
  auto method = std::make_shared<CompressedTensors>(std::move(schemes));
  method->ignored = std::move(ignored);
  return std::shared_ptr<const Method>(std::move(method));
}

}  // namespace inflight::quantized
