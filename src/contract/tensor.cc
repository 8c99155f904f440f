// SPDX-License-Identifier: Apache-2.0
#include "contract/tensor.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace inflight::contract {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are little-endian in memory");

struct TypeInfo {
  std::string_view name;
  size_t size;
};

// In the order of DataType.
constexpr std::array<TypeInfo, 15> kTypes = {{{"<invalid>", 0},
                                              {"BOOL", 1},
                                              {"UINT8", 1},
                                              {"UINT16", 2},
                                              {"UINT32", 4},
                                              {"UINT64", 8},
                                              {"INT8", 1},
                                              {"INT16", 2},
                                              {"INT32", 4},
                                              {"INT64", 8},
                                              {"FP16", 2},
                                              {"FP32", 4},
                                              {"FP64", 8},
                                              {"BYTES", 0},
                                              {"BF16", 2}}};
static_assert(kTypes.size() == static_cast<size_t>(DataType::kBf16) + 1);

}  // namespace

std::string_view DataTypeName(DataType type) { return kTypes[static_cast<size_t>(type)].name; }

std::optional<DataType> DataTypeFromName(std::string_view name) {
  for (size_t i = 1; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

size_t DataTypeSize(DataType type) { return kTypes[static_cast<size_t>(type)].size; }

int64_t Tensor::num_elements() const {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return -1;
  }
  return count;
}

Tensor Tensor::FromBytes(std::string name, DataType type, std::vector<int64_t> shape,
                         std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.datatype = type;
  tensor.shape = std::move(shape);
  tensor.data = std::as_bytes(std::span(*owner));
  tensor.owner = std::move(owner);
  return tensor;
}

Tensor Tensor::FromStrings(std::string name, std::vector<int64_t> shape,
                           std::span<const std::string> strings) {
  size_t size = 0;
  for (const std::string& s : strings) size += sizeof(uint32_t) + s.size();
  std::string bytes;
  bytes.reserve(size);
  for (const std::string& s : strings) {
    const auto length = static_cast<uint32_t>(s.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes.append(s);
  }
  return FromBytes(std::move(name), DataType::kBytes, std::move(shape), std::move(bytes));
}

Result<std::vector<std::string_view>> Tensor::Strings() const {
  if (datatype != DataType::kBytes) {
    return InvalidArgument("tensor '" + name + "' is " + std::string(DataTypeName(datatype)) +
                           ", expected BYTES");
  }
  std::vector<std::string_view> strings;
  size_t pos = 0;
  while (pos < data.size()) {
    uint32_t length = 0;
    if (data.size() - pos < sizeof(length)) {
      return InvalidArgument("incomplete string length indicator for inference input '" + name +
                             "'");
    }
    std::memcpy(&length, data.data() + pos, sizeof(length));
    pos += sizeof(length);
    if (data.size() - pos < length) {
      return InvalidArgument("incomplete string data for inference input '" + name +
                             "', expecting string of length " + std::to_string(length) + " but " +
                             std::to_string(data.size() - pos) + " bytes available");
    }
    strings.emplace_back(reinterpret_cast<const char*>(data.data()) + pos, length);
    pos += length;
  }
  if (const int64_t expected = num_elements(); static_cast<int64_t>(strings.size()) != expected) {
    return InvalidArgument("unexpected number of string elements " +
                           std::to_string(strings.size()) + " for inference input '" + name +
                           "', expecting " + std::to_string(expected));
  }
  return strings;
}

}  // namespace inflight::contract
