// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/call_formats.h"

#include <algorithm>
#include <set>
#include <string>

namespace inflight::answer_parts {
namespace {

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
    {.name = "hermes",
     .template_has = {"<tool_call>", "arguments"},
     .markers = {"<tool_call>", "</tool_call>"},
     .make = MakeHermesReader},
    {.name = "list",
     .template_has = {"<|tool_call|>"},
     .markers = {"<|tool_call|>", "<|/tool_call|>"},
     .make = MakeListReader},
    {.name = "list", .template_has = {"functools["}, .markers = {}, .make = MakeListReader},
    {.name = "pythonic",
     .template_has = {"[func_name1(params_name1="},
     .markers = {"<|python_start|>", "<|python_end|>", "<|python_tag|>"},
     .make = MakePythonicReader},
    {.name = "llama",
     .template_has = {"\"name\": ", "\"parameters\": "},
     .markers = {"<|python_tag|>"},
     .make = MakeLlamaReader},
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
