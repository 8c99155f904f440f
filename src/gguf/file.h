// SPDX-License-Identifier: Apache-2.0
// GGUF files: metadata and the table of tensors, read where they lie.
//
//   "GGUF" | u32 version | u64 num_tensors | u64 num_entries | entries | tensors | padding | data
//   entry    text key | u32 type | value
//   text     u64 num_bytes | bytes
//   array    u32 type | u64 num_elements | elements
//   tensor   text name | u32 num_dims | u64 dims[num_dims], the innermost first | u32 type |
//            u64 offset
//
// Numbers are little-endian. Data begins at the first multiple of general.alignment (32 where the
// file does not say it) behind the table, and a tensor at its offset from there, a multiple of it
// too. Versions 2 and 3 differ in nothing that is read here.
// Format: ggml-org/ggml/docs/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/block_type.h"
#include "gguf/metadata.h"
#include "inflight/status.h"

namespace inflight::gguf {

inline constexpr std::string_view kExtension = ".gguf";
// The metadata of a model beside a checkpoint or an engine of it: its tokenizer and chat template.
inline constexpr char kTokenizerFile[] = "tokenizer.gguf";
inline constexpr size_t kMaxDims = 4;

struct Tensor {
  std::string_view name;
  const BlockType* type = nullptr;
  std::vector<int64_t> shape;       // row-major: the innermost dimension last
  std::span<const std::byte> data;  // dense rows of blocks
};

struct File {
  Metadata metadata;
  std::vector<Tensor> tensors;         // in the order of the table
  std::span<const std::byte> entries;  // all of them, as they lie in the file
  uint64_t alignment = 0;
};

// Reads the header of one file's bytes and checks every promise of it: counts, sizes, offsets,
// types, that no key and no name comes twice and that no tensors overlap. `where` is for messages;
// truncation is kDataLoss, what the format knows and nothing here reads (version 1, big-endian
// files) kUnimplemented, the rest kInvalidArgument.
Result<File> Parse(std::span<const std::byte> bytes, const std::string& where);

// Whether `path` is a file, not a directory, of the extension.
bool IsGgufFile(const std::filesystem::path& path);

// The files of a model whose first one is `path`: NAME-00001-of-0000N.gguf stands for N of them, in
// their order, another name for itself alone. Whether they are there is not asked.
std::vector<std::filesystem::path> PartsOf(const std::filesystem::path& path);

// Where the tokenizer of `path` is: `path` itself where it is a GGUF file, tokenizer.gguf where it
// is a directory that has it, else empty.
std::filesystem::path TokenizerFileOf(const std::filesystem::path& path);

// Whether the bytes begin as those of such a file do.
bool HasMagic(std::span<const std::byte> bytes);

// A file with the entries of `file` and without its tensors: what a tokenizer needs of it.
std::string WithoutTensors(const File& file);

}  // namespace inflight::gguf
