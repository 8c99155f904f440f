// SPDX-License-Identifier: Apache-2.0
// From argv to a schema's options: `--name value`, `--name=value`, positional arguments, `--config
// FILE`, `--help`.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
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

// `args` with each flag spelt in full that is the beginning of one option alone, as getopt_long
// takes them. kInvalidArgument where it begins several.
Result<std::vector<std::string>> ExpandPrefixes(
    std::span<char* const> args, const std::vector<config::OptionInfo>& infos,
    const std::vector<std::pair<std::string, std::string>>& aliases);

struct Usage {
  std::string line;     // "inflight run DIR --prompt TEXT"
  std::string summary;  // what the command does
};

// What help, manual pages, documents and completion are made of.
struct Manual {
  Usage usage;
  std::vector<config::OptionInfo> options;
  std::string_view exit_status =
      "0, or 1 after an error, which one line on standard error describes.";
};

// An error that ends with the usage line.
Status UsageError(const Usage& usage, const std::string& message);

// The only positional argument; the error calls it by `what` it is: "model directory".
Result<std::string> OnlyPositional(const Usage& usage, std::span<const std::string> positionals,
                                   const std::string& what);
Status NoPositionals(const Usage& usage, std::span<const std::string> positionals);

void PrintHelp(const Usage& usage, const std::vector<config::OptionInfo>& infos);

// What main() does with a command's outcome: prints an error's one line and gives the exit status.
int Fail(const Status& status);

// Fills `options` from an option file, then from flags.
template <typename Options>
Status SetOptions(const Arguments& arguments, const config::Schema<Options>& schema,
                  Options& options) {
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
  return Status::Ok();
}

// main() of a command: prints help if asked, else calls `run(options, positionals)`; the exit
// status. `options` are what they are where no flag says otherwise.
template <typename Options, typename Run>
int RunCommand(std::span<char* const> args, const Usage& usage,
               const config::Schema<Options>& schema, const Run& run, Options options = {}) {
  const auto arguments = ParseArguments(args, schema.options(), schema.aliases());
  if (!arguments.ok()) return Fail(arguments.status());
  if (arguments->help) {
    PrintHelp(usage, schema.options());
    return 0;
  }
  Status status = SetOptions(*arguments, schema, options);
  if (status.ok()) status = run(options, std::span(arguments->positionals));
  return status.ok() ? 0 : Fail(status);
}

}  // namespace inflight::tool
