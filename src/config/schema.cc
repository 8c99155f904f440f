// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/letter_case.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::config {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// Whole numbers with all of their digits.
std::string NumberText(double value) {
  constexpr double kMost = 1e19;
  const bool is_whole = std::abs(value) < kMost && value == std::floor(value);
  return is_whole ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

std::string Bounds(const Constraint& constraint) {
  const auto text = [](std::optional<double> bound) { return bound ? NumberText(*bound) : ""; };
  const std::string min = text(constraint.min);
  const std::string max = text(constraint.max);
  if (constraint.min && constraint.max)
    return fmt::format("{}{} to {}", constraint.excludes_min ? "above " : "", min, max);
  if (constraint.min)
    return fmt::format("{} {}", constraint.excludes_min ? "above" : "at least", min);
  if (constraint.max) return "at most " + max;
  return {};
}

std::string Allowed(const OptionInfo& info) {
  std::vector<std::string> choices = info.constraint.choices;
  std::erase(choices, "");  // it stands for none of them
  if (!choices.empty()) return fmt::format("{}", fmt::join(choices, ", "));
  return Bounds(info.constraint);
}

Status Bad(const OptionInfo& info, std::string_view text, std::string_view needed) {
  return InvalidArgument(fmt::format("{}: got '{}', needs {}", info.flag(), text, needed));
}

Status CheckBounds(const OptionInfo& info, std::string_view text, double value) {
  const Constraint& c = info.constraint;
  const bool is_low = c.min && !(c.excludes_min ? value > *c.min : value >= *c.min);
  if (is_low || (c.max && !(value <= *c.max)))
    return Bad(info, text,
               fmt::format("{} {}", info.type == "integer" ? "an integer" : "a number", Bounds(c)));
  return Status::Ok();
}

// Upstream's feature flags say enable and disable.
std::optional<bool> ParseBool(std::string_view text) {
  const std::string lower = AsciiLower(text);
  if (lower == "true" || lower == "on" || lower == "enable" || lower == "1") return true;
  if (lower == "false" || lower == "off" || lower == "disable" || lower == "0") return false;
  return std::nullopt;
}

}  // namespace

std::string OptionInfo::flag() const { return FlagOf(name); }

std::string FlagOf(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

void Warn(const WithoutEffect& option) {
  logging::Warning("option has no effect",
                   {{"option", option.flag}, {"value", option.value}, {"reason", option.reason}});
}

std::optional<std::string> Nearest(std::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 64;
  if (name.size() > kLongest) return std::nullopt;
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

namespace internal {

Status ParseValue(const OptionInfo& info, std::string_view text, bool& out) {
  const std::optional<bool> value = ParseBool(text);
  if (!value) return Bad(info, text, "true, on, enable, 1, false, off, disable or 0");
  out = *value;
  return Status::Ok();
}

Status ParseValue(const OptionInfo& info, std::string_view text, int64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) {
    const std::string bounds = Bounds(info.constraint);
    return Bad(info, text, bounds.empty() ? "an integer" : "an integer " + bounds);
  }
  return CheckBounds(info, text, static_cast<double>(out));
}

Status ParseValue(const OptionInfo& info, std::string_view text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(out))
    return Bad(info, text, "a number");
  return CheckBounds(info, text, out);
}

Status ParseValue(const OptionInfo& info, std::string_view text, std::string& out) {
  const std::vector<std::string>& choices = info.constraint.choices;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
    return Bad(info, text, "one of " + Allowed(info));
  out = text;
  return Status::Ok();
}

bool AsksForNothing(const OptionInfo& info, std::string_view text) {
  if (info.accepted_only.empty()) return false;
  if (text == info.accepted_only) return true;
  const std::optional<bool> accepted = ParseBool(info.accepted_only);
  return accepted && accepted == ParseBool(text);
}

std::string ToText(bool value) { return value ? "true" : "false"; }
std::string ToText(int64_t value) { return std::to_string(value); }
std::string ToText(double value) { return fmt::format("{}", value); }
std::string ToText(const std::string& value) { return value; }

}  // namespace internal

