// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace inflight::tool {
namespace {

using Aliases = std::vector<std::pair<std::string, std::string>>;

// CLI11 takes both spellings of a flag: the documented one and the file key's.
std::string Spellings(const std::string& name) {
  const std::string dashed = config::FlagOf(name);
  const std::string underscored = "--" + name;
  return dashed == underscored ? dashed : dashed + "," + underscored;
}

bool IsValueOptional(const std::vector<config::OptionInfo>& infos, const std::string& name) {
  const auto found = std::ranges::find(infos, name, &config::OptionInfo::name);
  return found != infos.end() && found->constraint.is_value_optional;
}

// "-tp" becomes "--tp_size" where that is its alias: CLI11 has no flags of one dash and several
// letters.
std::string WithoutShortAlias(const std::string& arg, const Aliases& aliases) {
  for (const auto& [alias, target] : aliases)
    if (alias.starts_with('-') && alias == arg) return "--" + target;
  return arg;
}

Status UnknownOption(const std::string& argument, const std::vector<config::OptionInfo>& infos,
                     Elsewhere elsewhere) {
  if (elsewhere != nullptr)
    if (auto said = elsewhere(argument)) return InvalidArgument(*std::move(said));
  std::vector<std::string> known = {"--help", "--help-all", "--config"};
  for (const config::OptionInfo& info : infos) {
    known.push_back(info.flag());
    known.insert(known.end(), info.aliases.begin(), info.aliases.end());
  }
  std::string message = "unknown option '" + argument + "'";
  if (const auto nearest = config::Nearest(argument, known))
    message += "; did you mean '" + *nearest + "'?";
  return InvalidArgument(message + " (--help-all lists all)");
}

// The option that `flag`, with its dashes, is the beginning of; itself where it is one or begins
// none.
Result<std::string> FullName(const std::string& flag, const std::vector<config::OptionInfo>& infos,
                             const Aliases& aliases) {
  std::string begin = flag;
  std::ranges::replace(begin, '_', '-');
  if (begin == "--help" || begin == "--help-all" || begin == "--config") return flag;
  std::vector<std::string> targets;  // file keys
  std::string candidates;
  const auto consider = [&](const std::string& known, const std::string& target) {
    if (!known.starts_with(begin) || std::ranges::count(targets, target) > 0) return;
    targets.push_back(target);
    candidates += " '" + known + "'";
  };
  for (const config::OptionInfo& info : infos) {
    if (info.flag() == begin) return flag;
    consider(info.flag(), info.name);
  }
  for (const auto& [alias, target] : aliases) {
    if (config::FlagOf(alias) == begin) return flag;
    consider(config::FlagOf(alias), target);
  }
  if (targets.size() > 1)
    return InvalidArgument("option '" + flag + "' is ambiguous; possibilities:" + candidates);
  return targets.empty() ? flag : config::FlagOf(targets.front());
}

}  // namespace

Result<std::vector<std::string>> ExpandPrefixes(std::span<char* const> args,
                                                const std::vector<config::OptionInfo>& infos,
                                                const Aliases& aliases) {
  std::vector<std::string> full;
  for (const char* const given : args) {
    const std::string arg = given;
    const size_t end = std::min(arg.find('='), arg.size());
    if (!arg.starts_with("--") || end <= 2) {
      full.push_back(arg);
      continue;
    }
    ASSIGN_OR_RETURN(std::string name, FullName(arg.substr(0, end), infos, aliases));
    full.push_back(std::move(name) + arg.substr(end));
  }
  return full;
}

