// SPDX-License-Identifier: Apache-2.0
#include "grammar/argument_style.h"

#include <fmt/format.h>

namespace inflight::grammar {

bool ArgumentStyle::Members::MayName(std::string_view name) const {
  if (have_bare_names) return IsBareName(name);
  return !name.empty() && name.find_first_of(">\n\r\t") == std::string::npos &&
         name.front() != ' ' && name.back() != ' ' && name.size() < 512;
}

Result<ArgumentStyle> ArgumentStyleNamed(std::string_view name) {
  const auto marked = [](const std::string& mark) {
    return ArgumentStyle{.values = {.quote = mark,
                                    .never = mark,
                                    .is_raw = true,
                                    .has_bare_names = true,
                                    .has_blanks = false}};
  };
  if (name == "json") return ArgumentStyle();
  if (name == "python") {
    return ArgumentStyle{.values = {.is_python = true},
                         .members = ArgumentStyle::Members{.before_name = "",
                                                           .behind_name = "=",
                                                           .behind_value = "",
                                                           .between = ", ",
                                                           .have_bare_names = true}};
  }
  if (name == "gemma") return marked("<|\"|>");
  if (name == "function_gemma") return marked("<escape>");
  if (name == "parameters") {
    return ArgumentStyle{.values = {.never = "</parameter>"},
                         .members = ArgumentStyle::Members{.before_name = "<parameter=",
                                                           .behind_name = ">\n",
                                                           .behind_value = "\n</parameter>\n",
                                                           .between = ""}};
  }
  return InvalidArgument(fmt::format(
      "got {}, must be json, python, gemma, function_gemma or parameters", name.substr(0, 64)));
}

}  // namespace inflight::grammar
