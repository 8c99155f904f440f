// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/tensor_contents.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace inflight::kserve_grpc {
namespace {

using ::inference::InferTensorContents;
using serving::DataType;

static_assert(std::endian::native == std::endian::little, "tensor bytes are little-endian");

// Each element of a field narrowed to To, the low bytes first.
template <typename To, typename Field>
std::string Pack(const Field& field) {
  std::string bytes(field.size() * sizeof(To), '\0');
  char* out = bytes.data();
  for (const auto& element : field) {
    const To value = static_cast<To>(element);
    std::memcpy(out, &value, sizeof(To));
    out += sizeof(To);
  }
  return bytes;
}

template <typename Field>
std::string PackStrings(const Field& field) {
  size_t size = 0;
  for (const std::string& element : field) size += sizeof(uint32_t) + element.size();
  std::string bytes;
  bytes.reserve(size);
  for (const std::string& element : field) {
    const auto length = static_cast<uint32_t>(element.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes.append(element);
  }
  return bytes;
}

// A populated field, named by the datatype that owns it.
struct Populated {
  const char* owner;
  bool is_match;  // the field belongs to the input's datatype
};

// The populated fields in field order; at most two are looked at.
struct PopulatedFields {
  int count = 0;
  Populated first{};

  void Add(int size, const char* owner, bool is_match) {
    if (size == 0) return;
    if (count++ == 0) first = {owner, is_match};
  }
};

PopulatedFields Populate(const InferTensorContents& c, DataType t) {
  PopulatedFields fields;
  fields.Add(c.bool_contents_size(), "BOOL", t == DataType::kBool);
  fields.Add(c.int_contents_size(), "INT32",
             t == DataType::kInt8 || t == DataType::kInt16 || t == DataType::kInt32);
  fields.Add(c.int64_contents_size(), "INT64", t == DataType::kInt64);
  fields.Add(c.uint_contents_size(), "UINT32",
             t == DataType::kUint8 || t == DataType::kUint16 || t == DataType::kUint32);
  fields.Add(c.uint64_contents_size(), "UINT64", t == DataType::kUint64);
  fields.Add(c.fp32_contents_size(), "FP32", t == DataType::kFp32);
  fields.Add(c.fp64_contents_size(), "FP64", t == DataType::kFp64);
  fields.Add(c.bytes_contents_size(), "BYTES", t == DataType::kBytes);
  return fields;
}

std::string Bytes(const InferTensorContents& c, DataType t) {
  switch (t) {
    case DataType::kBool:
      return Pack<uint8_t>(c.bool_contents());
    case DataType::kInt8:
      return Pack<int8_t>(c.int_contents());
    case DataType::kInt16:
      return Pack<int16_t>(c.int_contents());
    case DataType::kInt32:
      return Pack<int32_t>(c.int_contents());
    case DataType::kInt64:
      return Pack<int64_t>(c.int64_contents());
    case DataType::kUint8:
      return Pack<uint8_t>(c.uint_contents());
    case DataType::kUint16:
      return Pack<uint16_t>(c.uint_contents());
    case DataType::kUint32:
      return Pack<uint32_t>(c.uint_contents());
    case DataType::kUint64:
      return Pack<uint64_t>(c.uint64_contents());
    case DataType::kFp32:
      return Pack<float>(c.fp32_contents());
    case DataType::kFp64:
      return Pack<double>(c.fp64_contents());
    case DataType::kBytes:
      return PackStrings(c.bytes_contents());
    default:
      return {};  // no field belongs to it: only reached with none populated
  }
}

}  // namespace

Result<std::string> TensorBytes(const InferTensorContents& contents, DataType datatype,
                                std::string_view input_name, std::string_view model_name) {
  const PopulatedFields fields = Populate(contents, datatype);
  const std::string where = "unexpected explicit tensor data for input tensor '" +
                            std::string(input_name) + "' for model '" + std::string(model_name) +
                            "'";
  if (fields.count > 0 && !fields.first.is_match) {
    const std::string_view expected = datatype == DataType::kInvalid
                                          ? std::string_view("<invalid>")
                                          : serving::DataTypeName(datatype);
    return InvalidArgument(where + " of type '" + fields.first.owner + "', expected datatype '" +
                           std::string(expected) + "'");
  }
  if (fields.count > 1) {
    return InvalidArgument(where + ", binary data was already supplied.");
  }
  return Bytes(contents, datatype);
}

Status MissingData(std::string_view input_name, std::string_view model_name) {
  return InvalidArgument("unable to find data for input tensor '" + std::string(input_name) +
                         "' for model '" + std::string(model_name) + "' in request.");
}

}  // namespace inflight::kserve_grpc
