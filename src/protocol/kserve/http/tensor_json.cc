// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/tensor_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/status_macros.h"

namespace inflight::kserve_http {
namespace {

using serving::DataType;
using serving::Tensor;

constexpr int kMaxDepth = 100;

template <typename T>
void AppendRaw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The low bits of an integer, as many as the type has.
void AppendLowBytes(std::string& out, uint64_t value, size_t num_bytes) {
  out.append(reinterpret_cast<const char*>(&value), num_bytes);  // little-endian hosts only
}

float ToFloat(double value) {
  if (std::fabs(value) <= std::numeric_limits<float>::max()) return static_cast<float>(value);
  if (std::isnan(value)) return std::numeric_limits<float>::quiet_NaN();
  // What rounds to nearest below the next power of two is still the largest float.
  constexpr double kHalfStepAboveMax = 0x1.ffffffp127;
  const float bound = std::fabs(value) < kHalfStepAboveMax ? std::numeric_limits<float>::max()
                                                           : std::numeric_limits<float>::infinity();
  return std::copysign(bound, static_cast<float>(std::copysign(1.0, value)));
}

Status AppendScalar(std::string& out, DataType type, const json::Value& value) {
  switch (type) {
    case DataType::kBool: {
      ASSIGN_OR_RETURN(const bool b, value.AsBool());
      out.push_back(b ? '\1' : '\0');
      return Status::Ok();
    }
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kUint32:
    case DataType::kUint64: {
      ASSIGN_OR_RETURN(const uint64_t u, value.AsUint());
      AppendLowBytes(out, u, serving::DataTypeSize(type));
      return Status::Ok();
    }
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64: {
      ASSIGN_OR_RETURN(const int64_t i, value.AsInt());
      AppendLowBytes(out, static_cast<uint64_t>(i), serving::DataTypeSize(type));
      return Status::Ok();
    }
    case DataType::kFp32: {
      ASSIGN_OR_RETURN(const double d, value.AsDouble());
      AppendRaw(out, ToFloat(d));
      return Status::Ok();
    }
    case DataType::kFp64: {
      ASSIGN_OR_RETURN(const double d, value.AsDouble());
      AppendRaw(out, d);
      return Status::Ok();
    }
    case DataType::kBytes: {
      ASSIGN_OR_RETURN(const std::string s, value.AsString());
      AppendRaw(out, static_cast<uint32_t>(s.size()));
      out.append(s);
      return Status::Ok();
    }
    default:
      return Internal("no JSON form of this datatype");  // refused by CheckJsonType
  }
}

Status CheckJsonType(std::string_view name, DataType type) {
  if (type != DataType::kFp16 && type != DataType::kBf16) return Status::Ok();
  return InvalidArgument("receiving " + std::string(serving::DataTypeName(type)) +
                         " data via JSON is not supported. Please use the binary data format for "
                         "input " +
                         std::string(name));
}

Status InData(DataType type, const Status& status) {
  if (status.code() != StatusCode::kInternal) return status;
  return status.WithPrefix(type == DataType::kBytes ? "Unable to parse JSON bytes array"
                                                    : "Unable to parse 'data'");
}

// Bytes of an element, at least: a string's length field.
uint64_t MinElementBytes(DataType type) {
  return type == DataType::kBytes ? sizeof(uint32_t) : serving::DataTypeSize(type);
}

Status CheckExpandedSize(std::string_view name, uint64_t num_bytes, const InputLimit& limit) {
  if (limit.used_bytes == 0) {
    return CheckInputSize("JSON input '" + std::string(name) + "'", num_bytes, limit.max_bytes);
  }
  if (num_bytes <= limit.max_bytes - std::min(limit.max_bytes, limit.used_bytes)) {
    return Status::Ok();
  }
  return InvalidArgument(fmt::format(
      "request size of {} bytes with input '{}' of size {} bytes exceeds the maximum allowed input "
      "size of {}. Use --http-max-input-size to increase the limit.",
      limit.used_bytes, name, num_bytes, limit.max_bytes));
}

template <typename T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));  // binary tensors need not be aligned
  return value;
}

template <typename T, typename Write>
void WriteEach(const Tensor& tensor, Write write) {
  for (size_t i = 0; i + sizeof(T) <= tensor.data.size(); i += sizeof(T)) {
    write(Load<T>(tensor.data.data() + i));
  }
}

}  // namespace

Result<uint64_t> NumElements(std::string_view name, DataType type, std::span<const int64_t> shape) {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const auto bad_shape = [&](const std::string& why) {
    return InvalidArgument(fmt::format("invalid shape for input '{}': shape [{}] {}", name,
                                       fmt::join(shape, ","), why));
  };
  if (std::ranges::any_of(shape, [](int64_t dim) { return dim < 0; })) {
    return bad_shape("contains one or more invalid dimensions");
  }
  uint64_t count = 1;
  bool is_empty = false;
  for (const int64_t dim : shape) {
    const auto d = static_cast<uint64_t>(dim);
    is_empty |= d == 0;
    if (d != 0 && count > kMax / d) {
      return bad_shape(
          fmt::format("causes total element count to exceed maximum size of {}", kMax));
    }
    if (d != 0) count *= d;
  }
  if (is_empty) return uint64_t{0};
  if (const uint64_t size = MinElementBytes(type); size > 1 && count > kMax / size) {
    return InvalidArgument(
        fmt::format("byte size overflow for input '{}': element count ({}) * data type size ({}) "
                    "exceeds maximum allowed size ({})",
                    name, count, size, kMax));
  }
  return count;
}

