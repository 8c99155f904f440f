// SPDX-License-Identifier: Apache-2.0
#include "tritonserver_words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "command_line.h"

namespace inflight::tool {
namespace {

using config::OptionInfo;
using Infos = std::vector<OptionInfo>;

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

// Null: no flag, or one that is not known.
const OptionInfo* FlagAt(std::string_view word, const config::Schema<ServeOptions>& schema,
                         const Infos& infos) {
  const std::string flag(word.substr(0, word.find('=')));
  for (const OptionInfo& info : infos)
    if (info.flag() == flag || "--" + info.name == flag) return &info;
  for (const auto& [alias, name] : schema.aliases()) {
    if (config::FlagOf(alias) != flag) continue;
    const auto found = std::ranges::find(infos, name, &OptionInfo::name);
    return found == infos.end() ? nullptr : &*found;
  }
  return nullptr;
}

bool IsKnown(std::string_view word, const config::Schema<ServeOptions>& schema,
             const Infos& infos) {
  constexpr std::array<std::string_view, 3> kOfEveryCommand = {"--help", "--help-all", "--config"};
  constexpr std::string_view kNegation = "--no-";
  if (!word.starts_with("--") || FlagAt(word, schema, infos) != nullptr) return true;
  if (word.starts_with(kNegation) &&
      FlagAt("--" + std::string(word.substr(kNegation.size())), schema, infos) != nullptr)
    return true;
  return std::ranges::find(kOfEveryCommand, word.substr(0, word.find('='))) !=
         kOfEveryCommand.end();
}

}  // namespace

std::string TritonserverWords(Args args, const config::Schema<ServeOptions>& schema) {
  const Infos infos = schema.options();
  if (!args.empty()) {
    const std::string_view last = args.back();
    const OptionInfo* const info = FlagAt(last, schema, infos);
    if (info != nullptr && info->type != "boolean" && !info->constraint.is_value_optional &&
        last.find('=') == std::string_view::npos)
      return "tritonserver: option '" + std::string(last) + "' requires an argument";
  }
  const auto parsed = ParseArguments(args, infos, schema.aliases());
  if (!parsed.ok()) {
    const auto unknown = std::ranges::find_if(
        args, [&](std::string_view word) { return !IsKnown(word, schema, infos); });
    return unknown == args.end()
               ? std::string()
               : "tritonserver: unrecognized option '" + std::string(*unknown) + "'";
  }
  ServeOptions scratch;
  for (const auto& [name, value] : parsed->options) {
    if (name == "config" || schema.Set(scratch, name, value).ok()) continue;
    const OptionInfo* const info = FlagAt(config::FlagOf(name), schema, infos);
    return info == nullptr ? std::string() : OfValue(*info, value);
  }
  return {};
}

}  // namespace inflight::tool
