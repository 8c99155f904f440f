// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/call_formats.h"

#include <algorithm>
#include <set>
#include <string>

namespace inflight::answer_parts {
namespace {

// Of formats with several rows, which are one for whoever names it.
constexpr std::array<std::string_view, 7> kMistralTexts = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
constexpr std::array<std::string_view, 7> kDeepSeekTexts = {
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"};
constexpr std::array<std::string_view, 7> kGemmaTexts = {
    "<|tool_call>",          "<tool_call|>",        "<|\"|>",
    "<start_function_call>", "<end_function_call>", "<escape>"};
constexpr std::array<std::string_view, 7> kListTexts = {"<|tool_call|>", "<|/tool_call|>"};

// The first whose texts a template has is that of the model.
constexpr CallFormat kFormats[] = {
    {.name = "mistral",
     .template_has = {"[TOOL_CALLS]", "[ARGS]"},
     .markers = kMistralTexts,
     .make = MakeMistralReader,
     .written = {.before_name = "[TOOL_CALLS]", .behind_name = "[ARGS]", .trigger = "[TOOL_CALLS]"},
     .short_ids = true},
    {.name = "mistral",
     .template_has = {"[TOOL_CALLS]"},
     .markers = kMistralTexts,
     .make = MakeMistralReader,
     .written = {.before = "[TOOL_CALLS][",
                 .before_name = "{\"name\": \"",
                 .behind_name = "\", \"arguments\": ",
                 .behind_arguments = "}",
                 .between = ", ",
                 .after = "]",
                 .trigger = "[TOOL_CALLS]"},
     .short_ids = true},
    {.name = "deepseek",
     .template_has = {"<｜tool▁calls▁begin｜>", "```json"},
     .markers = kDeepSeekTexts,
     .make = MakeDeepSeekReader,
     .written = {.before = "<｜tool▁calls▁begin｜>",
                 .before_name = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                 .behind_name = "\n```json\n",
                 .behind_arguments = "\n```<｜tool▁call▁end｜>",
                 .between = "\n",
                 .after = "<｜tool▁calls▁end｜>",
                 .trigger = "<｜tool▁call▁begin｜>"}},
    {.name = "deepseek",
     .template_has = {"<｜tool▁calls▁begin｜>"},
     .markers = kDeepSeekTexts,
     .make = MakeDeepSeekReader,
     .written = {.before = "<｜tool▁calls▁begin｜>",
                 .before_name = "<｜tool▁call▁begin｜>",
                 .behind_name = "<｜tool▁sep｜>",
                 .behind_arguments = "<｜tool▁call▁end｜>",
                 .after = "<｜tool▁calls▁end｜>",
                 .trigger = "<｜tool▁call▁begin｜>"}},
    {.name = "harmony",
     .template_has = {"<|channel|>", "functions."},
     .markers = {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>",
                 "<|return|>"},
     .make = MakeHarmonyReader,
     .written = {.before_name = "<|channel|>commentary to=functions.",
                 .behind_name = " <|constrain|>json<|message|>",
                 .preambles = {"<|channel|>analysis<|message|>",
                               "<|channel|>commentary<|message|>"},
                 .preamble_end = "<|end|><|start|>assistant",
                 .otherwise = "<|channel|>final<|message|>",
                 .is_single = true},
     .has_channels = true},
    {.name = "gemma",
     .template_has = {"<|tool_call>call:"},
     .markers = kGemmaTexts,
     .make = MakeGemmaReader,
     .written = {.before_name = "<|tool_call>call:",
                 .behind_arguments = "<tool_call|>",
                 .arguments = "gemma",
                 .trigger = "<|tool_call>",
                 .other_trigger = "<start_function_call>"}},
    {.name = "gemma",
     .template_has = {"<start_function_call>"},
     .markers = kGemmaTexts,
     .make = MakeGemmaReader,
     .written = {.before_name = "<start_function_call>call:",
                 .behind_arguments = "<end_function_call>",
                 .arguments = "function_gemma",
                 .trigger = "<start_function_call>",
                 .other_trigger = "<|tool_call>"}},
    {.name = "seed",
     .template_has = {"<seed:tool_call>", "<function="},
     .markers = {"<seed:tool_call>", "</seed:tool_call>"},
     .make = MakeSeedReader,
     .written = {.before_name = "<seed:tool_call>\n<function=",
                 .behind_name = ">\n",
                 .behind_arguments = "</function>\n</seed:tool_call>",
                 .between = "\n",
                 .arguments = "parameters",
                 .trigger = "<function=",
                 .end_of_call = "</function>"}},
    {.name = "qwen_coder",
     .template_has = {"<function=", "<parameter="},
     .markers = {"<tool_call>", "</tool_call>"},
     .make = MakeQwenCoderReader,
     .written = {.before_name = "<tool_call>\n<function=",
                 .behind_name = ">\n",
                 .behind_arguments = "</function>\n</tool_call>",
                 .between = "\n",
                 .arguments = "parameters",
                 .trigger = "<function=",
                 .end_of_call = "</function>"}},
    {.name = "hermes",
     .template_has = {"<tool_call>", "arguments"},
     .markers = {"<tool_call>", "</tool_call>"},
     .make = MakeHermesReader,
     .written = {.before_name = "<tool_call>\n{\"name\": \"",
                 .behind_name = "\", \"arguments\": ",
                 .behind_arguments = "}\n</tool_call>",
                 .between = "\n",
                 .trigger = "<tool_call>"}},
    {.name = "list",
     .template_has = {"<|tool_call|>"},
     .markers = kListTexts,
     .make = MakeListReader,
     .written = {.before = "<|tool_call|>[",
                 .before_name = "{\"name\": \"",
                 .behind_name = "\", \"arguments\": ",
                 .behind_arguments = "}",
                 .between = ", ",
                 .after = "]<|/tool_call|>",
                 .trigger = "<|tool_call|>",
                 .other_trigger = "functools["}},
    {.name = "list",
     .template_has = {"functools["},
     .markers = kListTexts,
     .make = MakeListReader,
     .written = {.before = "functools[",
                 .before_name = "{\"name\": \"",
                 .behind_name = "\", \"arguments\": ",
                 .behind_arguments = "}",
                 .between = ", ",
                 .after = "]",
                 .trigger = "functools[",
                 .other_trigger = "<|tool_call|>"}},
    {.name = "pythonic",
     .template_has = {"[func_name1(params_name1="},
     .markers = {"<|python_start|>", "<|python_end|>", "<|python_tag|>"},
     .make = MakePythonicReader,
     .written = {.before = "[",
                 .behind_name = "(",
                 .behind_arguments = ")",
                 .between = ", ",
                 .after = "]",
                 .arguments = "python",
                 .instead = R"(\s*([^\s\[][\s\S]*)?)"}},
    {.name = "llama",
     .template_has = {"\"name\": ", "\"parameters\": "},
     .markers = {"<|python_tag|>"},
     .make = MakeLlamaReader,
     .written = {.before_name = "{\"name\": \"",
                 .behind_name = "\", \"parameters\": ",
                 .behind_arguments = "}",
                 .between = "; ",
                 .instead = R"(\s*([^\s{][\s\S]*)?)"}},
};

}  // namespace

std::string CallFormatNames() {
  std::set<std::string_view> names;
  for (const CallFormat& format : kFormats) names.insert(format.name);
  std::string list;
  for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

const CallFormat* FindCallFormat(std::string_view chat_template) {
  const auto shows = [&](const CallFormat& format) {
    return std::ranges::all_of(format.template_has, [&](std::string_view text) {
      return chat_template.find(text) != std::string::npos;
    });
  };
  const auto* const found = std::ranges::find_if(kFormats, shows);
  return found == std::end(kFormats) ? nullptr : found;
}

Result<const CallFormat*> CallFormatNamed(std::string_view name) {
  for (const CallFormat& format : kFormats)
    if (format.name == name) return &format;
  return InvalidArgument("got '" + std::string(name.substr(0, 64)) + "', the formats are " +
                         CallFormatNames());
}

}  // namespace inflight::answer_parts
