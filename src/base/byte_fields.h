// SPDX-License-Identifier: Apache-2.0
// Numbers as bytes, of journals and of messages between ranks: those of a size in this machine's
// order, counts in groups of seven bits. One function that visits fields serves both to write and
// to read.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace inflight {

class ByteWriter {
 public:
  explicit ByteWriter(std::string* out) : out_(*out) {}

  void Count(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  void Raw(const void* data, size_t bytes) { out_.append(static_cast<const char*>(data), bytes); }

  template <typename T>
    requires std::is_arithmetic_v<T>
  void Field(const T& value) {
    Raw(&value, sizeof(T));
  }
  template <typename T>
  void Field(const std::optional<T>& value) {
    Field(static_cast<uint8_t>(value.has_value()));
    if (value) Field(*value);
  }
  template <typename T>
    requires std::is_arithmetic_v<T>
  void Field(const std::vector<T>& numbers) {
    Count(numbers.size());
    Raw(numbers.data(), numbers.size() * sizeof(T));
  }
  void Field(const std::vector<std::vector<int32_t>>& lists) {
    Count(lists.size());
    for (const auto& list : lists) Field(list);
  }

 private:
  std::string& out_;
};

// Of bytes that anybody may have written. After the first read past the end `ok` is false and all
// that is read is 0 or empty; no more memory is taken than the bytes that are there.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  void Fail() { ok_ = false; }  // what was read means nothing
  size_t left() const { return bytes_.size(); }

  uint64_t Count() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      uint8_t byte = 0;
      if (!Raw(&byte, 1)) return 0;
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  uint32_t Count32() {
    const uint64_t value = Count();
    ok_ = ok_ && value <= UINT32_MAX;
    return ok_ ? static_cast<uint32_t>(value) : 0;
  }
  // Of things of `bytes_each` or more that follow.
  size_t NumThings(size_t bytes_each) {
    const uint64_t count = Count();
    ok_ = ok_ && count <= left() / bytes_each;
    return ok_ ? static_cast<size_t>(count) : 0;
  }
  bool Raw(void* target, size_t bytes) {
    ok_ = ok_ && bytes <= left();
    if (!ok_) return false;
    if (bytes > 0) std::memcpy(target, bytes_.data(), bytes);
    bytes_.remove_prefix(bytes);
    return true;
  }
  std::string_view Text(size_t bytes) {
    ok_ = ok_ && bytes <= left();
    if (!ok_) return {};
    const std::string_view text = bytes_.substr(0, bytes);
    bytes_.remove_prefix(bytes);
    return text;
  }

  template <typename T>
    requires std::is_arithmetic_v<T>
  void Field(T& value) {
    value = {};
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      Raw(&byte, 1);
      value = byte != 0;
    } else {
      Raw(&value, sizeof(T));
    }
  }
  template <typename T>
  void Field(std::optional<T>& value) {
    value.reset();
    uint8_t has = 0;
    Field(has);
    if (has != 0) Field(value.emplace());
  }
  template <typename T>
    requires std::is_arithmetic_v<T>
  void Field(std::vector<T>& numbers) {
    numbers.resize(NumThings(sizeof(T)));
    Raw(numbers.data(), numbers.size() * sizeof(T));
  }
  void Field(std::vector<std::vector<int32_t>>& lists) {
    lists.clear();
    for (size_t n = NumThings(1); n > 0 && ok_; --n) Field(lists.emplace_back());
  }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace inflight
