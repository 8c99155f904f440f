// SPDX-License-Identifier: Apache-2.0
#include "artifact/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
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

// Which part of how many a file is, from 0 on; of none it is the only one.
struct Part {
  int64_t number = 0;
  int64_t count = 1;
};

Result<Part> PartOf(const gguf::Metadata& metadata) {
  ASSIGN_OR_RETURN(const auto count, metadata.Int("split.count", 0, UINT16_MAX));
  ASSIGN_OR_RETURN(const auto number, metadata.Int("split.no", 0, UINT16_MAX));
  if (count.value_or(1) <= 1) return Part();
  return Part{.number = number.value_or(0), .count = *count};
}

// Whether the tensors of all parts are as many as the first one says, with a name each.
Status CheckTensors(const gguf::Metadata& metadata, const std::vector<StoredTensor>& tensors) {
  ASSIGN_OR_RETURN(const auto count, metadata.Int("split.tensors.count", 0, INT32_MAX));
  if (count && *count != std::ssize(tensors))
    return InvalidArgument(fmt::format("{}: split.tensors.count: got {}, the parts have {}",
                                       metadata.where(), *count, tensors.size()));
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : tensors)
    if (!names.insert(tensor.name).second)
      return InvalidArgument(
          fmt::format("{}: {}: stands in two parts", metadata.where(), Printable(tensor.name)));
  return Status::Ok();
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
  ASSIGN_OR_RETURN(const Part first, PartOf(file.metadata));
  ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, StoredTensorsOf(file));
  std::vector<MappedFile> files;
  files.push_back(std::move(mapped));
  if (first.number != 0)
    return InvalidArgument(fmt::format(
        "{}: split.no: got {}, a model in {} parts is opened by its first, whose name ends with "
        "-00001-of-{:05}.gguf",
        path.string(), first.number, first.count, first.count));
  const std::vector<std::filesystem::path> paths = gguf::PartsOf(path);
  if (first.count > 1 && std::ssize(paths) != first.count)
    return InvalidArgument(
        fmt::format("{}: split.count: got {}, the name of the first of so many parts must end with "
                    "-00001-of-{:05}.gguf",
                    path.string(), first.count, first.count));
  for (int64_t i = 1; i < first.count; ++i) {
    const std::filesystem::path& part_path = paths[static_cast<size_t>(i)];
    ASSIGN_OR_RETURN(MappedFile part_file, MappedFile::Open(part_path));
    ASSIGN_OR_RETURN(const gguf::File part, gguf::Parse(part_file.bytes(), part_path.string()));
    ASSIGN_OR_RETURN(const Part found, PartOf(part.metadata));
    if (found.number != i || found.count != first.count)
      return InvalidArgument(fmt::format("{}: is part {} of {}, part {} of {} is needed",
                                         part_path.string(), found.number + 1, found.count, i + 1,
                                         first.count));
    ASSIGN_OR_RETURN(std::vector<StoredTensor> more, StoredTensorsOf(part));
    std::ranges::move(more, std::back_inserter(tensors));
    files.push_back(std::move(part_file));
  }
  if (first.count > 1) RETURN_IF_ERROR(CheckTensors(file.metadata, tensors));
  return GgufModel{.tensors = TensorSet::OfParts(std::move(files), std::move(tensors)),
                   .metadata = std::move(file.metadata)};
}

}  // namespace inflight::artifact