Status CheckJsonSize(uint64_t num_bytes, uint64_t max_bytes) {
  if (num_bytes <= max_bytes) return Status::Ok();
  return InvalidArgument(
      fmt::format("request JSON size of {} bytes exceeds the maximum allowed input size of {} "
                  "bytes. Use --http-max-input-size to increase the limit.",
                  num_bytes, max_bytes));
}

Status CheckInputSize(std::string_view what, uint64_t num_bytes, uint64_t max_bytes) {
  if (num_bytes <= max_bytes) return Status::Ok();
  return InvalidArgument(std::string(what) + " has a byte_size (" + std::to_string(num_bytes) +
                         " bytes) that exceeds the maximum allowed value of " +
                         std::to_string(max_bytes) +
                         " bytes. Use --http-max-input-size to increase the limit.");
}

Result<Tensor> TensorFromArray(std::string name, DataType type, std::vector<int64_t> shape,
                               const json::Value& data, const InputLimit& limit) {
  RETURN_IF_ERROR(CheckJsonType(name, type));
  ASSIGN_OR_RETURN(const uint64_t num_elements, NumElements(name, type, shape));
  if (num_elements == 0) {  // the data is not looked at
    return Tensor::FromBytes(std::move(name), type, std::move(shape), {});
  }
  RETURN_IF_ERROR(CheckExpandedSize(name, num_elements * MinElementBytes(type), limit));

  std::string bytes;
  uint64_t num_found = 0;
  const Status status = data.ForEachScalar(kMaxDepth, [&](json::Value scalar) -> Status {
    if (num_found++ == num_elements) {
      return Internal("Shape does not match true shape of 'data' field");
    }
    return AppendScalar(bytes, type, scalar);
  });
  if (num_found > num_elements || data.kind() != json::Value::Kind::kArray) {
    return status.WithPrefix("Unable to parse 'data'");
  }
  RETURN_IF_ERROR(InData(type, status));
  if (num_found < num_elements) {
    return Internal("Failed to parse 'data' field: shape does not match true shape");
  }
  RETURN_IF_ERROR(CheckExpandedSize(name, bytes.size(), limit));
  return Tensor::FromBytes(std::move(name), type, std::move(shape), std::move(bytes));
}

Result<Tensor> TensorFromScalar(std::string name, DataType type, std::vector<int64_t> shape,
                                const json::Value& value, const InputLimit& limit) {
  RETURN_IF_ERROR(CheckJsonType(name, type));
  std::string bytes;
  RETURN_IF_ERROR(InData(type, AppendScalar(bytes, type, value)));
  RETURN_IF_ERROR(CheckExpandedSize(name, bytes.size(), limit));
  return Tensor::FromBytes(std::move(name), type, std::move(shape), std::move(bytes));
}

size_t MostJsonBytes(const Tensor& tensor) {
  constexpr size_t kOfEscapedByte = 6;      // \u001f
  constexpr size_t kOfDouble = 25;          // -1.7976931348623157e+308,
  constexpr size_t kMostOfIntegerByte = 5;  // -128,
  switch (tensor.datatype) {
    case DataType::kBytes:  // quotes and comma take the place of the length
    case DataType::kBool:   // false,
      return tensor.data.size() * kOfEscapedByte;
    case DataType::kFp32:
      return tensor.data.size() / sizeof(float) * kOfDouble;
    case DataType::kFp64:
      return tensor.data.size() / sizeof(double) * kOfDouble;
    default:
      return tensor.data.size() * kMostOfIntegerByte;
  }
}

Status WriteElements(const Tensor& tensor, json::Writer& out) {
  const auto write_int = [&out](auto v) { out.Int(v); };
  const auto write_uint = [&out](auto v) { out.Uint(v); };
  switch (tensor.datatype) {
    case DataType::kBool:
      WriteEach<uint8_t>(tensor, [&out](uint8_t v) { out.Bool(v != 0); });
      break;
    case DataType::kUint8:
      WriteEach<uint8_t>(tensor, write_uint);
      break;
    case DataType::kUint16:
      WriteEach<uint16_t>(tensor, write_uint);
      break;
    case DataType::kUint32:
      WriteEach<uint32_t>(tensor, write_uint);
      break;
    case DataType::kUint64:
      WriteEach<uint64_t>(tensor, write_uint);
      break;
    case DataType::kInt8:
      WriteEach<int8_t>(tensor, write_int);
      break;
    case DataType::kInt16:
      WriteEach<int16_t>(tensor, write_int);
      break;
    case DataType::kInt32:
      WriteEach<int32_t>(tensor, write_int);
      break;
    case DataType::kInt64:
      WriteEach<int64_t>(tensor, write_int);
      break;
    case DataType::kFp32:
      WriteEach<float>(tensor, [&out](float v) { out.Double(v); });
      break;
    case DataType::kFp64:
      WriteEach<double>(tensor, [&out](double v) { out.Double(v); });
      break;
    case DataType::kBytes: {
      auto strings = tensor.Strings();
      if (!strings.ok()) {
        return Internal("output tensor shape does not match size of output for '" + tensor.name +
                        "'");
      }
      for (const std::string_view s : *strings) out.String(s);
      break;
    }
    case DataType::kFp16:
    case DataType::kBf16:
    case DataType::kInvalid:
      return InvalidArgument("sending " + std::string(serving::DataTypeName(tensor.datatype)) +
                             " data via JSON is not supported. Please use the binary data format "
                             "for output");
  }
  return Status::Ok();
}

}  // namespace inflight::kserve_http
