// SPDX-License-Identifier: Apache-2.0
// One JSON schema as it stands in a document: its keywords, each by name. What a schema says
// without being held to it, annotations, is left out; any other keyword is refused.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"
#include "json/json_reader.h"

namespace inflight::grammar {

enum class Keyword : uint8_t {
  kAdditionalProperties,
  kAllOf,
  kAnyOf,
  kConst,
  kEnum,
  kExclusiveMaximum,
  kExclusiveMinimum,
  kFormat,
  kItems,
  kMaximum,
  kMaxItems,
  kMaxLength,
  kMinimum,
  kMinItems,
  kMinLength,
  kMultipleOf,
  kOneOf,
  kPattern,
  kPatternProperties,
  kPrefixItems,
  kProperties,
  kPropertyNames,
  kRef,
  kRequired,
  kType,
};
inline constexpr size_t kNumKeywords = static_cast<size_t>(Keyword::kType) + 1;

// Types of values, as bits. A number is what has a fraction or an exponent, or may have.
using Types = uint8_t;
inline constexpr Types kObjects = 1;
inline constexpr Types kArrays = 2;
inline constexpr Types kStrings = 4;
inline constexpr Types kNumbers = 8;
inline constexpr Types kIntegers = 16;
inline constexpr Types kBooleans = 32;
inline constexpr Types kNulls = 64;
inline constexpr Types kAllTypes = 127;

struct Schema {
  std::string pointer;            // RFC 6901, of its place in the document: "#/properties/a"
  std::optional<bool> is_always;  // true and false in place of an object
  std::array<std::optional<json::Value>, kNumKeywords> keywords;

  const std::optional<json::Value>& operator[](Keyword keyword) const {
    return keywords[static_cast<size_t>(keyword)];
  }
  Types types_of_keywords() const;  // whose values keywords other than `type` are about
};

// kInvalidArgument names keyword and place.
Result<Schema> ReadSchema(const json::Value& value, std::string pointer);

// "schema: at #/a: keyword: what".
Status SchemaError(const Schema& schema, Keyword keyword, std::string_view what);

std::string_view NameOf(Keyword keyword);

// What follows a pointer's last /.
std::string EscapedForPointer(std::string_view name);

// Of "type": a name, or an array of names.
Result<Types> TypesOf(const Schema& schema);

}  // namespace inflight::grammar
