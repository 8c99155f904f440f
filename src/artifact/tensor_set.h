// SPDX-License-Identifier: Apache-2.0
// The tensors of a model's weight files, opened by mapping.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "artifact/stored_tensor.h"
#include "base/file.h"
#include "inflight/status.h"

namespace inflight::artifact {

// The tensors of one or several mapped files under unique names.
class TensorSet {
 public:
  // A safetensors file.
  static Result<TensorSet> OpenFile(const std::filesystem::path& path);
  // A file that torch.save wrote (torch_file.h).
  static Result<TensorSet> OpenTorchFile(const std::filesystem::path& path);

  // A Hugging Face directory: model.safetensors, or the shards that model.safetensors.index.json
  // names, or pytorch_model.bin, or the shards that pytorch_model.bin.index.json names; the first
  // of them that is there.
  static Result<TensorSet> OpenModel(const std::filesystem::path& dir);
  static bool HasModel(const std::filesystem::path& dir);  // whether one of them is there

  // Tensors of a file that was parsed elsewhere, under unique names; their data lies in `file`.
  static TensorSet Of(MappedFile file, std::vector<StoredTensor> tensors);
  static TensorSet OfParts(std::vector<MappedFile> files, std::vector<StoredTensor> tensors);

  // Leaves `gone` out and takes `added` in, whose names are new, and whose data lies in this set's
  // files. Pointers that Find gave are not valid any more.
  void Replace(const std::set<std::string, std::less<>>& gone, std::vector<StoredTensor> added);

  const StoredTensor* Find(std::string_view name) const;
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  // Copies a part of a tensor's data by reading its file where it lies in one (MappedFile::Read).
  // False where the part is not this set's. Thread-safe.
  Result<bool> Read(std::span<const std::byte> part, std::byte* target) const;

 private:
  enum class Format { kSafetensors, kTorch };
  struct Kind;
  static std::span<const Kind> Kinds();
  Status Add(const std::filesystem::path& path, Format format);
  Status AddShards(const std::filesystem::path& index_path, Format format);
  Result<std::vector<StoredTensor>> Parse(const MappedFile& file, std::string_view name,
                                          Format format);

  std::vector<MappedFile> files_;
  std::vector<std::unique_ptr<std::byte[]>> gathered_;  // tensors that no file holds densely
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, size_t> by_name_;  // -> index in tensors_
};

}  // namespace inflight::artifact
