// SPDX-License-Identifier: Apache-2.0
#include "parameters_page.h"

#include <fmt/format.h>

#include "parameters/parameters.h"

namespace inflight::tool {
namespace {

using parameters::Parameter;
using parameters::Type;

std::string_view DataType(const Parameter& parameter) {
  if (parameter.is_switch) return "BOOL";
  switch (parameters::TypeOf(parameter)) {
    case Type::kFloat:
      return "FP32";
    case Type::kInteger:
      return "INT32";
    case Type::kUnsigned64:
      return "UINT64";
    case Type::kBool:
      return "BOOL";
  }
  return "";
}

bool IsNumber(const Parameter& parameter) {
  const Type type = parameters::TypeOf(parameter);
  return type == Type::kFloat || type == Type::kInteger;
}

std::string Values(const Parameter& parameter) {
  if (parameter.is_switch) return "true, false, or an INT32";
  if (!IsNumber(parameter)) {
    return parameters::TypeOf(parameter) == Type::kBool ? "true, false" : "any";
  }
  const bool is_integer = parameters::TypeOf(parameter) == Type::kInteger;
  std::string values = ToText(parameters::DomainAtTheDoor(parameter), is_integer);
  if (parameter.zero == parameters::Zero::kNotSent) values += "; 0 is as if not sent";
  if (parameter.zero == parameters::Zero::kNotSentAndNegative) {
    values += "; 0 and below are as if not sent";
  }
  return values;
}

std::string Release(int release) {
  return release == parameters::kOurs ? "ours" : fmt::format("0.{}", release);
}

std::string LlmNames(const Parameter& parameter) {
  std::string names = fmt::format("`{}`", parameter.llm_name);
  if (!parameter.other_llm_name.empty()) names += fmt::format(", `{}`", parameter.other_llm_name);
  return names;
}

}  // namespace

std::string ParametersPage() {
  std::string page =
      "# Parameters of a request\n\n"
      "Made by `inflight parameters` from the table that they are parsed and judged by\n"
      "(`src/parameters/parameters.cc`); do not edit.\n\n"
      "How tokens are chosen and what an answer holds. The first column is the input of "
      "`ensemble`, "
      "of `tensorrt_llm_bls`\n"
      "and of `generate`, and the key of a line of `inflight run --input`; the second that of "
      "`tensorrt_llm`, with its other\n"
      "spellings. *Since* is the first release of upstream that has it, at the text models and at "
      "`tensorrt_llm`; what is ours\n"
      "no release declares. Prompts, lengths, ends and word lists are in "
      "[requests.md](requests.md), the order in which the\n"
      "rules act in [decoding.md](decoding.md).\n\n"
      "| text models | `tensorrt_llm` | type | values | not sent | since | what it does |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const Parameter& parameter : parameters::All()) {
    const std::string text_release = Release(parameter.text_release);
    const std::string llm_release = Release(parameter.llm_release);
    const std::string since = text_release == llm_release ? "" : fmt::format("{}; ", text_release);
    page += fmt::format("| `{}` | {} | {} | {} | {} | {}{} | {} |\n", parameter.text_name,
                        LlmNames(parameter), DataType(parameter), Values(parameter),
                        parameter.unsent, since, llm_release, parameter.meaning);
  }
  page +=
      "\nA value outside its bounds ends the request with INVALID_ARGUMENT: `top_k: got -1, must "
      "be "
      "at least 0`, by the\n"
      "name that the client sent.\n";
  return page;
}

}  // namespace inflight::tool