UntypedSchema::Entry& UntypedSchema::Push(std::string_view name, std::string_view help,
                                          const Constraint& constraint) {
  Entry& entry = entries_.emplace_back();
  entry.info.name = name;
  entry.info.section = section_;
  entry.info.help = help;
  entry.info.constraint = constraint;
  return entry;
}

void UntypedSchema::AddValue(std::string_view name, const internal::Place& place,
                             const internal::ValueType& type, const void* initial,
                             std::string_view help, const Constraint& constraint) {
  Entry& entry = Push(name, help, constraint);
  entry.info.type = type.name;
  entry.info.repeatable = type.repeatable;
  entry.info.default_text = type.text(entry.info, initial);
  entry.type = &type;
  entry.place = place;
}

void UntypedSchema::AddNote(std::string_view name, const internal::Place& kept,
                            const internal::ValueType& type, std::string_view reason,
                            const Constraint& constraint) {
  Entry& entry = Push(name, reason, constraint);
  entry.info.type = type.name;
  entry.info.repeatable = type.repeatable;
  entry.info.has_effect = false;
  entry.type = &type;
  entry.place = kept;
}

void UntypedSchema::Refuse(std::string_view name, std::string_view reason,
                           std::string_view accepted_only, const Constraint& constraint) {
  Entry& entry = Push(name, reason, constraint);
  entry.info.type = "text";
  entry.info.default_text = accepted_only;
  entry.info.supported = false;
  entry.info.accepted_only = accepted_only;
}

void UntypedSchema::Alias(std::string alias, std::string name) {
  for (Entry& entry : entries_)
    if (entry.info.name == name)
      entry.info.aliases.push_back(alias.starts_with('-') ? alias : FlagOf(alias));
  aliases_.emplace_back(std::move(alias), std::move(name));
}

void UntypedSchema::Common(const std::vector<std::string_view>& names) {
  for (const std::string_view name : names)
    for (Entry& entry : entries_)
      if (entry.info.name == name) entry.info.is_common = true;
}

Status UntypedSchema::SetIn(void* options, std::string_view name, std::string_view text) const {
  const std::string key = KeyOf(name);
  const Entry* const entry = Find(key);
  if (entry == nullptr) return Unknown(name, key);
  const OptionInfo& info = entry->info;
  if (entry->type == nullptr) {
    if (internal::AsksForNothing(info, text)) return Status::Ok();
    return Unimplemented(info.flag() + ": got '" + std::string(text) + "'; " + info.help);
  }
  if (info.has_effect) return entry->type->parse(info, text, entry->place.In(options));
  RETURN_IF_ERROR(entry->type->check(info, text));
  WithoutEffect given = {.flag = info.flag(), .value = std::string(text), .reason = info.help};
  if (entry->place)
    static_cast<std::vector<WithoutEffect>*>(entry->place.In(options))->push_back(std::move(given));
  else
    Warn(given);
  return Status::Ok();
}

Status UntypedSchema::ResetIn(void* options, void* defaults, std::string_view name) const {
  const std::string key = KeyOf(name);
  const Entry* const entry = Find(key);
  if (entry == nullptr) return Unknown(name, key);
  if (entry->type != nullptr && entry->info.has_effect)
    entry->type->assign(entry->place.In(defaults), entry->place.In(options));
  return Status::Ok();
}

const OptionInfo* UntypedSchema::InfoOf(std::string_view name) const {
  const Entry* const entry = Find(KeyOf(name));
  return entry == nullptr ? nullptr : &entry->info;
}

std::vector<OptionInfo> UntypedSchema::options() const {
  std::vector<OptionInfo> infos;
  infos.reserve(entries_.size());
  for (const Entry& entry : entries_) infos.push_back(entry.info);
  return infos;
}

