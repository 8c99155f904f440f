// SPDX-License-Identifier: Apache-2.0
#include "gguf/metadata.h"

#include <fmt/format.h>

#include <cstring>

#include "base/status_macros.h"

namespace inflight::gguf {
namespace {

constexpr size_t kMaxQuoted = 80;

template <typename T>
T At(const Array& array, uint64_t i) {
  T value;
  std::memcpy(&value, array.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void AppendAll(const Array& array, std::vector<int64_t>& out) {
  for (uint64_t i = 0; i < array.size; ++i) out.push_back(static_cast<int64_t>(At<T>(array, i)));
}

std::string Quote(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, kMaxQuoted)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kMaxQuoted ? "...'" : "'");
}

}  // namespace

size_t SizeOf(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    default:
      return 0;
  }
}

std::string Describe(const Value& value) {
  struct Visitor {
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(uint64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::string_view v) const { return Quote(v); }
    std::string operator()(const Array& v) const {
      return fmt::format("an array of {} values", v.size);
    }
  };
  return std::visit(Visitor{}, value);
}

const Value* Metadata::Find(std::string_view key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &entries_[found->second].second;
}

bool Metadata::Add(std::string_view key, const Value& value) {
  if (!by_key_.emplace(key, entries_.size()).second) return false;
  entries_.emplace_back(key, value);
  return true;
}

Status Metadata::WrongType(std::string_view key, std::string_view needed) const {
  return InvalidArgument(
      fmt::format("{}: {}: got {}, {} is needed", where_, key, Describe(*Find(key)), needed));
}

Result<std::optional<int64_t>> Metadata::Int(std::string_view key, int64_t min, int64_t max) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const auto* number = std::get_if<int64_t>(value);
  const auto* large = std::get_if<uint64_t>(value);
  std::optional<int64_t> found;
  if (number != nullptr) found = *number;
  if (large != nullptr && *large <= static_cast<uint64_t>(INT64_MAX))
    found = static_cast<int64_t>(*large);
  if (!found || *found < min || *found > max)
    return WrongType(key, fmt::format("a whole number from {} to {}", min, max));
  return found;
}

Result<std::optional<int64_t>> Metadata::SpecialId(std::string_view name,
                                                   int64_t num_tokens) const {
  return Int(fmt::format("{}{}_token_id", kTokenizerKeys, name), 0, num_tokens - 1);
}

Result<std::optional<bool>> Metadata::Bool(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* flag = std::get_if<bool>(value)) return std::optional(*flag);
  return WrongType(key, "true or false");
}

Result<std::optional<std::string_view>> Metadata::Text(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (const auto* text = std::get_if<std::string_view>(value)) return std::optional(*text);
  return WrongType(key, "a text");
}

Result<const Array*> Metadata::FindArray(std::string_view key, std::string_view needed) const {
  const Value* value = Find(key);
  if (value == nullptr) return static_cast<const Array*>(nullptr);
  if (const auto* array = std::get_if<Array>(value)) return array;
  return WrongType(key, needed);
}

Result<std::optional<std::vector<std::string_view>>> Metadata::Texts(std::string_view key) const {
  constexpr std::string_view kNeeded = "an array of texts";
  ASSIGN_OR_RETURN(const Array* array, FindArray(key, kNeeded));
  if (array == nullptr) return std::optional<std::vector<std::string_view>>();
  if (array->type != ValueType::kString) return WrongType(key, kNeeded);
  std::vector<std::string_view> texts;
  texts.reserve(array->size);
  const auto* next = reinterpret_cast<const char*>(array->bytes.data());
  for (uint64_t i = 0; i < array->size; ++i) {
    uint64_t num_bytes = 0;
    std::memcpy(&num_bytes, next, sizeof(num_bytes));
    texts.emplace_back(next + sizeof(num_bytes), num_bytes);
    next += sizeof(num_bytes) + num_bytes;
  }
  return std::optional(std::move(texts));
}

Result<std::optional<std::vector<int64_t>>> Metadata::Ints(std::string_view key) const {
  constexpr std::string_view kNeeded = "an array of whole numbers";
  ASSIGN_OR_RETURN(const Array* array, FindArray(key, kNeeded));
  if (array == nullptr) return std::optional<std::vector<int64_t>>();
  std::vector<int64_t> out;
  out.reserve(array->size);
  switch (array->type) {
    case ValueType::kU8:
      AppendAll<uint8_t>(*array, out);
      break;
    case ValueType::kI8:
      AppendAll<int8_t>(*array, out);
      break;
    case ValueType::kU16:
      AppendAll<uint16_t>(*array, out);
      break;
    case ValueType::kI16:
      AppendAll<int16_t>(*array, out);
      break;
    case ValueType::kU32:
      AppendAll<uint32_t>(*array, out);
      break;
    case ValueType::kI32:
      AppendAll<int32_t>(*array, out);
      break;
    case ValueType::kI64:
      AppendAll<int64_t>(*array, out);
      break;
    default:
      return WrongType(key, kNeeded);
  }
  return std::optional(std::move(out));
}

Result<std::optional<std::vector<float>>> Metadata::Floats(std::string_view key) const {
  constexpr std::string_view kNeeded = "an array of float32";
  ASSIGN_OR_RETURN(const Array* array, FindArray(key, kNeeded));
  if (array == nullptr) return std::optional<std::vector<float>>();
  if (array->type != ValueType::kF32) return WrongType(key, kNeeded);
  std::vector<float> out(array->size);
  if (!out.empty()) std::memcpy(out.data(), array->bytes.data(), array->bytes.size());
  return std::optional(std::move(out));
}

Result<std::optional<std::string_view>> Metadata::Bytes(std::string_view key) const {
  constexpr std::string_view kNeeded = "an array of 8 bit integers";
  ASSIGN_OR_RETURN(const Array* array, FindArray(key, kNeeded));
  if (array == nullptr) return std::optional<std::string_view>();
  if (array->type != ValueType::kU8 && array->type != ValueType::kI8)
    return WrongType(key, kNeeded);
  return std::optional(
      std::string_view(reinterpret_cast<const char*>(array->bytes.data()), array->bytes.size()));
}

std::optional<uint64_t> Metadata::ArraySize(std::string_view key) const {
  const Value* value = Find(key);
  const auto* array = value == nullptr ? nullptr : std::get_if<Array>(value);
  return array == nullptr ? std::nullopt : std::optional(array->size);
}

}  // namespace inflight::gguf
