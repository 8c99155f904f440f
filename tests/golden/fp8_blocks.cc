// SPDX-License-Identifier: Apache-2.0
#include "fp8_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "artifact/safetensors.h"
#include "artifact/tensor_set.h"
#include "base/file.h"
#include "tensor/element.h"

namespace inflight::golden {
namespace {

using artifact::StoredTensor;

constexpr int64_t kBlock = 128;

bool IsPacked(const StoredTensor& tensor, std::string_view part) {
  return tensor.name.find(part) != std::string::npos && tensor.name.ends_with("_proj.weight");
}

// The codes of a float32 matrix, and a scale for each block, max |w| / 448.
struct Blocks {
  explicit Blocks(const StoredTensor& tensor)
      : rows(tensor.shape[0]),
        columns(tensor.shape[1]),
        codes(static_cast<size_t>(rows * columns)),
        scales(static_cast<size_t>(CeilOf(rows) * CeilOf(columns))) {
    const auto scale_of = [&](int64_t n, int64_t k) -> float& {
      return scales[static_cast<size_t>(n / kBlock * CeilOf(columns) + k / kBlock)];
    };
    const auto at = [&](int64_t n, int64_t k) {
      return LoadAs<float>(tensor.data.data(), n * columns + k);
    };
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < columns; ++k)
        scale_of(n, k) = std::max(scale_of(n, k), std::abs(at(n, k)) / 448);
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < columns; ++k)
        StoreFloat(codes.data(), DType::kF8E4M3, n * columns + k, at(n, k) / scale_of(n, k));
  }
  static int64_t CeilOf(int64_t extent) { return (extent + kBlock - 1) / kBlock; }

  int64_t rows, columns;
  std::vector<std::byte> codes;
  std::vector<float> scales;
};

}  // namespace

void WriteFp8Blocks(const std::filesystem::path& from, const std::filesystem::path& to,
                    std::string_view part) {
  const auto set = artifact::TensorSet::OpenModel(from);
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  std::vector<artifact::TensorSpec> specs;
  std::vector<std::vector<std::byte>> values;
  for (const StoredTensor& tensor : set->tensors()) {
    if (!IsPacked(tensor, part)) {
      specs.push_back({tensor.name, tensor.dtype, tensor.shape});
      values.emplace_back(tensor.data.begin(), tensor.data.end());
      continue;
    }
    ASSERT_EQ(tensor.dtype, DType::kF32);
    const Blocks blocks(tensor);
    specs.push_back({tensor.name, DType::kF8E4M3, tensor.shape});
    values.push_back(blocks.codes);
    specs.push_back({tensor.name + "_scale_inv",
                     DType::kF32,
                     {Blocks::CeilOf(blocks.rows), Blocks::CeilOf(blocks.columns)}});
    const auto bytes = std::as_bytes(std::span(blocks.scales));
    values.emplace_back(bytes.begin(), bytes.end());
  }
  std::filesystem::create_directories(to);
  auto writer = artifact::SafetensorsWriter::Create(to / "model.safetensors", specs);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (const auto& bytes : values) ASSERT_TRUE(writer->Append(bytes).ok());
  ASSERT_TRUE(writer->Finish().ok());
  auto config = nlohmann::json::parse(*ReadFile(from / "config.json"));
  config["quantization_config"] = {{"quant_method", "fp8"},
                                   {"activation_scheme", "dynamic"},
                                   {"weight_block_size", {kBlock, kBlock}}};
  ASSERT_TRUE(WriteFile(to / "config.json", config.dump()).ok());
}

}  // namespace inflight::golden
