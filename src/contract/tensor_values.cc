// SPDX-License-Identifier: Apache-2.0
#include "contract/tensor_values.h"

#include <cstring>

#include "base/status_macros.h"

namespace inflight::contract {
namespace {

Status WrongType(const Tensor& tensor, std::string_view expected) {
  return InvalidArgument("tensor '" + tensor.name + "' is " +
                         std::string(DataTypeName(tensor.datatype)) + ", expected " +
                         std::string(expected));
}

// One element of `T`, from a tensor of `size` bytes per element.
template <typename T>
Result<T> ReadOne(const Tensor& tensor) {
  if (tensor.num_elements() != 1 || tensor.data.size() != sizeof(T)) {
    return InvalidArgument("Invalid size for tensor " + tensor.name + ": got " +
                           std::to_string(tensor.num_elements()) + " elements, expected 1");
  }
  T value;
  std::memcpy(&value, tensor.data.data(), sizeof(T));
  return value;
}

template <typename T>
Result<std::vector<T>> ReadAll(const Tensor& tensor) {
  if (tensor.data.size() % sizeof(T) != 0) {
    return InvalidArgument("tensor '" + tensor.name + "' has " +
                           std::to_string(tensor.data.size()) + " bytes, expected a multiple of " +
                           std::to_string(sizeof(T)));
  }
  std::vector<T> values(tensor.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

bool IsInt32(const Tensor& tensor) {
  return tensor.datatype == DataType::kInt32 || tensor.datatype == DataType::kUint32;
}

}  // namespace

Result<int32_t> ReadInt32(const Tensor& tensor) {
  if (!IsInt32(tensor)) return WrongType(tensor, "INT32");
  return ReadOne<int32_t>(tensor);
}

Result<uint64_t> ReadUint64(const Tensor& tensor) {
  if (tensor.datatype != DataType::kUint64 && tensor.datatype != DataType::kInt64) {
    return WrongType(tensor, "UINT64");
  }
  return ReadOne<uint64_t>(tensor);
}

Result<float> ReadFloat(const Tensor& tensor) {
  if (tensor.datatype != DataType::kFp32) return WrongType(tensor, "FP32");
  return ReadOne<float>(tensor);
}

Result<bool> ReadBool(const Tensor& tensor) {
  if (IsInt32(tensor)) {
    ASSIGN_OR_RETURN(const int32_t value, ReadOne<int32_t>(tensor));
    return value != 0;
  }
  if (tensor.datatype != DataType::kBool) return WrongType(tensor, "BOOL");
  ASSIGN_OR_RETURN(const uint8_t value, ReadOne<uint8_t>(tensor));
  return value != 0;
}

Result<std::vector<int32_t>> ReadInt32s(const Tensor& tensor) {
  if (!IsInt32(tensor)) return WrongType(tensor, "INT32");
  return ReadAll<int32_t>(tensor);
}

Result<std::vector<uint64_t>> ReadUint64s(const Tensor& tensor) {
  if (tensor.datatype != DataType::kUint64 && tensor.datatype != DataType::kInt64) {
    return WrongType(tensor, "UINT64");
  }
  return ReadAll<uint64_t>(tensor);
}

Result<std::vector<float>> ReadFloats(const Tensor& tensor) {
  if (tensor.datatype != DataType::kFp32) return WrongType(tensor, "FP32");
  return ReadAll<float>(tensor);
}

}  // namespace inflight::contract
