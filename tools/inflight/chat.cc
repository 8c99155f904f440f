// SPDX-License-Identifier: Apache-2.0
// inflight chat: a conversation in the terminal with a model of this process.
#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "base/status_macros.h"
#include "chat_input.h"
#include "chat_session.h"
#include "command_line.h"
#include "commands.h"
#include "interrupt.h"
#include "line_editor.h"
#include "model_options.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight chat DIR [--system TEXT]",
    "Talks with a Hugging Face, checkpoint or engine directory in the terminal, by the model's own "
    "chat template.\n"
    "Ctrl-C stops the answer, Ctrl-D ends, /help lists what else there is. Standard input that is "
    "no terminal is read\n"
    "line by line, an answer to each. Lines between two times \"\"\" are one text."};

struct Options {
  ModelOptions model;
  std::string system;
  std::string template_file;
  bool no_template = false;
  SamplingOptions sampling;
  std::filesystem::path history_file = "auto";
  bool verbose = false;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Chat");
  schema.Add(
      "system", [](Options& o) -> auto& { return o.system; },
      "Text of the system turn, where the template has one.");
  schema.Add(
      "chat_template", [](Options& o) -> auto& { return o.template_file; },
      "File with a chat template, instead of the model's, or the name of a family's: " +
          ChatTemplate::Names() + ".");
  schema.Add(
      "no_template", [](Options& o) -> auto& { return o.no_template; },
      "Continue the text of the turns as it is; for models without a chat template.",
      config::Switch());
  AddSampling(
      schema, [](Options& o) -> auto& { return o.sampling; }, "",
      "Tokens of an answer; default: the model's own, else 512.");
  schema.Add(
      "history_file", [](Options& o) -> auto& { return o.history_file; },
      "What was typed at a terminal, for the next time; empty: it is forgotten. auto is "
      "inflight/chat_history in $XDG_STATE_HOME, else in ~/.local/state.");
  schema.Add(
      "log_verbose", [](Options& o) -> auto& { return o.verbose; },
      "Log what is loaded and chosen.", config::Switch());
  schema.Section("Engine");
  AddEngineOptions(schema, [](Options& o) -> auto& { return o.model; });
  return schema;
}

// Where a person types, what fails is told and the chat goes on; where a program writes, it ends.
// `was_killed`: Ctrl-C ended it.
Status Talk(ChatSession& session, LineEditor& editor, bool& was_killed) {
  const bool is_terminal = editor.is_terminal();
  for (;;) {
    const auto input = ReadChatInput(editor);
    Status status = input.status();
    bool was_interrupted = input.ok() && input->event == LineEvent::kInterrupted;
    if (input.ok()) {
      if (input->event == LineEvent::kEnd) break;
      const bool is_blank = input->text.find_first_not_of(" \t\n") == std::string::npos;
      if (was_interrupted) {
        if (is_terminal) std::fputc('\n', stdout);
      } else if (!input->is_quoted && input->text.starts_with('/')) {
        const auto next = session.Command(input->text);
        if (next.ok() && *next == ChatSession::Next::kEnd) return Status::Ok();
        status = next.status();
      } else if (!is_blank) {
        status = session.Say(input->text, is_terminal, was_interrupted);
      }
    }
    if (std::fflush(stdout) != 0) return Unavailable("standard output takes no more");
    if (!is_terminal && !status.ok()) return status;
    if (!status.ok()) Fail(status);
    if (!is_terminal && was_interrupted) {
      was_killed = true;
      return Status::Ok();
    }
    if (!input.ok()) break;
  }
  if (is_terminal) std::fputc('\n', stdout);
  return Status::Ok();
}

Result<std::optional<ChatTemplate>> LoadTemplate(const OpenedModel& model, const Options& options) {
  if (options.no_template) return std::optional<ChatTemplate>();
  auto loaded = ChatTemplate::Load(model.info.tokenizer_dir, options.template_file);
  if (loaded.ok()) return std::optional(*std::move(loaded));
  if (loaded.status().code() != StatusCode::kNotFound || !options.template_file.empty())
    return loaded.status();
  return NotFound(loaded.status().message() +
                  "; give one with --chat-template FILE, or continue plain text with "
                  "--no-template");
}

Status Run(const Options& options, std::span<const std::string> positionals) {
  ASSIGN_OR_RETURN(const std::string dir, OnlyPositional(kUsage, positionals, "model directory"));
  if (options.no_template && (!options.system.empty() || !options.template_file.empty()))
    return InvalidArgument("--no-template has no use for --system and --chat-template");
  logging::SetLevel(options.verbose ? logging::Level::kVerbose : logging::Level::kWarning);
  ASSIGN_OR_RETURN(const OpenedModel model, OpenModel(dir, options.model));
  if (model.tokenizer == nullptr)
    return FailedPrecondition(dir + ": this model directory has no tokenizer, which chat needs");
  ASSIGN_OR_RETURN(auto model_template, LoadTemplate(model, options));
  ChatSession session(model, parameters::ReadModelDefaultsOrWarn(model.info.tokenizer_dir),
                      options.sampling, Conversation(std::move(model_template), options.system));
  bool was_killed = false;
  Status status;
  {
    const InterruptScope interrupts;
    LineEditor editor(options.history_file == "auto" ? DefaultHistoryFile() : options.history_file);
    status = Talk(session, editor, was_killed);
  }
  model.executor->Shutdown(/*drain_ms=*/0);
  if (was_killed) std::raise(SIGINT);  // so that a script's shell sees why it ended
  return status;
}

}  // namespace

int ChatMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual ChatManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
