// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/call_formats.h"

#include <algorithm>
#include <set>
#include <string>

namespace inflight::answer_parts {
namespace {

// Of formats with several rows, which are one for whoever names it.
constexpr std::array<std::string_view, 7> kGemmaTexts = {
    "<|tool_call>",          "<tool_call|>",        "<|\"|>",
    "<start_function_call>", "<end_function_call>", "<escape>"};
constexpr std::array<std::string_view, 7> kListTexts = {"<|tool_call|>", "<|/tool_call|>"};

// The first whose texts a template has is that of the model.
constexpr CallFormat kFormats[] = {
    {.name = "mistral",
     .template_has = {"[TOOL_CALLS]"},
     .markers = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
     .make = MakeMistralReader,
     .short_ids = true},
    {.name = "deepseek",
     .template_has = {"<｜tool▁calls▁begin｜>"},
     .markers = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
                 "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"},
     .make = MakeDeepSeekReader},
    {.name = "harmony",
     .template_has = {"<|channel|>", "functions."},
     .markers = {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>",
                 "<|return|>"},
     .make = MakeHarmonyReader,
     .has_channels = true},
    {.name = "gemma",
     .template_has = {"<|tool_call>call:"},
     .markers = kGemmaTexts,
     .make = MakeGemmaReader},
    {.name = "gemma",
     .template_has = {"<start_function_call>"},
     .markers = kGemmaTexts,
     .make = MakeGemmaReader},
    {.name = "qwen_coder",
     .template_has = {"<function=", "<parameter="},
     .markers = {"<tool_call>", "</tool_call>"},
     .make = MakeQwenCoderReader},
    {.name = "hermes",
     .template_has = {"<tool_call>", "arguments"},
     .markers = {"<tool_call>", "</tool_call>"},
     .make = MakeHermesReader,
     .written = {.before_name = "<tool_call>\n{\"name\": \"",
                 .behind_name = "\", \"arguments\": ",
                 .behind_arguments = "}\n</tool_call>",
                 .between = "\n"}},
    {.name = "list",
     .template_has = {"<|tool_call|>"},
     .markers = kListTexts,
     .make = MakeListReader},
    {.name = "list", .template_has = {"functools["}, .markers = kListTexts, .make = MakeListReader},
    {.name = "pythonic",
     .template_has = {"[func_name1(params_name1="},
     .markers = {"<|python_start|>", "<|python_end|>", "<|python_tag|>"},
     .make = MakePythonicReader},
    {.name = "llama",
     .template_has = {"\"name\": ", "\"parameters\": "},
     .markers = {"<|python_tag|>"},
     .make = MakeLlamaReader,
     .written = {.before_name = "{\"name\": \"",
                 .behind_name = "\", \"parameters\": ",
                 .behind_arguments = "}",
                 .between = "; "}},
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
