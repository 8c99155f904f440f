// SPDX-License-Identifier: Apache-2.0
// From argv to a schema's options: `--name value`, `--name=value`, positional arguments, `--config
// FILE`, `--help`.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"

namespace inflight::tool {

struct Arguments {
  std::vector<std::string> positionals;
  std::vector<std::pair<std::string, std::string>> options;  // name without dashes, value; in order
  bool help = false;
};

// Splits `args` (after the command's name) by what the schema declares. Unknown options suggest the
// nearest name.
Result<Arguments> ParseArguments(std::span<char* const> args,
                                 const std::vector<config::OptionInfo>& infos,
                                 const std::vector<std::pair<std::string, std::string>>& aliases);

struct Usage {
  std::string line;     // "inflight run DIR --prompt TEXT"
  std::string summary;  // what the command does
};

// What main() does with a command's outcome: prints an error's one line and gives the exit status.
int Fail(const Status& status);

enum class Parsed { kRun, kHelpShown };

// Fills `options` from an option file, then from flags, and `positionals`. Prints help if asked.
template <typename Options>
Result<Parsed> ParseInto(std::span<char* const> args, const Usage& usage,
                         const config::Schema<Options>& schema, Options& options,
                         std::vector<std::string>& positionals) {
  ASSIGN_OR_RETURN(Arguments arguments, ParseArguments(args, schema.options(), schema.aliases()));
  if (arguments.help) {
    std::printf(
        "%s\n\nUsage: %s\n%s\nEvery option may also stand, with _ for -, in a JSON object: "
        "--config FILE\n",
        usage.summary.c_str(), usage.line.c_str(), config::ToHelp(schema.options()).c_str());
    return Parsed::kHelpShown;
  }
  for (const auto& [name, value] : arguments.options) {
    if (name != "config") continue;
    ASSIGN_OR_RETURN(const auto entries, config::ReadOptionFile(value));
    for (const auto& [key, text] : entries) {
      if (Status status = schema.Set(options, key, text); !status.ok())
        return status.WithPrefix(value);
    }
  }
  for (const auto& [name, value] : arguments.options) {
    if (name != "config") RETURN_IF_ERROR(schema.Set(options, name, value));
  }
  positionals = std::move(arguments.positionals);
  return Parsed::kRun;
}

}  // namespace inflight::tool
