// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json.h"

#include <algorithm>

#include "base/status_macros.h"

namespace inflight::tokenizer {

namespace dom = simdjson::dom;

Result<JsonObject> JsonObject::From(dom::element element, std::string path) {
  dom::object object;
  if (element.get(object) != simdjson::SUCCESS) {
    return InvalidArgument((path.empty() ? "the file" : path) + ": must be a JSON object");
  }
  return JsonObject(object, std::move(path));
}

std::string JsonObject::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

Status JsonObject::OnlyFields(std::span<const std::string_view> fields,
                              std::string_view what) const {
  for (const auto& [key, value] : object_) {
    if (key == "type" || (!key.empty() && std::ranges::find(fields, key) != fields.end())) continue;
    std::string names = "type";
    for (const std::string_view field : fields)
      if (!field.empty()) names += ", " + std::string(field);
    return Unimplemented(PathOf(key.substr(0, 100)) + ": is no field of " + std::string(what) +
                         ", which has " + names);
  }
  return Status::Ok();
}

std::optional<dom::element> JsonObject::Find(std::string_view key) const {
  dom::element element;
  if (object_.at_key(key).get(element) != simdjson::SUCCESS || element.is_null()) {
    return std::nullopt;
  }
  return element;
}

Status JsonObject::WrongType(std::string_view key, std::string_view wanted) const {
  return InvalidArgument(PathOf(key) + ": must be " + std::string(wanted));
}

Status JsonObject::Missing(std::string_view key) const {
  return InvalidArgument(PathOf(key) + ": is missing");
}

Result<std::optional<bool>> JsonObject::OptionalBool(std::string_view key) const {
  const auto element = Find(key);
  if (!element) return std::optional<bool>();
  bool value = false;
  if (element->get(value) != simdjson::SUCCESS) return WrongType(key, "true or false");
  return std::optional<bool>(value);
}

Result<std::optional<std::string_view>> JsonObject::OptionalString(std::string_view key) const {
  const auto element = Find(key);
  if (!element) return std::optional<std::string_view>();
  std::string_view value;
  if (element->get(value) != simdjson::SUCCESS) return WrongType(key, "a string");
  return std::optional<std::string_view>(value);
}

Result<std::optional<JsonObject>> JsonObject::OptionalObject(std::string_view key) const {
  const auto element = Find(key);
  if (!element) return std::optional<JsonObject>();
  ASSIGN_OR_RETURN(JsonObject object, From(*element, PathOf(key)));
  return std::optional<JsonObject>(std::move(object));
}

Result<bool> JsonObject::Bool(std::string_view key) const {
  ASSIGN_OR_RETURN(const auto value, OptionalBool(key));
  if (!value) return Missing(key);
  return *value;
}

Result<bool> JsonObject::Bool(std::string_view key, bool otherwise) const {
  ASSIGN_OR_RETURN(const auto value, OptionalBool(key));
  return value.value_or(otherwise);
}

Result<std::string_view> JsonObject::String(std::string_view key) const {
  ASSIGN_OR_RETURN(const auto value, OptionalString(key));
  if (!value) return Missing(key);
  return *value;
}

Result<int64_t> JsonObject::Int(std::string_view key, int64_t min, int64_t max) const {
  const auto element = Find(key);
  if (!element) return Missing(key);
  int64_t value = 0;
  if (element->get(value) != simdjson::SUCCESS) return WrongType(key, "an integer");
  if (value < min || value > max) {
    return InvalidArgument(PathOf(key) + ": got " + std::to_string(value) + ", allowed are " +
                           std::to_string(min) + " to " + std::to_string(max));
  }
  return value;
}

Result<JsonObject> JsonObject::Object(std::string_view key) const {
  ASSIGN_OR_RETURN(auto value, OptionalObject(key));
  if (!value) return Missing(key);
  return *std::move(value);
}

Result<dom::array> JsonObject::Array(std::string_view key) const {
  const auto element = Find(key);
  if (!element) return Missing(key);
  dom::array array;
  if (element->get(array) != simdjson::SUCCESS) return WrongType(key, "an array");
  return array;
}

Result<std::vector<JsonObject>> JsonObject::Objects(std::string_view key) const {
  const auto element = Find(key);
  if (!element) return Missing(key);
  dom::array array;
  if (element->get(array) != simdjson::SUCCESS) return WrongType(key, "an array of objects");
  std::vector<JsonObject> objects;
  for (const dom::element item : array) {
    ASSIGN_OR_RETURN(JsonObject object,
                     From(item, PathOf(key) + "[" + std::to_string(objects.size()) + "]"));
    objects.push_back(std::move(object));
  }
  return objects;
}

}  // namespace inflight::tokenizer
