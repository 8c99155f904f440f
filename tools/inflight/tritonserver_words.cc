// SPDX-License-Identifier: Apache-2.0
#include "tritonserver_words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "command_line.h"

namespace inflight::tool {
namespace {

using config::OptionInfo;

bool IsInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Of a value that is refused. A number that is only too large is none of its own errors.
std::string OfValue(const OptionInfo& info, const std::string& value) {
  std::string said;
  if (info.type == "boolean") {
    said = "invalid value for bool option: " + value;
  } else if (info.type == "integer" && !IsInteger(value)) {
    said = "Invalid option value. Got " + value;
  } else if (!info.constraint.choices.empty()) {
    said = "invalid argument for " + info.flag();
  }
  return said.empty() ? said : "Bad option: \"" + info.flag() + "\".\n" + said;
}

constexpr std::string_view kDashes = "--";

// Null: no flag, or one that is not known.
const OptionInfo* FlagAt(std::string_view word, const config::Schema<ServeOptions>& schema) {
  if (!word.starts_with(kDashes)) return nullptr;
  return schema.InfoOf(word.substr(0, word.find('=')).substr(kDashes.size()));
}

bool IsKnown(std::string_view word, const config::Schema<ServeOptions>& schema) {
  constexpr std::array<std::string_view, 3> kOfEveryCommand = {"--help", "--help-all", "--config"};
  constexpr std::string_view kNegation = "--no-";
  if (!word.starts_with(kDashes) || FlagAt(word, schema) != nullptr) return true;
  if (word.starts_with(kNegation) && schema.InfoOf(word.substr(kNegation.size())) != nullptr)
    return true;
  return std::ranges::find(kOfEveryCommand, word.substr(0, word.find('='))) !=
         kOfEveryCommand.end();
}

}  // namespace

std::string TritonserverWords(Args args, const config::Schema<ServeOptions>& schema) {
  if (!args.empty()) {
    const std::string_view last = args.back();
    const OptionInfo* const info = FlagAt(last, schema);
    if (info != nullptr && info->type != "boolean" && !info->constraint.is_value_optional &&
        last.find('=') == std::string_view::npos)
      return "tritonserver: option '" + std::string(last) + "' requires an argument";
  }
  const auto parsed = ParseArguments(args, schema.options(), schema.aliases());
  if (!parsed.ok()) {
    const auto unknown =
        std::ranges::find_if(args, [&](std::string_view word) { return !IsKnown(word, schema); });
    return unknown == args.end()
               ? std::string()
               : "tritonserver: unrecognized option '" + std::string(*unknown) + "'";
  }
  ServeOptions scratch;
  for (const auto& [name, value] : parsed->options) {
    if (name == "config" || schema.Set(scratch, name, value).ok()) continue;
    const OptionInfo* const info = schema.InfoOf(name);
    return info == nullptr ? std::string() : OfValue(*info, value);
  }
  return {};
}

}  // namespace inflight::tool
