// SPDX-License-Identifier: Apache-2.0
// Safetensors files, read by mapping and written tensor by tensor.
//
//   u64 header_bytes | JSON header | data
//   header: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//
// Format: https://huggingface.co/docs/safetensors. Numbers are little-endian, tensors dense and
// row-major. Data may start at any address: read elements by memcpy.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "artifact/output_file.h"
#include "artifact/stored_tensor.h"
#include "tensor/tensor_view.h"

namespace inflight::artifact {

// Reads the header of one file's bytes and checks every promise of it: sizes, offsets, no gap, no
// overlap, no repeated name. `file` is for messages; truncation is kDataLoss, the rest
// kInvalidArgument.
Result<std::vector<StoredTensor>> ParseSafetensors(std::span<const std::byte> bytes,
                                                   std::string_view file);

// What a file will hold, in the order of writing.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> Create(const std::filesystem::path& path,
                                          const std::vector<TensorSpec>& tensors);

  // Appends bytes of the tensors in order; a tensor may come in several pieces.
  Status Append(std::span<const std::byte> data);
  Status Finish();  // CHECKs that all bytes came

 private:
  SafetensorsWriter(OutputFile file, uint64_t position, uint64_t end)
      : file_(std::move(file)), position_(position), end_(end) {}
  OutputFile file_;
  uint64_t position_;
  uint64_t end_;
};

}  // namespace inflight::artifact
