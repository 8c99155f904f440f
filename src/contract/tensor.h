// SPDX-License-Identifier: Apache-2.0
// Tensors as KServe v2 and Triton know them: a name, a datatype, a shape and little-endian
// row-major bytes on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::contract {

enum class DataType : uint8_t {
  kInvalid,
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kFp32,
  kFp64,
  kBytes,
  kBf16
};

std::string_view DataTypeName(DataType type);  // protocol spelling: "INT32", "BYTES"
std::optional<DataType> DataTypeFromName(std::string_view name);
size_t DataTypeSize(DataType type);  // bytes of an element; 0 for BYTES

// Content may be shared with the buffer it was received in: `owner` keeps that alive, so that no
// bytes are copied between socket and model.
struct Tensor {
  std::string name;
  DataType datatype = DataType::kInvalid;
  std::vector<int64_t> shape;
  // BYTES: each element is a 4-byte little-endian length and that many bytes.
  std::span<const std::byte> data;
  std::shared_ptr<const void> owner;

  int64_t num_elements() const;  // -1 when a dimension is negative or the product overflows

  static Tensor FromBytes(std::string name, DataType type, std::vector<int64_t> shape,
                          std::string bytes);
  static Tensor FromStrings(std::string name, std::vector<int64_t> shape,
                            std::span<const std::string> strings);
  // NOLINTBEGIN(performance-unnecessary-value-param): it does not look into templates
  template <typename T>
  static Tensor FromValues(std::string name, DataType type, std::vector<int64_t> shape,
                           std::span<const T> values) {
    return FromBytes(std::move(name), type, std::move(shape),
                     {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  // NOLINTEND(performance-unnecessary-value-param)

  // Elements of a BYTES tensor; kInvalidArgument when lengths and size disagree.
  Result<std::vector<std::string_view>> Strings() const;
};

}  // namespace inflight::contract
