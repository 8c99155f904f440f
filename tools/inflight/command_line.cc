// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace inflight::tool {
namespace {

std::string Dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

// CLI11 takes both spellings of a flag: the documented one and the file key's.
std::string Spellings(const std::string& name) {
  const std::string dashed = Dashed(name);
  const std::string underscored = "--" + name;
  return dashed == underscored ? dashed : dashed + "," + underscored;
}

Status UnknownOption(const std::string& argument, const std::vector<config::OptionInfo>& infos) {
  std::vector<std::string> known;
  for (const config::OptionInfo& info : infos) known.push_back(info.flag());
  std::string message = "unknown option '" + argument + "'";
  if (const auto nearest = config::Nearest(argument, known))
    message += "; did you mean '" + *nearest + "'?";
  return InvalidArgument(message + " (--help lists all)");
}

}  // namespace

Result<Arguments> ParseArguments(std::span<char* const> args,
                                 const std::vector<config::OptionInfo>& infos,
                                 const std::vector<std::pair<std::string, std::string>>& aliases) {
  Arguments result;
  CLI::App app;
  app.set_help_flag();
  app.add_flag("-h,--help", result.help);
  app.allow_extras();
  const auto add = [&](const std::string& name) {
    app.add_option_function<std::vector<std::string>>(
           Spellings(name),
           [&result, name](const std::vector<std::string>& values) {
             for (const std::string& value : values) result.options.emplace_back(name, value);
           })
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->trigger_on_parse();
  };
  for (const config::OptionInfo& info : infos) {
    if (info.constraint.is_switch) {
      app.add_flag_function(Spellings(info.name), [&result, name = info.name](int64_t count) {
        result.options.emplace_back(name, count > 0 ? "true" : "false");
      });
    } else {
      add(info.name);
    }
  }
  for (const auto& [alias, target] : aliases) add(alias);
  add("config");

  std::vector<std::string> reversed(args.rbegin(), args.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(std::string(error.what()) + " (--help lists the options)");
  }
  for (const std::string& extra : app.remaining()) {
    if (extra.size() > 1 && extra.starts_with("-"))
      return UnknownOption(extra.substr(0, extra.find('=')), infos);
    result.positionals.push_back(extra);
  }
  return result;
}

int Fail(const Status& status) {
  std::fprintf(stderr, "inflight: %s\n", status.message().c_str());
  return 1;
}

}  // namespace inflight::tool
