// SPDX-License-Identifier: Apache-2.0
#include "serving/tensors/data_types.h"

namespace inflight::serving {

DataType FromProto(::inference::DataType type) {
  switch (type) {
    case ::inference::TYPE_BOOL:
      return DataType::kBool;
    case ::inference::TYPE_UINT8:
      return DataType::kUint8;
    case ::inference::TYPE_UINT16:
      return DataType::kUint16;
    case ::inference::TYPE_UINT32:
      return DataType::kUint32;
    case ::inference::TYPE_UINT64:
      return DataType::kUint64;
    case ::inference::TYPE_INT8:
      return DataType::kInt8;
    case ::inference::TYPE_INT16:
      return DataType::kInt16;
    case ::inference::TYPE_INT32:
      return DataType::kInt32;
    case ::inference::TYPE_INT64:
      return DataType::kInt64;
    case ::inference::TYPE_FP16:
      return DataType::kFp16;
    case ::inference::TYPE_FP32:
      return DataType::kFp32;
    case ::inference::TYPE_FP64:
      return DataType::kFp64;
    case ::inference::TYPE_STRING:
      return DataType::kBytes;
    case ::inference::TYPE_BF16:
      return DataType::kBf16;
    default:
      return DataType::kInvalid;
  }
}

::inference::DataType ToProto(DataType type) {
  for (int i = ::inference::DataType_MIN; i <= ::inference::DataType_MAX; ++i) {
    const auto proto = static_cast<::inference::DataType>(i);
    if (FromProto(proto) == type) return proto;
  }
  return ::inference::TYPE_INVALID;
}

}  // namespace inflight::serving
