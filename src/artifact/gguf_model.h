// SPDX-License-Identifier: Apache-2.0
// The weights and the metadata of a GGUF file, opened by mapping.
#pragma once

#include <filesystem>

#include "artifact/tensor_set.h"
#include "gguf/file.h"

namespace inflight::artifact {

struct GgufModel {
  TensorSet tensors;  // owns the mapping, which the metadata's texts lie in
  gguf::Metadata metadata;
};

// Of a file that is the first part of several, all of them are opened: its metadata is the model's.
// kUnimplemented names a tensor's block type that is not supported, kInvalidArgument a part that is
// not the one that its name says, or that is opened in the place of the first.
Result<GgufModel> OpenGguf(const std::filesystem::path& path);

// The tensors of a file that was parsed; their data stays where it is. `where` is for messages.
Result<std::vector<StoredTensor>> StoredTensorsOf(const gguf::File& file);

}  // namespace inflight::artifact
