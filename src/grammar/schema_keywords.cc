// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"

namespace inflight::grammar {
namespace {

struct KeywordEntry {
  std::string_view name;
  Types types;  // that it is about; 0: none more than others
};

// By Keyword.
constexpr std::array<KeywordEntry, kNumKeywords> kKeywords = {{
    {"additionalProperties", kObjects},
    {"allOf", 0},
    {"anyOf", 0},
    {"const", 0},
    {"enum", 0},
    {"exclusiveMaximum", kNumbers | kIntegers},
    {"exclusiveMinimum", kNumbers | kIntegers},
    {"format", kStrings},
    {"items", kArrays},
    {"maximum", kNumbers | kIntegers},
    {"maxItems", kArrays},
    {"maxLength", kStrings},
    {"minimum", kNumbers | kIntegers},
    {"minItems", kArrays},
    {"minLength", kStrings},
    {"multipleOf", kNumbers | kIntegers},
    {"oneOf", 0},
    {"pattern", kStrings},
    {"patternProperties", kObjects},
    {"prefixItems", kArrays},
    {"properties", kObjects},
    {"propertyNames", kObjects},
    {"$ref", 0},
    {"required", kObjects},
    {"type", 0},
}};

// Say nothing about which values are valid.
constexpr std::string_view kAnnotations[] = {
    "$comment", "$defs",       "$schema",    "contentEncoding", "contentMediaType",
    "default",  "definitions", "deprecated", "discriminator",   "description",
    "examples", "readOnly",    "title",      "writeOnly"};

struct TypeEntry {
  std::string_view name;
  Types types;
};
constexpr TypeEntry kTypes[] = {{"object", kObjects},   {"array", kArrays},
                                {"string", kStrings},   {"number", kNumbers | kIntegers},
                                {"integer", kIntegers}, {"boolean", kBooleans},
                                {"null", kNulls}};

Status Refused(std::string_view pointer, std::string_view keyword, std::string_view what) {
  return InvalidArgument(fmt::format("schema: at {}: {}: {}", pointer, keyword, what));
}

// Keywords that ask for nothing: as if they were not there.
bool AsksForNothing(std::string_view name, const json::Value& value) {
  if (name == "uniqueItems") return value.text() == "false";
  if (name == "minProperties") return value.text() == "0";
  return false;
}

}  // namespace

std::string_view NameOf(Keyword keyword) { return kKeywords[static_cast<size_t>(keyword)].name; }

Status SchemaError(const Schema& schema, Keyword keyword, std::string_view what) {
  return Refused(schema.pointer, NameOf(keyword), what);
}

std::string EscapedForPointer(std::string_view name) {
  std::string escaped;
  for (const char c : name) {
    if (c == '~') {
      escaped += "~0";
    } else if (c == '/') {
      escaped += "~1";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

Types Schema::types_of_keywords() const {
  Types types = 0;
  for (size_t i = 0; i < kNumKeywords; ++i) {
    if (keywords[i]) types |= kKeywords[i].types;
  }
  return types;
}

Result<Schema> ReadSchema(const json::Value& value, std::string pointer) {
  Schema schema = {.pointer = std::move(pointer)};
  if (value.kind() == json::Value::Kind::kBool) {
    ASSIGN_OR_RETURN(schema.is_always, value.AsBool());
    return schema;
  }
  if (value.kind() != json::Value::Kind::kObject) {
    return InvalidArgument(
        fmt::format("schema: at {}: must be an object, true or false", schema.pointer));
  }
  RETURN_IF_ERROR(value.ForEachMember([&](std::string_view name, const json::Value& member) {
    if (std::ranges::find(kAnnotations, name) != std::end(kAnnotations)) return Status::Ok();
    if (AsksForNothing(name, member)) return Status::Ok();
    if (name == "$id" && schema.pointer == "#") return Status::Ok();
    const auto known = std::ranges::find(kKeywords, name, &KeywordEntry::name);
    if (known == kKeywords.end()) {
      return Refused(
          schema.pointer, name,
          name == "$id" ? "is supported at the root only" : "this keyword is not supported");
    }
    auto& place = schema.keywords[static_cast<size_t>(known - kKeywords.begin())];
    if (!place) place = member;
    return Status::Ok();
  }));
  return schema;
}

Result<Types> TypesOf(const Schema& schema) {
  const auto& type = schema[Keyword::kType];
  if (!type) return kAllTypes;
  constexpr std::string_view kForm =
      "must be object, array, string, number, integer, boolean or null, or an array of these";
  Types types = 0;
  const auto add = [&](const json::Value& name) {
    const auto text = name.AsString();
    if (!text.ok()) return SchemaError(schema, Keyword::kType, kForm);
    const auto* known = std::ranges::find(kTypes, *text, &TypeEntry::name);
    if (known == std::end(kTypes)) return SchemaError(schema, Keyword::kType, kForm);
    types |= known->types;
    return Status::Ok();
  };
  if (type->kind() == json::Value::Kind::kArray) {
    RETURN_IF_ERROR(type->ForEachElement(add));
  } else {
    RETURN_IF_ERROR(add(*type));
  }
  return types;
}

}  // namespace inflight::grammar
