// SPDX-License-Identifier: Apache-2.0
// inflight completion: the script for a shell.
#include "completion.h"

#include <cstdio>
#include <utility>

#include "base/status_macros.h"
#include "commands.h"

namespace inflight::tool {
namespace {

struct CompletionOptions {};

const Usage kCompletionUsage = {
    "inflight completion bash|zsh|fish",
    "Prints a script that completes commands, options and values in the shell: in bash by 'source "
    "<(inflight completion bash)', in fish\nby 'inflight completion fish | source', in zsh as a "
    "file _inflight in a folder of $fpath."};

using Script = std::string (*)(const std::vector<CompletedCommand>&);
constexpr std::pair<const char*, Script> kShells[] = {
    {"bash", BashCompletion}, {"zsh", ZshCompletion}, {"fish", FishCompletion}};

std::vector<std::string> Choices(const config::OptionInfo& option) {
  std::vector<std::string> choices;
  for (const std::string& choice : option.constraint.choices)
    if (!choice.empty()) choices.push_back(choice);
  if (option.type == "boolean" && !option.constraint.is_switch) choices = {"true", "false"};
  return choices;
}

// Up to the end of the first sentence: a stop before a blank, or before nothing.
std::string FirstSentence(const std::string& text) {
  for (size_t stop = text.find('.'); stop != std::string::npos; stop = text.find('.', stop + 1))
    if (stop + 1 == text.size() || text[stop + 1] == ' ') return text.substr(0, stop);
  return text;
}

std::vector<std::string> WordsOf(std::string_view command) {
  std::vector<std::string> words;
  if (command == "completion")
    for (const auto& [shell, script] : kShells) words.emplace_back(shell);
  if (command == "man")
    for (const Command& other : Commands()) words.emplace_back(other.name);
  return words;
}

std::vector<CompletedCommand> Completed() {
  std::vector<CompletedCommand> commands;
  for (const Command& command : Commands()) {
    CompletedCommand completed = {command.name, command.summary, {}, WordsOf(command.name)};
    for (const config::OptionInfo& option : command.manual().options) {
      if (!option.is_shown()) continue;
      completed.options.push_back({option.flag(), FirstSentence(option.help),
                                   option.constraint.is_switch, Choices(option)});
    }
    completed.options.push_back({"--config", "Options from a JSON object in a file", false, {}});
    completed.options.push_back({"--help", "What the command does, and its options", true, {}});
    commands.push_back(std::move(completed));
  }
  return commands;
}

Status PrintCompletion(CompletionOptions&, std::span<const std::string> positionals) {
  ASSIGN_OR_RETURN(const std::string asked, OnlyPositional(kCompletionUsage, positionals, "shell"));
  for (const auto& [shell, script] : kShells) {
    if (asked != shell) continue;
    std::fputs(script(Completed()).c_str(), stdout);
    return Status::Ok();
  }
  return UsageError(kCompletionUsage, "shell: got '" + asked + "', must be bash, zsh or fish");
}

}  // namespace

int CompletionMain(Args args) {
  return RunCommand(args, kCompletionUsage, config::Schema<CompletionOptions>(), PrintCompletion);
}

Manual CompletionManual() { return {kCompletionUsage, {}}; }

}  // namespace inflight::tool
