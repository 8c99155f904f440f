// SPDX-License-Identifier: Apache-2.0
#include "json/json_reader.h"

#include <charconv>
#include <cstring>

#include "base/status_macros.h"
#include "json/json_validator.h"
#include "json/json_writer.h"

// Everything here walks text that Validate has accepted.
namespace inflight::json {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool EndsScalar(char c) { return IsBlank(c) || c == ',' || c == ']' || c == '}'; }

const char* SkipBlanks(const char* p, const char* end) {
  while (p < end && IsBlank(*p)) ++p;
  return p;
}

// Blanks and one comma.
const char* SkipSeparator(const char* p, const char* end) {
  p = SkipBlanks(p, end);
  return p < end && *p == ',' ? SkipBlanks(p + 1, end) : p;
}

const char* SkipString(const char* p) {
  for (++p; *p != '"'; ++p) {
    if (*p == '\\') ++p;
  }
  return p + 1;
}

// From a value's first character to behind its last.
const char* SkipValue(const char* p, const char* end) {
  if (*p == '"') return SkipString(p);
  if (*p != '{' && *p != '[') {
    while (p < end && !EndsScalar(*p)) ++p;
    return p;
  }
  size_t depth = 0;
  while (true) {
    if (*p == '"') {
      p = SkipString(p);
      continue;
    }
    if (*p == '{' || *p == '[') ++depth;
    if ((*p == '}' || *p == ']') && --depth == 0) return p + 1;
    ++p;
  }
}

uint32_t Hex4(const char* p) {
  uint32_t unit = 0;
  std::from_chars(p, p + 4, unit, 16);
  return unit;
}

// `p` is behind the backslash; returns the position behind the escape.
const char* AppendEscape(std::string& out, const char* p) {
  static constexpr std::string_view kNames = "bfnrt";
  static constexpr std::string_view kCharacters = "\b\f\n\r\t";
  if (*p != 'u') {
    const size_t i = kNames.find(*p);
    out.push_back(i == std::string_view::npos ? *p : kCharacters[i]);
    return p + 1;
  }
  uint32_t code = Hex4(p + 1);
  p += 5;
  if (code >= 0xD800 && code <= 0xDBFF) {
    code = 0x10000 + ((code - 0xD800) << 10) + (Hex4(p + 2) - 0xDC00);
    p += 6;
  }
  AppendUtf8(out, code);
  return p;
}

// `p` is the opening quote.
std::string DecodeString(const char* p, const char* end) {
  std::string out;
  out.reserve(static_cast<size_t>(SkipString(p) - p - 2));
  ++p;
  while (*p != '"') {
    if (*p == '\\') {
      p = AppendEscape(out, p + 1);
      continue;
    }
    const char* run = p;
    while (p < end && *p != '"' && *p != '\\') ++p;
    out.append(run, p);
  }
  return out;
}

// The same, where it stands if it has no escapes, else in `decoded`.
std::string_view TextAt(const char* p, const char* end, std::string& decoded) {
  const std::string_view text(p + 1, static_cast<size_t>(SkipString(p) - p - 2));
  if (text.find('\\') == std::string_view::npos) return text;
  return decoded = DecodeString(p, end);
}

// False where the scalar is no integer, or none that fits.
template <typename T>
bool ReadInteger(const char* p, const char* end, T& value) {
  const auto [rest, error] = std::from_chars(p, end, value);
  return error == std::errc{} && (rest == end || EndsScalar(*rest));
}

Status WrongType(std::string_view found, std::string_view wanted) {
  return Internal("attempt to access JSON non-" + std::string(found) + " as " +
                  std::string(wanted));
}
Status WrongType(std::string_view wanted) { return WrongType(wanted, wanted); }

}  // namespace

Result<Value> Value::Parse(std::string_view text) {
  RETURN_IF_ERROR(Validate(text));
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const char* end = text.data() + text.size();
  return Value(SkipBlanks(text.data(), end), end);
}

