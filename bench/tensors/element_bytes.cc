// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/element_bytes.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tensor/dtype.h"

namespace inflight::bench {
namespace {

template <typename T>
void Append(T value, std::string& out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

// Calls `f` with a value of the datatype's C++ type; false where there is none.
template <typename F>
bool WithType(std::string_view datatype, const F& f) {
  if (datatype == "BOOL") return f(bool{}), true;
  if (datatype == "INT8") return f(int8_t{}), true;
  if (datatype == "INT16") return f(int16_t{}), true;
  if (datatype == "INT32") return f(int32_t{}), true;
  if (datatype == "INT64") return f(int64_t{}), true;
  if (datatype == "UINT8") return f(uint8_t{}), true;
  if (datatype == "UINT16") return f(uint16_t{}), true;
  if (datatype == "UINT32") return f(uint32_t{}), true;
  if (datatype == "UINT64") return f(uint64_t{}), true;
  if (datatype == "FP16") return f(Float16{}), true;
  if (datatype == "BF16") return f(BFloat16{}), true;
  if (datatype == "FP32") return f(float{}), true;
  if (datatype == "FP64") return f(double{}), true;
  return false;
}

template <typename T>
T FromDouble(double value) {
  if constexpr (requires { T::FromFloat(0.0F); })
    return T::FromFloat(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

template <typename T>
constexpr bool kIsInteger = std::numeric_limits<T>::is_integer;

Status NotOf(std::string_view datatype, const nlohmann::json& value) {
  return InvalidArgument(fmt::format("got {}, which is no {}", value.dump(), datatype));
}

Status UnknownDatatype(std::string_view datatype) {
  return InvalidArgument(fmt::format("datatype '{}' is unknown", datatype));
}

template <typename T>
bool FitsInteger(const nlohmann::json& value) {
  if (value.is_number_unsigned())
    return value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<T>::max());
  if (!value.is_number_integer()) return false;
  if constexpr (std::is_unsigned_v<T>) return false;  // it is below 0
  return value.get<int64_t>() >= static_cast<int64_t>(std::numeric_limits<T>::min());
}

}  // namespace

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

Result<int64_t> ElementSize(std::string_view datatype) {
  int64_t size = 0;
  if (!WithType(datatype, [&](auto zero) { size = sizeof zero; })) return UnknownDatatype(datatype);
  return size;
}

void AppendBytesElement(std::string_view element, std::string& out) {
  Append(static_cast<uint32_t>(element.size()), out);
  out += element;
}

Status AppendZero(std::string_view datatype, std::string& out) {
  if (datatype == "BYTES") {
    AppendBytesElement("", out);
    return Status::Ok();
  }
  if (!WithType(datatype, [&](auto zero) { Append(zero, out); })) return UnknownDatatype(datatype);
  return Status::Ok();
}

Status AppendRandom(std::string_view datatype, int string_length, std::mt19937_64& random,
                    std::string& out) {
  if (datatype == "BYTES") {
    static constexpr std::string_view kLetters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    std::string element;
    for (int i = 0; i < string_length; ++i) element += kLetters[random() % kLetters.size()];
    AppendBytesElement(element, out);
    return Status::Ok();
  }
  const bool is_known = WithType(datatype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::same_as<T, bool>)
      Append(random() % 2 == 1, out);
    else if constexpr (kIsInteger<T>)
      Append(static_cast<T>(random()), out);
    else
      Append(FromDouble<T>(static_cast<double>(random() >> 11) * 0x1p-53), out);
  });
  return is_known ? Status::Ok() : UnknownDatatype(datatype);
}

Status AppendJson(std::string_view datatype, const nlohmann::json& value, std::string& out) {
  if (datatype == "BYTES") {
    if (!value.is_string()) return NotOf(datatype, value);
    AppendBytesElement(value.get<std::string>(), out);
    return Status::Ok();
  }
  bool fits = false;
  const bool is_known = WithType(datatype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::same_as<T, bool>) {
      fits = value.is_boolean() || value == 0 || value == 1;
      if (fits) Append(value.is_boolean() ? value.get<bool>() : value == 1, out);
    } else if constexpr (kIsInteger<T>) {
      fits = FitsInteger<T>(value);
      if (fits) Append(value.get<T>(), out);
    } else {
      fits = value.is_number();
      if (fits) Append(FromDouble<T>(value.get<double>()), out);
    }
  });
  if (!is_known) return UnknownDatatype(datatype);
  return fits ? Status::Ok() : NotOf(datatype, value);
}

}  // namespace inflight::bench
