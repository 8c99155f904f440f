// SPDX-License-Identifier: Apache-2.0
// From argv to a schema's options: `--name value`, `--name=value`, positional arguments, `--config
// FILE`, `--help`, `--help-all`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "config/schema.h"

namespace inflight::tool {

struct Arguments {
  std::vector<std::string> positionals;
  std::vector<std::pair<std::string, std::string>> options;  // name without dashes, value; in order
  bool help = false;
  bool help_all = false;  // also what --help leaves out
};

// What is said of an unknown option or argument that another program has; nothing of others.
using Elsewhere = std::optional<std::string> (*)(std::string_view name);

// Splits `args` (after the command's name) by what the schema declares. Unknown options suggest the
// nearest name, unless `elsewhere` knows them.
Result<Arguments> ParseArguments(std::span<char* const> args,
                                 const std::vector<config::OptionInfo>& infos,
                                 const std::vector<std::pair<std::string, std::string>>& aliases,
                                 Elsewhere elsewhere = nullptr);

// `args` with each flag spelt in full that is the beginning of one option alone, as getopt_long
// takes them. kInvalidArgument where it begins several.
Result<std::vector<std::string>> ExpandPrefixes(
    std::span<char* const> args, const std::vector<config::OptionInfo>& infos,
    const std::vector<std::pair<std::string, std::string>>& aliases);

struct Usage {
  std::string line;     // "inflight run DIR --prompt TEXT"
  std::string summary;  // what the command does
  Elsewhere elsewhere = nullptr;
  bool is_log = false;  // standard output is a log, whose loss is no failure of the command
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

// Where some options are common, those alone, unless `all` are asked for.
void PrintHelp(const Usage& usage, const std::vector<config::OptionInfo>& infos, bool all = false);

// What main() does with a command's outcome: prints an error's one line and gives the exit status.
int Fail(const Status& status);
// The same of a command that may have succeeded: it has not where standard output did not take all
// that was printed, as of a disk that is full. Nobody is told of a reader that has left.
int Finish(const Status& status);

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
  const auto arguments = ParseArguments(args, schema.options(), schema.aliases(), usage.elsewhere);
  if (!arguments.ok()) return Fail(arguments.status());
  if (arguments->help || arguments->help_all) {
    PrintHelp(usage, schema.options(), arguments->help_all);
    return Finish(Status::Ok());
  }
  Status status = SetOptions(*arguments, schema, options);
  if (status.ok()) status = run(options, std::span(arguments->positionals));
  return usage.is_log && status.ok() ? 0 : Finish(status);
}

}  // namespace inflight::tool
