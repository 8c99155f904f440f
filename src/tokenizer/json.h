// SPDX-License-Identifier: Apache-2.0
// Typed access to a parsed tokenizer.json: every failure is a Status that names the field.
#pragma once

#include <simdjson.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::tokenizer {

// An object and its place in the file ("decoder.decoders[2]"), for messages.
class JsonObject {
 public:
  static Result<JsonObject> From(simdjson::dom::element element, std::string path);

  const std::string& path() const { return path_; }
  std::string PathOf(std::string_view key) const;
  simdjson::dom::object raw() const { return object_; }

  // kUnimplemented names a key that is neither "type" nor one of `fields`, the others of `what`.
  // Empty ones mean none.
  Status OnlyFields(std::span<const std::string_view> fields, std::string_view what) const;

  // Absent and null are both nothing.
  std::optional<simdjson::dom::element> Find(std::string_view key) const;

  Result<std::optional<bool>> OptionalBool(std::string_view key) const;
  Result<std::optional<std::string_view>> OptionalString(std::string_view key) const;
  Result<std::optional<JsonObject>> OptionalObject(std::string_view key) const;

  Result<bool> Bool(std::string_view key) const;  // must be there
  Result<bool> Bool(std::string_view key, bool otherwise) const;
  Result<std::string_view> String(std::string_view key) const;
  Result<int64_t> Int(std::string_view key, int64_t min, int64_t max) const;
  Result<simdjson::dom::array> Array(std::string_view key) const;
  Result<JsonObject> Object(std::string_view key) const;
  // The objects of array `key`, which must be there.
  Result<std::vector<JsonObject>> Objects(std::string_view key) const;

 private:
  JsonObject(simdjson::dom::object object, std::string path)
      : object_(object), path_(std::move(path)) {}
  Status WrongType(std::string_view key, std::string_view wanted) const;
  Status Missing(std::string_view key) const;

  simdjson::dom::object object_;
  std::string path_;
};

}  // namespace inflight::tokenizer
