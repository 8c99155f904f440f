// SPDX-License-Identifier: Apache-2.0
#include "chat_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "environment.h"
#include "interrupt.h"
#include "parameters/parameters.h"
#include "terminal_sink.h"

namespace inflight::tool {
namespace {

constexpr int kDefaultMaxTokens = 512;

const config::Schema<SamplingOptions>& Settings() {
  static const config::Schema<SamplingOptions> schema = [] {
    config::Schema<SamplingOptions> made;
    AddSampling(
        made, [](SamplingOptions& o) -> auto& { return o; }, "", "Tokens of an answer.");
    return made;
  }();
  return schema;
}

std::string SettingNames() {
  std::vector<std::string> names;
  for (const config::OptionInfo& info : Settings().options()) names.push_back(info.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// The first word, which is taken from `text`.
std::string TakeWord(std::string_view& text) {
  const auto trim = [&] {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  };
  trim();
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  std::string word(text.substr(0, end));
  text.remove_prefix(end);
  trim();
  return word;
}

Result<std::filesystem::path> PathOf(std::string_view argument, const char* command) {
  while (argument.ends_with(' ')) argument.remove_suffix(1);
  if (argument.empty()) return InvalidArgument(std::string(command) + ": a file is needed");
  if (!argument.starts_with("~/")) return std::filesystem::path(argument);
  return std::filesystem::path(Environment("HOME")) / argument.substr(2);
}

std::string TextOf(const auto& value) { return value ? fmt::format("{}", *value) : "off"; }

// Commands of other chats, and what they are here.
constexpr std::pair<std::string_view, std::string_view> kCommandsElsewhere[] = {
    {"/exit", "/bye"}, {"/quit", "/bye"},    {"/q", "/bye"},
    {"/?", "/help"},   {"/reset", "/clear"}, {"/new", "/clear"}};

std::optional<std::string> CommandMeantBy(const std::string& name,
                                          const std::vector<std::string>& known) {
  for (const auto& [elsewhere, here] : kCommandsElsewhere)
    if (name == elsewhere) return std::string(here);
  return config::Nearest(name, known);
}

}  // namespace

struct ChatSession::CommandRow {
  std::string_view name;
  std::string_view argument;
  std::string summary;
  Status (ChatSession::*run)(std::string_view argument);  // null: it ends the chat
};

const std::vector<ChatSession::CommandRow>& ChatSession::Commands() {
  static const std::vector<CommandRow> commands = {
      {"/help", "", "this list", &ChatSession::Help},
      {"/clear", "", "forget the conversation, but for the system text", &ChatSession::Clear},
      {"/system", "TEXT", "the system text; without TEXT there is none", &ChatSession::System},
      {"/set", "NAME VALUE", SettingNames() + "; without VALUE the default", &ChatSession::Set},
      {"/show", "", "the model, what is set, and how long the conversation is", &ChatSession::Show},
      {"/save", "FILE", "write the conversation as JSON", &ChatSession::Save},
      {"/load", "FILE", "go on with a conversation that was saved", &ChatSession::Load},
      {"/bye", "", "end; Ctrl-D does the same", nullptr},
  };
  return commands;
}

ChatSession::ChatSession(const OpenedModel& model, parameters::ModelDefaults defaults,
                         SamplingOptions sampling, Conversation conversation)
    : model_(model),
      defaults_(defaults),
      sampling_(sampling),
      conversation_(std::move(conversation)),
      end_ids_(model.info.end_ids),
      seed_by_chance_(parameters::RandomSeed()) {
  const auto eos = model.tokenizer->eos_id();  // chat models often end turns by another id
  if (eos && std::find(end_ids_.begin(), end_ids_.end(), *eos) == end_ids_.end())
    end_ids_.push_back(*eos);
}

int ChatSession::max_tokens() const { return sampling_.MaxTokens(defaults_, kDefaultMaxTokens); }

// Of the next answer: each adds its number, so that a seed repeats a whole conversation.
uint64_t ChatSession::next_seed() const {
  return (sampling_.seed ? static_cast<uint64_t>(*sampling_.seed) : seed_by_chance_) + num_answers_;
}

Result<ChatSession::Next> ChatSession::Command(std::string_view line) {
  std::string_view argument = line;
  const std::string name = TakeWord(argument);
  std::vector<std::string> names;
  for (const CommandRow& row : Commands()) {
    if (row.name == name) {
      if (row.argument.empty() && !argument.empty())
        return InvalidArgument(name + ": takes nothing behind it, got '" + std::string(argument) +
                               "'");
      if (row.run == nullptr) return Next::kEnd;
      RETURN_IF_ERROR((this->*row.run)(argument));
      return Next::kGoOn;
    }
    names.emplace_back(row.name);
  }
  const auto meant = CommandMeantBy(name, names);
  return InvalidArgument(
      "no command is called '" + name + "';" + (meant ? " did you mean '" + *meant + "'?" : "") +
      R"( /help lists them; a text that begins with a slash stands between """)");
}

Status ChatSession::Help(std::string_view) {
  for (const CommandRow& row : Commands())
    fmt::print("{:<20} {}\n", fmt::format("{} {}", row.name, row.argument), row.summary);
  fmt::print("{:<20} {}\n", R"(""")", R"(begins a text of several lines, which """ ends)");
  fmt::print("{:<20} {}\n", "Ctrl-C", "stop the answer, or drop the line");
  return Status::Ok();
}

Status ChatSession::Clear(std::string_view) {
  conversation_.Clear();
  return Status::Ok();
}

Status ChatSession::System(std::string_view argument) {
  if (!conversation_.has_template())
    return FailedPrecondition("/system: without a chat template there is no system text");
  conversation_.SetSystem(std::string(argument));
  return Status::Ok();
}

Status ChatSession::Set(std::string_view argument) {
  const std::string name = TakeWord(argument);
  if (name.empty()) return Show({});
  if (name == "parameter")
    return InvalidArgument("/set parameter: here it is /set NAME VALUE, without that word");
  if (name == "system") return InvalidArgument("/set system: here it is /system TEXT");
  return argument.empty() ? Settings().Reset(sampling_, name)
                          : Settings().Set(sampling_, name, argument);
}

Status ChatSession::Show(std::string_view) {
  const SamplingParams params = sampling_.ToParams(defaults_, next_seed());
  const std::string said = defaults_.ToString();
  fmt::print("model               {}, {} on {}\n", model_.info.architecture, model_.info.dtype,
             model_.info.device);
  fmt::print("directory           {}\n", model_.info.directory.string());
  fmt::print("generation_config   {}\n", said.empty() ? "says nothing" : said);
  fmt::print("system              {}\n",
             conversation_.system().empty() ? "none" : conversation_.system());
  fmt::print("max_tokens          {}\n", max_tokens());
  if (parameters::IsDrawn(params)) {
    fmt::print("temperature         {}\n", TextOf(params.temperature));
    fmt::print("top_k               {}\ntop_p               {}\nmin_p               {}\n",
               TextOf(params.top_k), TextOf(params.top_p), TextOf(params.min_p));
    fmt::print("seed                {}{}, of the next answer\n", next_seed(),
               sampling_.seed ? "" : " by chance");
  } else {
    fmt::print("temperature         0: each token is the likeliest\n");
  }
  fmt::print("repetition_penalty  {}\n", TextOf(params.repetition_penalty));
  const auto prompt = conversation_.Prompt(*model_.tokenizer);
  fmt::print("conversation        {} messages, {} of {} tokens\n", conversation_.num_turns(),
             prompt.ok() && conversation_.num_turns() > 0 ? prompt->size() : 0,
             model_.executor->limits().max_input_len);
  return Status::Ok();
}

Status ChatSession::Save(std::string_view argument) {
  ASSIGN_OR_RETURN(const std::filesystem::path path, PathOf(argument, "/save"));
  return conversation_.Save(path);
}

Status ChatSession::Load(std::string_view argument) {
  ASSIGN_OR_RETURN(const std::filesystem::path path, PathOf(argument, "/load"));
  return conversation_.Load(path);
}

Status ChatSession::Say(const std::string& text, bool tells_limits, bool& was_interrupted) {
  conversation_.Add("user", text);
  std::string answer;
  if (Status status = Generate(answer, tells_limits, was_interrupted); !status.ok()) {
    conversation_.RemoveLast();
    return status;
  }
  conversation_.Add("assistant", std::move(answer));
  ++num_answers_;
  return Status::Ok();
}

Status ChatSession::Generate(std::string& answer, bool tells_limits, bool& was_interrupted) {
  Request request;
  ASSIGN_OR_RETURN(request.input_ids, conversation_.Prompt(*model_.tokenizer));
  const int max_input_len = model_.executor->limits().max_input_len;
  if (static_cast<int>(request.input_ids.size()) > max_input_len)
    return FailedPrecondition("the conversation has " + std::to_string(request.input_ids.size()) +
                              " tokens, the model takes " + std::to_string(max_input_len) +
                              "; /clear begins a new one");
  request.max_tokens = max_tokens();
  request.streaming = true;
  request.end_ids = end_ids_;
  request.sampling = sampling_.ToParams(defaults_, next_seed());
  if (request.sampling.seed) request.sampling.seed = next_seed();
  auto sink = std::make_shared<TerminalSink>(model_.tokenizer);
  ASSIGN_OR_RETURN(const RequestId id, model_.executor->Enqueue(std::move(request), sink));
  while (!sink->WaitFor(std::chrono::milliseconds(20))) {
    if (!InterruptScope::TakeFlag()) continue;
    was_interrupted = true;
    model_.executor->Cancel(id);
  }
  if (InterruptScope::TakeFlag()) was_interrupted = true;  // it came with the last token
  std::fputc('\n', stdout);
  const Response& response = sink->Wait();
  if (tells_limits && response.finish_reason == FinishReason::kLength)
    std::fputs("[ended by max_tokens or the model's length]\n", stdout);
  answer = sink->TakeText();
  return response.status;
}

}  // namespace inflight::tool
