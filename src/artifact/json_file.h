// SPDX-License-Identifier: Apache-2.0
// JSON configuration files and typed access to their fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status_macros.h"
#include "inflight/status.h"

namespace inflight::artifact {

// The object in `path`. kInvalidArgument names the path and where the text stops being JSON.
Result<nlohmann::json> ReadJsonFile(const std::filesystem::path& path);
Result<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view where);
// The names in `member`, an object of the object in `path`, in the file's order, which
// nlohmann::json does not keep; none where there is no such object.
Result<std::vector<std::string>> NamesInOrder(const std::filesystem::path& path,
                                              std::string_view member);

// Reads fields of one object and keeps the first error, so that a list of fields reads as a list:
//
//   JsonFields fields(path, json);
//   config.vocab_size = fields.Int("vocab_size", 1, kMaxVocabSize);
//   config.bos_id = fields.OptionalInt("bos_token_id", 0, kMaxVocabSize);
//   RETURN_IF_ERROR(fields.status());
//
// A field that is null counts as absent. Errors name the file, the field, what was found and what
// is needed.
class JsonFields {
 public:
  JsonFields(std::string where, const nlohmann::json& object);

  bool Has(std::string_view name) const;
  bool IsNull(std::string_view name) const;                 // there, and null
  const nlohmann::json* Find(std::string_view name) const;  // null if absent

  const nlohmann::json* FindObject(std::string_view name);  // null if absent or no object

  int64_t Int(std::string_view name, int64_t min, int64_t max);
  int64_t IntOr(std::string_view name, int64_t fallback, int64_t min, int64_t max);
  std::optional<int64_t> OptionalInt(std::string_view name, int64_t min, int64_t max);
  double NumberOr(std::string_view name, double fallback);  // finite
  bool BoolOr(std::string_view name, bool fallback);
  std::string String(std::string_view name);
  std::string StringOr(std::string_view name, std::string_view fallback);

  // Records an error about `name` unless there is one already.
  void Fail(std::string_view name, std::string_view what);
  const Status& status() const { return status_; }
  const std::string& where() const { return where_; }

 private:
  void FailType(std::string_view name, const nlohmann::json& found, std::string_view needed);

  std::string where_;
  const nlohmann::json& object_;
  Status status_;
};

// `value` as text for an error message, cut to a readable length.
std::string Abbreviate(const nlohmann::json& value);

}  // namespace inflight::artifact
