// SPDX-License-Identifier: Apache-2.0
#include "artifact/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{64} << 20;
constexpr size_t kMaxQuoted = 80;
// Copying, comparing and printing recurse; 64 MB could nest 10^7 deep.
constexpr int kMaxDepth = 64;

}  // namespace

Result<nlohmann::json> ReadJsonFile(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return ParseJsonObject(text, path.string());
}

Result<std::vector<std::string>> NamesInOrder(const std::filesystem::path& path,
                                              std::string_view member) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  std::vector<std::string> names;
  bool is_inside = false;
  // Names of the outer object come at depth 1, those of its objects at 2. Values below these are
  // not kept.
  const nlohmann::json::parser_callback_t look = [&](int depth, nlohmann::json::parse_event_t event,
                                                     const nlohmann::json& value) {
    if (event != nlohmann::json::parse_event_t::key) return depth <= 2;
    if (depth == 1) is_inside = value.get_ref<const std::string&>() == member;
    if (depth == 2 && is_inside &&
        std::find(names.begin(), names.end(), value.get_ref<const std::string&>()) == names.end())
      names.push_back(value.get<std::string>());
    return true;
  };
  nlohmann::json ignored = nlohmann::json::parse(text, look, /*allow_exceptions=*/false);
  if (ignored.is_discarded())
    return InvalidArgument(fmt::format("{}: not valid JSON", path.string()));
  return names;
}

Result<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view where) {
  bool is_too_deep = false;
  const nlohmann::json::parser_callback_t keep = [&](int depth, nlohmann::json::parse_event_t,
                                                     const nlohmann::json&) {
    is_too_deep |= depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  try {
    nlohmann::json json = nlohmann::json::parse(text, keep);
    if (is_too_deep)
      return InvalidArgument(fmt::format("{}: nested deeper than {} levels", where, kMaxDepth));
    if (!json.is_object())
      return InvalidArgument(
          fmt::format("{}: a JSON object is needed, found {}", where, json.type_name()));
    return json;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(fmt::format("{}: not valid JSON: {}", where, error.what()));
  }
}

std::string Abbreviate(const nlohmann::json& value) {
  std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxQuoted) text = text.substr(0, kMaxQuoted) + "...";
  return text;
}

JsonFields::JsonFields(std::string where, const nlohmann::json& object)
    : where_(std::move(where)), object_(object) {}

const nlohmann::json* JsonFields::Find(std::string_view name) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::IsNull(std::string_view name) const {
  const auto found = object_.find(name);
  return found != object_.end() && found->is_null();
}

bool JsonFields::Has(std::string_view name) const { return Find(name) != nullptr; }

const nlohmann::json* JsonFields::FindObject(std::string_view name) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr || value->is_object()) return value;
  FailType(name, *value, "an object");
  return nullptr;
}

void JsonFields::Fail(std::string_view name, std::string_view what) {
  if (status_.ok()) status_ = InvalidArgument(fmt::format("{}: {}: {}", where_, name, what));
}

void JsonFields::FailType(std::string_view name, const nlohmann::json& found,
                          std::string_view needed) {
  Fail(name, fmt::format("got {}, {} is needed", Abbreviate(found), needed));
}

std::optional<int64_t> JsonFields::OptionalInt(std::string_view name, int64_t min, int64_t max) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_unsigned()
                        ? value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                        : value->is_number_integer();
  if (fits) {
    const auto number = value->get<int64_t>();
    if (number >= min && number <= max) return number;
  }
  FailType(name, *value, fmt::format("a whole number from {} to {}", min, max));
  return std::nullopt;
}

int64_t JsonFields::IntOr(std::string_view name, int64_t fallback, int64_t min, int64_t max) {
  return OptionalInt(name, min, max).value_or(fallback);
}

int64_t JsonFields::Int(std::string_view name, int64_t min, int64_t max) {
  if (!Has(name)) Fail(name, "is missing");
  return IntOr(name, min, min, max);
}

double JsonFields::NumberOr(std::string_view name, double fallback) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return fallback;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (std::isfinite(number)) return number;
  }
  FailType(name, *value, "a finite number");
  return fallback;
}

bool JsonFields::BoolOr(std::string_view name, bool fallback) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  FailType(name, *value, "true or false");
  return fallback;
}

std::string JsonFields::StringOr(std::string_view name, std::string_view fallback) {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  FailType(name, *value, "a string");
  return std::string(fallback);
}

std::string JsonFields::String(std::string_view name) {
  if (!Has(name)) Fail(name, "is missing");
  return StringOr(name, "");
}

}  // namespace inflight::artifact