namespace {

// What stands for an empty argument, and for the value of "--flag=", which the parser would take
// from the next argument: to it an empty value is one that is left out.
constexpr char kEmptyValue[] = "\x1f";

// A boolean flag may stand without a value before another flag or at the end, or as "--no-flag":
// both become "--flag=VALUE". `next` is the word behind it.
std::string WithValue(const std::string& word, std::string_view next,
                      const std::vector<config::OptionInfo>& infos) {
  if (!word.starts_with("--") || word.find('=') != std::string::npos) return word;
  std::string name = word.substr(2);
  std::ranges::replace(name, '-', '_');
  const auto find = [&](std::string_view wanted) {
    return std::ranges::find_if(infos, [&](const config::OptionInfo& info) {
      return info.name == wanted && info.type == "boolean" && !info.constraint.is_switch;
    });
  };
  constexpr std::string_view kNegation = "no_";
  const bool is_known =
      std::ranges::any_of(infos, [&](const config::OptionInfo& info) { return info.name == name; });
  if (!is_known && name.starts_with(kNegation)) {
    const auto negated = find(std::string_view(name).substr(kNegation.size()));
    return negated == infos.end() ? word : negated->flag() + "=false";
  }
  const bool has_value = !next.empty() && !next.starts_with('-');
  return has_value || find(name) == infos.end() ? word : word + "=true";
}

// "--flag=" as two arguments.
std::vector<std::string> WithEmptyValues(std::span<char* const> args, const Aliases& aliases,
                                         const std::vector<config::OptionInfo>& infos) {
  std::vector<std::string> words;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string word = WithValue(WithoutShortAlias(args[i], aliases),
                                 i + 1 < args.size() ? args[i + 1] : std::string_view(), infos);
    const bool lacks_value = word.starts_with("--") && word.find('=') == word.size() - 1;
    if (lacks_value) word.pop_back();
    words.push_back(word.empty() ? kEmptyValue : std::move(word));
    if (lacks_value) words.emplace_back(kEmptyValue);
  }
  return words;
}

// The parser counts a switch, and throws something of its own where that is given another word.
Status CheckSwitches(std::span<char* const> args, const std::vector<config::OptionInfo>& infos) {
  constexpr std::array<std::string_view, 8> kWords = {"true",  "on",  "enable",  "1",
                                                      "false", "off", "disable", "0"};
  for (const std::string_view arg : args) {
    const size_t end = arg.find('=');
    if (end == std::string_view::npos) continue;
    if (std::find(kWords.begin(), kWords.end(), arg.substr(end + 1)) != kWords.end()) continue;
    const std::string name(arg.substr(0, end));
    const auto takes_none = [&](const config::OptionInfo& info) {
      return info.constraint.is_switch && (info.flag() == name || "--" + info.name == name);
    };
    if (std::any_of(infos.begin(), infos.end(), takes_none))
      return InvalidArgument("option '" + name + "' doesn't allow an argument");
  }
  return Status::Ok();
}

// "-hf" of another program, which the parser would take for "-h" with something behind it.
Status CheckNotHelp(std::span<char* const> args, Elsewhere elsewhere) {
  for (const std::string_view arg : args) {
    if (elsewhere == nullptr || !arg.starts_with("-h") || arg.size() == 2) continue;
    if (auto said = elsewhere(arg)) return InvalidArgument(*std::move(said));
  }
  return Status::Ok();
}

}  // namespace