// The file key that a name or an alias means.
std::string UntypedSchema::KeyOf(std::string_view name) const {
  std::string key(name);
  for (char& c : key)
    if (c == '-') c = '_';
  for (const auto& [alias, target] : aliases_)
    if (alias == key) key = target;
  return key;
}

const UntypedSchema::Entry* UntypedSchema::Find(const std::string& key) const {
  for (const Entry& entry : entries_)
    if (entry.info.name == key) return &entry;
  return nullptr;
}

Status UntypedSchema::Unknown(std::string_view name, const std::string& key) const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.info.name);
  std::string message = "unknown option '" + std::string(name) + "'";
  if (const auto nearest = Nearest(key, names)) message += "; did you mean '" + *nearest + "'?";
  return InvalidArgument(message);
}

std::string Details(const OptionInfo& info) {
  std::string details;
  if (!info.default_text.empty()) details = "default " + info.default_text;
  if (const std::string allowed = Allowed(info); !allowed.empty())
    details += (details.empty() ? "" : "; ") + allowed;
  if (info.repeatable) details += details.empty() ? "repeatable" : "; repeatable";
  for (const std::string& alias : info.aliases)
    details += fmt::format("{}also {}", details.empty() ? "" : "; ", alias);
  return details;
}

std::string ValueWord(const OptionInfo& info) {
  if (info.type == "boolean") return "BOOL";
  if (info.type == "integer") return "INT";
  return info.type == "number" ? "NUM" : "TEXT";
}

std::string ToMarkdown(const std::vector<OptionInfo>& options) {
  std::string out;
  std::string section;
  for (const OptionInfo& info : options) {
    if (info.section != section) {
      section = info.section;
      out += fmt::format(
          "\n### {}\n\n| flag | file key | type | default and bounds | meaning "
          "|\n|---|---|---|---|---|\n",
          section);
    }
    out += fmt::format("| `{}` | `{}` | {} | {} | {}{} |\n", info.flag(), info.name, info.type,
                       Details(info),
                       !info.supported    ? "Refused: "
                       : !info.has_effect ? "No effect: "
                                          : "",
                       info.help);
  }
  return out;
}

std::string Wrapped(std::string_view text, size_t columns, size_t indent) {
  std::string out;
  size_t used = indent;
  bool is_first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!is_first && used + 1 + word.size() > columns) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (!is_first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
    is_first = false;
  }
  return out;
}

std::string ToHelp(const std::vector<OptionInfo>& options, bool only_common) {
  constexpr size_t kColumns = 100;
  const size_t indent = only_common ? 34 : 37;
  std::string out;
  std::string section;
  for (const OptionInfo& info : options) {
    if (!info.is_shown() || (only_common && !info.is_common)) continue;
    if (info.section != section && !only_common) {
      section = info.section;
      out += fmt::format("\n{}:\n", section);
    }
    const std::string details = Details(info);
    const std::string flag = "  " + info.flag() + " " + ValueWord(info);
    out += flag;
    out += flag.size() < indent ? std::string(indent - flag.size(), ' ')
                                : "\n" + std::string(indent, ' ');
    out += Wrapped(info.help + (details.empty() ? "" : " (" + details + ")"), kColumns, indent);
    out += '\n';
  }
  return out;
}

Result<std::vector<std::pair<std::string, std::string>>> ReadOptionFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path, /*max_bytes=*/1 << 20));
  const nlohmann::json json = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument(path + ": is not a JSON object of options");
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& [key, value] : json.items()) {
    const auto add = [&](const nlohmann::json& element) -> Status {
      if (element.is_structured() || element.is_null())
        return InvalidArgument(
            fmt::format("{}: {}: got {}, needs a text, a number, a boolean or a list of these",
                        path, key, element.type_name()));
      entries.emplace_back(key, element.is_string() ? element.get<std::string>() : element.dump());
      return Status::Ok();
    };
    if (value.is_array()) {
      for (const auto& element : value) RETURN_IF_ERROR(add(element));
    } else {
      RETURN_IF_ERROR(add(value));
    }
  }
  return entries;
}

}  // namespace inflight::config