Value::Kind Value::kind() const {
  switch (*begin_) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kString;
    case 't':
    case 'f':
      return Kind::kBool;
    case 'n':
      return Kind::kNull;
    default:
      return Kind::kNumber;
  }
}

bool Value::IsInteger() const {
  const std::string_view token = text();
  return kind() == Kind::kNumber &&
         token.find_first_not_of("-0123456789") == std::string_view::npos;
}

size_t Value::text_bytes() const { return static_cast<size_t>(SkipValue(begin_, end_) - begin_); }

Result<std::string> Value::AsString() const {
  if (kind() != Kind::kString) return WrongType("string");
  return DecodeString(begin_, end_);
}

Result<bool> Value::AsBool() const {
  if (kind() != Kind::kBool) return WrongType("boolean");
  return *begin_ == 't';
}

Result<int64_t> Value::AsInt() const {
  int64_t value = 0;
  if (!ReadInteger(begin_, end_, value)) return WrongType("signed-integer");
  return value;
}

Result<uint64_t> Value::AsUint() const {
  uint64_t value = 0;
  if (ReadInteger(begin_, end_, value)) return value;
  if (text() == "-0") return uint64_t{0};
  return WrongType("unsigned-integer");
}

Result<double> Value::AsDouble() const {
  if (kind() != Kind::kNumber) return WrongType("number", "double");
  const std::string_view token = text();
  return token == "-0" ? 0.0 : NumberToDouble(token);  // "-0" is an integer, and those have no sign
}

Status Value::ForEachMember(
    const std::function<Status(std::string_view name, Value value)>& visit) const {
  if (kind() != Kind::kObject) return Internal("attempt to get members for non-object");
  const char* p = SkipBlanks(begin_ + 1, end_);
  std::string decoded;
  while (*p != '}') {
    const std::string_view name = TextAt(p, end_, decoded);
    p = SkipBlanks(SkipString(p), end_);
    const Value value(SkipBlanks(p + 1, end_), end_);  // behind the colon
    RETURN_IF_ERROR(visit(name, value));
    p = SkipSeparator(SkipValue(value.begin_, end_), end_);
  }
  return Status::Ok();
}

Status Value::ForEachElement(const std::function<Status(Value element)>& visit) const {
  if (kind() != Kind::kArray) return WrongType("array");
  const char* p = SkipBlanks(begin_ + 1, end_);
  while (*p != ']') {
    const Value element(p, end_);
    RETURN_IF_ERROR(visit(element));
    p = SkipSeparator(SkipValue(p, end_), end_);
  }
  return Status::Ok();
}

Result<size_t> Value::NumElements() const {
  size_t count = 0;
  RETURN_IF_ERROR(ForEachElement([&count](Value) {
    ++count;
    return Status::Ok();
  }));
  return count;
}

Status Value::ForEachScalar(int max_depth, const std::function<Status(Value scalar)>& visit) const {
  if (kind() != Kind::kArray) return WrongType("array");
  int depth = 0;
  const char* p = begin_;
  do {
    if (*p == '[') {
      if (++depth > max_depth) {
        return InvalidArgument("JSON nesting depth exceeds maximum allowed limit (" +
                               std::to_string(max_depth) + ")");
      }
      ++p;
    } else if (*p == ']') {
      --depth;
      ++p;
    } else {
      RETURN_IF_ERROR(visit(Value(p, end_)));
      p = SkipValue(p, end_);
    }
    p = SkipSeparator(p, end_);
  } while (depth > 0);
  return Status::Ok();
}

void Value::PickInto(const std::string_view* names, std::optional<Value>* found,
                     size_t count) const {
  if (kind() != Kind::kObject) return;
  (void)ForEachMember([&](std::string_view name, Value value) {
    for (size_t i = 0; i < count; ++i) {
      if (names[i] == name && !found[i]) found[i] = value;
    }
    return Status::Ok();
  });
}

}  // namespace inflight::json
