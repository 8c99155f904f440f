// SPDX-License-Identifier: Apache-2.0
// Engine files: one rank's tensors, packed as kernels read them. docs/reference/artifacts.md is the
// format's reference.
//
//   header 128 bytes | tensor table | padding | tensor 0 | padding | tensor 1 ...
//
// Tensors are 64-byte aligned. A tensor names its dtype, logical shape and layout; what the names
// mean is the business of ops/. Checksums: XXH3-64 of header and table; of each tensor XXH3-64 over
// the little-endian XXH3-64 of its consecutive chunks of kChecksumChunkBytes, so that threads can
// verify one tensor together.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "artifact/output_file.h"
#include "tensor/tensor_view.h"

namespace inflight::artifact {

inline constexpr uint32_t kEngineFormatVersion = 1;
inline constexpr size_t kEngineAlignment = 64;
inline constexpr size_t kChecksumChunkBytes = size_t{1} << 20;

// The first place from `offset` on where a tensor may begin, in a file or in memory.
constexpr uint64_t EngineAlignUp(uint64_t offset) {
  return (offset + kEngineAlignment - 1) / kEngineAlignment * kEngineAlignment;
}

struct EngineTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::string layout;         // "row_major", "panel64", ...; ops/weight.h
  uint64_t num_bytes = 0;     // in the file, the layout's padding included
  uint64_t offset_bytes = 0;  // from the begin of the file; set by the writer
  uint64_t checksum = 0;      // set by the writer
};

struct EngineTable {
  std::string target;  // the kind of device whose layouts these are: "cpu" or "cuda"
  std::vector<EngineTensor> tensors;
  uint64_t data_offset = 0;  // of the first tensor
  uint64_t file_bytes = 0;
  uint64_t checksum = 0;  // of the table as the file has it, those of its tensors among it: which
                          // content this is
};

// Reads header and table from the file's first bytes and checks every promise of them: magic,
// version, checksums, sizes, alignment, no overlap. `file_bytes` is the size of the whole file,
// `file` is for messages. A wrong version is kFailedPrecondition and says how to rebuild;
// truncation and checksums are kDataLoss.
Result<EngineTable> ParseEngineTable(std::span<const std::byte> begin, uint64_t file_bytes,
                                     std::string_view file);
Result<EngineTable> ReadEngineTable(const std::filesystem::path& path);

// Whether the file begins as one of this format does; it may be damaged.
bool IsEngineFile(const std::filesystem::path& path);

uint64_t ChunkChecksum(std::span<const std::byte> chunk);
uint64_t CombineChecksums(std::span<const uint64_t> chunks);
uint64_t TensorChecksum(std::span<const std::byte> data);

// kDataLoss naming file and tensor if `found` is not what the table says.
Status CompareChecksum(const EngineTensor& tensor, uint64_t found, std::string_view file);

class EngineFileWriter {
 public:
  // Sets the offsets of `tensors` in their order; name to num_bytes are the caller's.
  static Result<EngineFileWriter> Create(const std::filesystem::path& path, std::string target,
                                         std::vector<EngineTensor> tensors);

  Status Write(size_t tensor_idx, std::span<const std::byte> data);
  Status Finish();  // CHECKs that every tensor was written

 private:
  EngineFileWriter(OutputFile file, EngineTable table)
      : file_(std::move(file)),
        table_(std::move(table)),
        is_written_(table_.tensors.size(), false) {}

  OutputFile file_;
  EngineTable table_;
  std::vector<bool> is_written_;
};

}  // namespace inflight::artifact
