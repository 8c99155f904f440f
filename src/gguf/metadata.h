// SPDX-License-Identifier: Apache-2.0
// The entries of a GGUF file: named values, read where they lie.
//
// Threads: immutable once a file is parsed. Texts and arrays are valid as long as the file's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "inflight/status.h"

namespace inflight::gguf {

// `enum gguf_metadata_value_type` of ggml-org/ggml/docs/gguf.md.
enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// Bytes of a value of fixed size; 0 of texts, arrays and numbers that name no type.
size_t SizeOf(ValueType type);

struct Array {
  ValueType type = ValueType::kU8;
  uint64_t size = 0;  // elements
  std::span<const std::byte> bytes;
};

// Integers of each size are int64 or, of u64, uint64; reals of each size are double.
using Value = std::variant<int64_t, uint64_t, double, bool, std::string_view, Array>;

// `value` as text for an error message, cut to a readable length.
std::string Describe(const Value& value);

inline constexpr std::string_view kTokenizerKeys = "tokenizer.ggml.";
inline constexpr int64_t kControlToken = 3;  // of tokenizer.ggml.token_type: a special token

class Metadata {
 public:
  using Entry = std::pair<std::string_view, Value>;

  explicit Metadata(std::string where = {}) : where_(std::move(where)) {}

  const std::string& where() const { return where_; }  // the file, for messages
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* Find(std::string_view key) const;

  // False where the key is there already.
  bool Add(std::string_view key, const Value& value);

  // The value of `key`, nothing where it is absent. kInvalidArgument names the file, the key, what
  // was found and what is needed.
  Result<std::optional<int64_t>> Int(std::string_view key, int64_t min, int64_t max) const;
  // tokenizer.ggml.NAME_token_id, of so many tokens.
  Result<std::optional<int64_t>> SpecialId(std::string_view name, int64_t num_tokens) const;
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<std::string_view>> Text(std::string_view key) const;
  Result<std::optional<std::vector<std::string_view>>> Texts(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> Ints(std::string_view key) const;
  Result<std::optional<std::vector<float>>> Floats(std::string_view key) const;
  // Of an array of 8 bit integers.
  Result<std::optional<std::string_view>> Bytes(std::string_view key) const;
  // Elements of an array; nothing where `key` is absent or is none. Asked before Ints and Floats,
  // whose vectors may be eight times as large as the array in the file.
  std::optional<uint64_t> ArraySize(std::string_view key) const;

 private:
  Status WrongType(std::string_view key, std::string_view needed) const;
  // The array of `key`, null where it is absent.
  Result<const Array*> FindArray(std::string_view key, std::string_view needed) const;

  std::string where_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> by_key_;  // -> index in entries_
};

}  // namespace inflight::gguf
