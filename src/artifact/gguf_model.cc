// SPDX-License-Identifier: Apache-2.0
#include "artifact/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "artifact/block_codec.h"
#include "artifact/printable.h"
#include "artifact/sizes.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

struct PlainType {
  std::string_view name;
  DType dtype;
};
constexpr PlainType kPlainTypes[] = {
    {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"F64", DType::kF64},
    {"I8", DType::kI8},   {"I16", DType::kI16}, {"I32", DType::kI32},   {"I64", DType::kI64}};

Status RefuseParts(const gguf::Metadata& metadata) {
  ASSIGN_OR_RETURN(const auto count, metadata.Int("split.count", 0, UINT16_MAX));
  if (count.value_or(1) <= 1) return Status::Ok();
  return Unimplemented(fmt::format(
      "{}: split.count: got {}, a file with all tensors is supported; join the parts with "
      "`llama-gguf-split --merge`",
      metadata.where(), *count));
}

}  // namespace

Result<std::vector<StoredTensor>> StoredTensorsOf(const gguf::File& file) {
  std::vector<StoredTensor> tensors;
  for (const gguf::Tensor& tensor : file.tensors) {
    const auto* plain = std::ranges::find(kPlainTypes, tensor.type->name, &PlainType::name);
    const BlockCodec* codec = FindBlockCodec(tensor.type->name);
    if (plain == std::end(kPlainTypes) && codec == nullptr)
      return Unimplemented(fmt::format(
          "{}: {}: blocks of {} are not supported; F32, F16, BF16, {} are", file.metadata.where(),
          Printable(tensor.name), tensor.type->name, BlockCodecNames()));
    ASSIGN_OR_RETURN(const Shape shape, MakeShape(tensor.shape));
    tensors.push_back({.name = std::string(tensor.name),
                       .dtype = codec != nullptr ? DType::kF32 : plain->dtype,
                       .shape = shape,
                       .data = tensor.data,
                       .codec = codec});
  }
  return tensors;
}

Result<GgufModel> OpenGguf(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  ASSIGN_OR_RETURN(gguf::File file, gguf::Parse(mapped.bytes(), path.string()));
  RETURN_IF_ERROR(RefuseParts(file.metadata));
  ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, StoredTensorsOf(file));
  return GgufModel{.tensors = TensorSet::Of(std::move(mapped), std::move(tensors)),
                   .metadata = std::move(file.metadata)};
}

}  // namespace inflight::artifact