Result<Arguments> ParseArguments(std::span<char* const> args,
                                 const std::vector<config::OptionInfo>& infos,
                                 const Aliases& aliases, Elsewhere elsewhere) {
  RETURN_IF_ERROR(CheckSwitches(args, infos));
  RETURN_IF_ERROR(CheckNotHelp(args, elsewhere));
  Arguments result;
  CLI::App app;
  app.set_help_flag();
  app.add_flag("-h,--help", result.help);
  app.add_flag("--help-all", result.help_all);
  app.allow_extras();
  const auto add = [&](const std::string& name, bool is_value_optional) {
    app.add_option_function<std::vector<std::string>>(
           Spellings(name),
           [&result, name](const std::vector<std::string>& values) {
             for (const std::string& value : values) {
               const std::string given = value == kEmptyValue ? "" : value;
               result.options.emplace_back(name, value.empty() ? "true" : given);
             }
           })
        ->expected(is_value_optional ? 0 : 1, 1)
        ->allow_extra_args(false)  // what follows the value is a positional argument
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->trigger_on_parse();
  };
  for (const config::OptionInfo& info : infos) {
    if (info.constraint.is_switch) {
      app.add_flag_function(Spellings(info.name), [&result, name = info.name](int64_t count) {
        result.options.emplace_back(name, count > 0 ? "true" : "false");
      });
    } else {
      add(info.name, info.constraint.is_value_optional);
    }
  }
  for (const auto& [alias, target] : aliases)
    if (!alias.starts_with('-')) add(alias, IsValueOptional(infos, target));
  add("config", /*is_value_optional=*/false);

  std::vector<std::string> words = WithEmptyValues(args, aliases, infos);
  std::ranges::reverse(words);  // as the parser takes them
  try {
    app.parse(std::move(words));
  } catch (const CLI::ArgumentMismatch& error) {  // "--port: 1 required TEXT missing"
    const std::string said = error.what();
    return InvalidArgument(said.substr(0, said.find(": ")) +
                           ": a value is needed behind it (--help lists the options)");
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(std::string(error.what()) + " (--help lists the options)");
  }
  for (const std::string& extra : app.remaining()) {
    if (extra.size() > 1 && extra.starts_with("-"))
      return UnknownOption(extra.substr(0, extra.find('=')), infos, elsewhere);
    result.positionals.push_back(extra == kEmptyValue ? "" : extra);
  }
  return result;
}

Status UsageError(const Usage& usage, const std::string& message) {
  return InvalidArgument(message + "; usage: " + usage.line);
}

Result<std::string> OnlyPositional(const Usage& usage, std::span<const std::string> positionals,
                                   const std::string& what) {
  if (positionals.empty()) return UsageError(usage, "one " + what + " is needed");
  RETURN_IF_ERROR(NoPositionals(usage, positionals.subspan(1)));
  return positionals[0];
}

Status NoPositionals(const Usage& usage, std::span<const std::string> positionals) {
  if (positionals.empty()) return Status::Ok();
  return UsageError(usage, "unexpected argument '" + positionals[0] + "'");
}

void PrintHelp(const Usage& usage, const std::vector<config::OptionInfo>& infos, bool all) {
  constexpr size_t kColumns = 100;
  std::string summary = usage.summary;
  std::ranges::replace(summary, '\n', ' ');
  const bool only_common = !all && std::ranges::any_of(infos, &config::OptionInfo::is_common);
  const auto wrapped = [](const std::string& text, size_t indent) {
    return config::Wrapped(text, kColumns, indent);
  };
  std::printf(
      "%s\n\nUsage: %s\n%s%s\n%s\n", wrapped(summary, 0).c_str(),
      wrapped(usage.line, sizeof "Usage: " - 1).c_str(), only_common ? "\n" : "",
      config::ToHelp(infos, only_common).c_str(),
      wrapped("Every option may also stand, with _ for -, in a JSON object: --config FILE", 0)
          .c_str());
  if (only_common)
    std::printf("--help-all lists all %zd options.\n",
                std::ranges::count_if(infos, &config::OptionInfo::is_shown));
}

int Fail(const Status& status) {
  std::fflush(stdout);  // what was printed stands before the error
  std::fprintf(stderr, "inflight: %s\n", status.message().c_str());
  return 1;
}

int Finish(const Status& status) {
  errno = 0;
  const bool is_flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (!status.ok()) return Fail(status);
  if (is_flushed && std::ferror(stdout) == 0) return 0;
  pollfd pipe = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR) != 0) return 1;  // its reader has left
  return Fail(DataLoss(std::string("standard output: not all could be written") +
                       (error != 0 ? ": " + std::string(std::strerror(error)) : "")));
}

}  // namespace inflight::tool
