// SPDX-License-Identifier: Apache-2.0
#include "artifact/tensor_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "artifact/json_file.h"
#include "artifact/safetensors.h"
#include "artifact/torch_file.h"
#include "base/status_macros.h"

namespace inflight::artifact {

using nlohmann::json;

Result<TensorSet> TensorSet::OpenFile(const std::filesystem::path& path) {
  TensorSet set;
  RETURN_IF_ERROR(set.Add(path, Format::kSafetensors));
  return set;
}

Result<TensorSet> TensorSet::OpenTorchFile(const std::filesystem::path& path) {
  TensorSet set;
  RETURN_IF_ERROR(set.Add(path, Format::kTorch));
  return set;
}

struct TensorSet::Kind {
  const char* single;
  const char* index;
  Format format;
};

std::span<const TensorSet::Kind> TensorSet::Kinds() {
  static constexpr Kind kKinds[] = {
      {"model.safetensors", "model.safetensors.index.json", Format::kSafetensors},
      {"pytorch_model.bin", "pytorch_model.bin.index.json", Format::kTorch}};
  return kKinds;
}

bool TensorSet::HasModel(const std::filesystem::path& dir) {
  return std::ranges::any_of(Kinds(), [&](const Kind& kind) {
    return FileExists(dir / kind.single) || FileExists(dir / kind.index);
  });
}

Result<TensorSet> TensorSet::OpenModel(const std::filesystem::path& dir) {
  TensorSet set;
  for (const Kind& kind : Kinds()) {
    if (FileExists(dir / kind.single)) {
      RETURN_IF_ERROR(set.Add(dir / kind.single, kind.format));
      return set;
    }
    if (FileExists(dir / kind.index)) {
      RETURN_IF_ERROR(set.AddShards(dir / kind.index, kind.format));
      return set;
    }
  }
  return NotFound(fmt::format(
      "{}: no weights: neither model.safetensors nor pytorch_model.bin, nor an index of shards of "
      "either (model.safetensors.index.json, pytorch_model.bin.index.json)",
      dir.string()));
}

TensorSet TensorSet::Of(MappedFile file, std::vector<StoredTensor> tensors) {
  std::vector<MappedFile> files;
  files.push_back(std::move(file));
  return OfParts(std::move(files), std::move(tensors));
}

TensorSet TensorSet::OfParts(std::vector<MappedFile> files, std::vector<StoredTensor> tensors) {
  TensorSet set;
  for (size_t i = 0; i < tensors.size(); ++i) set.by_name_.emplace(tensors[i].name, i);
  set.tensors_ = std::move(tensors);
  set.files_ = std::move(files);
  return set;
}

Result<std::vector<StoredTensor>> TensorSet::Parse(const MappedFile& file, std::string_view name,
                                                   Format format) {
  if (format == Format::kSafetensors) return ParseSafetensors(file.bytes(), name);
  ASSIGN_OR_RETURN(TorchTensors parsed, ParseTorchFile(file.bytes(), name));
  for (auto& buffer : parsed.gathered) gathered_.push_back(std::move(buffer));
  return std::move(parsed.tensors);
}

Status TensorSet::Add(const std::filesystem::path& path, Format format) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, Parse(file, path.string(), format));
  for (StoredTensor& tensor : tensors) {
    if (!by_name_.emplace(tensor.name, tensors_.size()).second)
      return InvalidArgument(
          fmt::format("{}: {}: is in another shard too", path.string(), tensor.name));
    tensors_.push_back(std::move(tensor));
  }
  files_.push_back(std::move(file));
  return Status::Ok();
}

Status TensorSet::AddShards(const std::filesystem::path& index_path, Format format) {
  ASSIGN_OR_RETURN(const json index, ReadJsonFile(index_path));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    return InvalidArgument(index_path.string() + ": weight_map: an object is needed");
  std::set<std::string> shards;
  for (const auto& [name, shard] : map->items()) {
    const std::string file = shard.is_string() ? shard.get<std::string>() : "";
    if (file.empty() || std::filesystem::path(file).filename() != file || file == "..")
      return InvalidArgument(fmt::format(
          "{}: weight_map: {}: got {}, the name of a file in the same directory is needed",
          index_path.string(), name, Abbreviate(shard)));
    shards.insert(file);
  }
  for (const std::string& shard : shards)
    RETURN_IF_ERROR(Add(index_path.parent_path() / shard, format));
  for (const auto& [name, shard] : map->items())
    if (Find(name) == nullptr)
      return Status(StatusCode::kDataLoss, fmt::format("{}: {}: is not in {}", index_path.string(),
                                                       name, shard.get<std::string>()));
  return Status::Ok();
}

void TensorSet::Replace(const std::set<std::string, std::less<>>& gone,
                        std::vector<StoredTensor> added) {
  std::erase_if(tensors_, [&](const StoredTensor& tensor) { return gone.contains(tensor.name); });
  std::ranges::move(added, std::back_inserter(tensors_));
  by_name_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const StoredTensor* TensorSet::Find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<bool> TensorSet::Read(std::span<const std::byte> part, std::byte* target) const {
  for (const MappedFile& file : files_) {
    const std::span<const std::byte> all = file.bytes();
    if (part.data() < all.data() || part.data() >= all.data() + all.size()) continue;
    RETURN_IF_ERROR(file.Read(part, target));
    return true;
  }
  return false;
}

}  // namespace inflight::artifact
