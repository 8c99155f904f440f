// SPDX-License-Identifier: Apache-2.0
// GGUF files made in a test, by the words of ggml-org/ggml/docs/gguf.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"

namespace inflight::gguf {

template <typename T>
std::string Raw(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

inline std::string RawText(std::string_view text) {
  return Raw(uint64_t{text.size()}) + std::string(text);
}

class TestFile {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  // of offsets and of the data

  // An entry of any type, its value as it lies in the file.
  TestFile& Entry(std::string_view key, ValueType type, std::string_view raw) {
    entries_ += RawText(key) + Raw(static_cast<uint32_t>(type)) + std::string(raw);
    ++num_entries_;
    return *this;
  }
  TestFile& Text(std::string_view key, std::string_view text) {
    return Entry(key, ValueType::kString, RawText(text));
  }
  TestFile& U32(std::string_view key, uint32_t number) {
    return Entry(key, ValueType::kU32, Raw(number));
  }
  TestFile& F32(std::string_view key, float number) {
    return Entry(key, ValueType::kF32, Raw(number));
  }
  TestFile& Bool(std::string_view key, bool flag) {
    return Entry(key, ValueType::kBool, Raw(static_cast<uint8_t>(flag)));
  }
  TestFile& Texts(std::string_view key, const std::vector<std::string>& texts) {
    std::string raw = Raw(static_cast<uint32_t>(ValueType::kString)) + Raw(uint64_t{texts.size()});
    for (const std::string& text : texts) raw += RawText(text);
    return Entry(key, ValueType::kArray, raw);
  }
  template <typename T>
  TestFile& Numbers(std::string_view key, ValueType type, const std::vector<T>& numbers) {
    std::string raw = Raw(static_cast<uint32_t>(type)) + Raw(uint64_t{numbers.size()});
    for (const T number : numbers) raw += Raw(number);
    return Entry(key, ValueType::kArray, raw);
  }

  // `dims` the innermost first; `data` goes to the next aligned place, or to `offset`.
  TestFile& Tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                   std::string_view data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
    TensorAt(name, type, dims, data_.size());
    data_ += data;
    return *this;
  }
  TestFile& TensorAt(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                     uint64_t offset) {
    tensors_ += RawText(name) + Raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) tensors_ += Raw(dim);
    tensors_ += Raw(type) + Raw(offset);
    ++num_tensors_;
    return *this;
  }

  std::string Bytes() const {
    std::string out =
        "GGUF" + Raw(version) + Raw(num_tensors_) + Raw(num_entries_) + entries_ + tensors_;
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data_;
  }

 private:
  std::string entries_, tensors_, data_;
  uint64_t num_entries_ = 0;
  uint64_t num_tensors_ = 0;
};

}  // namespace inflight::gguf
