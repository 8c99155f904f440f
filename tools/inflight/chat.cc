// SPDX-License-Identifier: Apache-2.0
// inflight chat: a conversation in the terminal with a model of this process.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"
#include "conversation.h"
#include "interrupt.h"
#include "model_options.h"
#include "parameter_flags.h"
#include "terminal_sink.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight chat DIR [--system TEXT]",
    "Talks with a Hugging Face, checkpoint or engine directory in the terminal, by the model's own "
    "chat template.\n"
    "Ctrl-C stops the answer, Ctrl-D ends, /clear forgets the conversation. Standard input that is "
    "no terminal is read\n"
    "line by line, an answer to each."};

struct Options {
  ModelOptions model;
  std::string system;
  std::string template_file;
  bool no_template = false;
  int max_tokens = 512;
  SamplingParams sampling;
  std::optional<uint32_t> seed;  // of sampling, where it has 64 bits
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
      "File with a chat template, instead of the model's.");
  schema.Add(
      "no_template", [](Options& o) -> auto& { return o.no_template; },
      "Continue the text of the turns as it is; for models without a chat template.",
      config::Switch());
  schema.Add(
      "max_tokens", [](Options& o) -> auto& { return o.max_tokens; }, "Tokens of an answer.",
      config::AtLeast(1));
  schema.Add(
      "temperature", [](Options& o) -> auto& { return o.sampling.temperature; },
      "Randomness; takes effect with top_k or top_p.", BoundsOf("temperature"));
  schema.Add(
      "top_k", [](Options& o) -> auto& { return o.sampling.top_k; },
      "Sample among so many; 0 is off.", BoundsOf("top_k"));
  schema.Add(
      "top_p", [](Options& o) -> auto& { return o.sampling.top_p; },
      "Sample among the likeliest of this sum; 0 is off.", BoundsOf("top_p"));
  schema.Add(
      "min_p", [](Options& o) -> auto& { return o.sampling.min_p; },
      "Leave out tokens below this share of the likeliest.", BoundsOf("min_p"));
  schema.Add(
      "repetition_penalty", [](Options& o) -> auto& { return o.sampling.repetition_penalty; },
      "Above 1 discourages tokens that occurred.", BoundsOf("repetition_penalty"));
  schema.Add(
      "seed", [](Options& o) -> auto& { return o.seed; },
      "Of the random numbers; each turn adds its number.", config::AtLeast(0));
  schema.Add(
      "log_verbose", [](Options& o) -> auto& { return o.verbose; },
      "Log what is loaded and chosen.", config::Switch());
  schema.Section("Engine");
  AddEngineOptions(schema, [](Options& o) -> auto& { return o.model; });
  return schema;
}

class Chat {
 public:
  Chat(const OpenedModel& model, const Options& options, Conversation conversation)
      : model_(model),
        options_(options),
        conversation_(std::move(conversation)),
        is_terminal_(isatty(STDIN_FILENO) == 1) {
    end_ids_ = model.info.end_ids;
    const auto eos = model.tokenizer->eos_id();  // chat models often end turns by another id
    if (eos && std::find(end_ids_.begin(), end_ids_.end(), *eos) == end_ids_.end())
      end_ids_.push_back(*eos);
  }

  Status Run() {
    const InterruptScope interrupts;
    LineReader reader;
    for (std::string line;;) {
      if (is_terminal_) std::fputs("> ", stdout);
      std::fflush(stdout);
      const LineEvent event = reader.Next(line);
      if (event == LineEvent::kEnd) break;
      if (event == LineEvent::kInterrupted) {
        std::fputc('\n', stdout);
        continue;
      }
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      if (line == "/clear") {
        conversation_.Clear();
        continue;
      }
      if (Status status = Turn(line); !status.ok()) {
        if (!is_terminal_) return status;
        Fail(status);
      }
    }
    if (is_terminal_) std::fputc('\n', stdout);
    return Status::Ok();
  }

 private:
  // One line and its answer. A turn that fails is not part of the conversation.
  Status Turn(const std::string& line) {
    conversation_.Add("user", line);
    auto sink = std::make_shared<TerminalSink>(model_.tokenizer);
    if (Status status = Generate(sink); !status.ok()) {
      conversation_.RemoveLast();
      return status;
    }
    conversation_.Add("assistant", sink->TakeText());
    ++num_turns_;
    return Status::Ok();
  }

  Status Generate(const std::shared_ptr<TerminalSink>& sink) {
    Request request;
    ASSIGN_OR_RETURN(request.input_ids, conversation_.Prompt(*model_.tokenizer));
    const int max_input_len = model_.executor->limits().max_input_len;
    if (static_cast<int>(request.input_ids.size()) > max_input_len)
      return FailedPrecondition("the conversation has " + std::to_string(request.input_ids.size()) +
                                " tokens, the model takes " + std::to_string(max_input_len) +
                                "; /clear begins a new one");
    request.max_tokens = options_.max_tokens;
    request.streaming = true;
    request.end_ids = end_ids_;
    request.sampling = options_.sampling;
    if (options_.seed) request.sampling.seed = *options_.seed + num_turns_;
    ASSIGN_OR_RETURN(const RequestId id, model_.executor->Enqueue(std::move(request), sink));
    while (!sink->WaitFor(std::chrono::milliseconds(20)))
      if (InterruptScope::TakeFlag()) model_.executor->Cancel(id);
    InterruptScope::TakeFlag();  // one that came with the last token
    std::fputc('\n', stdout);
    const Response& response = sink->Wait();
    if (is_terminal_ && response.finish_reason == FinishReason::kLength)
      std::fputs("[ended by --max-tokens or the model's length]\n", stdout);
    return response.status;
  }

  const OpenedModel& model_;
  const Options& options_;
  Conversation conversation_;
  const bool is_terminal_;
  std::vector<TokenId> end_ids_;
  uint64_t num_turns_ = 0;
};

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
  Chat chat(model, options, Conversation(std::move(model_template), options.system));
  Status status = chat.Run();
  model.executor->Shutdown(/*drain_ms=*/0);
  return status;
}

}  // namespace

int ChatMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual ChatManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
