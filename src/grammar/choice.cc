// SPDX-License-Identifier: Apache-2.0
// One of several texts.
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "grammar/translate.h"
#include "json/json_reader.h"

namespace inflight::grammar {

Result<NodeId> TranslateChoice(std::string_view text, Grammar& grammar) {
  constexpr std::string_view kForm = "must be a JSON array of the texts to choose from";
  const auto parsed = json::Value::Parse(text);
  if (!parsed.ok()) return InvalidArgument("choice", parsed.status().message());
  if (parsed->kind() != json::Value::Kind::kArray) return InvalidArgument("choice", kForm);
  std::vector<NodeId> choices;
  RETURN_IF_ERROR(parsed->ForEachElement([&](const json::Value& element) {
    if (element.kind() != json::Value::Kind::kString) return InvalidArgument("choice", kForm);
    ASSIGN_OR_RETURN(const std::string choice, element.AsString());
    choices.push_back(grammar.Bytes(choice));
    return Status::Ok();
  }));
  if (choices.empty()) return InvalidArgument("choice", "got no text to choose; give one at least");
  return grammar.Choice(choices);
}

}  // namespace inflight::grammar
