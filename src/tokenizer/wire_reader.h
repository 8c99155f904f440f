// SPDX-License-Identifier: Apache-2.0
// Reads the protobuf wire format, field by field (protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace inflight::tokenizer {

class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  struct Field {
    enum Type { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 } type = kVarint;
    uint64_t number = 0;
    uint64_t value = 0;      // all types but kBytes
    std::string_view bytes;  // kBytes
    float AsFloat() const {  // kFixed32
      const auto bits = static_cast<uint32_t>(value);
      float number_of;
      std::memcpy(&number_of, &bits, sizeof number_of);
      return number_of;
    }
  };

  // False at the end of the message and where it is malformed.
  bool Next(Field& field) {
    if (rest_.empty()) return false;
    uint64_t key;
    if (!Varint(key) || key >> 3 == 0) return Fail();
    field.number = key >> 3;
    field.type = static_cast<Field::Type>(key & 7);
    switch (key & 7) {
      case Field::kVarint:
        return Varint(field.value) || Fail();
      case Field::kFixed64:
        return Fixed(8, field.value) || Fail();
      case Field::kFixed32:
        return Fixed(4, field.value) || Fail();
      case Field::kBytes: {
        uint64_t size;
        if (!Varint(size) || size > rest_.size()) return Fail();
        field.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      }
      default:
        return Fail();  // groups: nothing of our time writes them
    }
  }
  bool malformed() const { return malformed_; }

 private:
  bool Fail() {
    malformed_ = true;
    return false;
  }
  bool Varint(uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 70 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Fixed(size_t size, uint64_t& value) {
    if (rest_.size() < size) return false;
    value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<uint8_t>(rest_[i]);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  bool malformed_ = false;
};

}  // namespace inflight::tokenizer
