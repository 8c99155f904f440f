// SPDX-License-Identifier: Apache-2.0
#include "inflight/guide.h"

#include <fmt/format.h>

#include <utility>

#include "base/status_macros.h"
#include "grammar/automaton.h"
#include "grammar/budget.h"
#include "grammar/compiled_guide.h"
#include "grammar/json_text.h"
#include "grammar/regex_parser.h"
#include "grammar/rule_dfa.h"
#include "grammar/translate.h"

namespace inflight {
namespace grammar {

Result<NodeId> TranslateRegex(std::string_view text, Grammar& grammar) {
  const auto parsed = ParseRegex(text, {}, grammar);
  if (!parsed.ok()) return parsed.status().WithPrefix("regex");
  return *parsed;
}

namespace {

// Of `begins_after`, a tag.
constexpr size_t kMaxTagBytes = 1024;

Result<NodeId> Translate(const GuideSpec& spec, Grammar& grammar, Budget& budget) {
  switch (spec.kind) {
    case GuideSpec::Kind::kRegex:
      return TranslateRegex(spec.text, grammar);
    case GuideSpec::Kind::kChoice:
      return TranslateChoice(spec.text, grammar);
    case GuideSpec::Kind::kGrammar:
      return TranslateGbnf(spec.text, grammar);
    case GuideSpec::Kind::kJson:
      return JsonText(grammar).Object();
    case GuideSpec::Kind::kJsonSchema: {
      const auto schema = json::Value::Parse(spec.text);
      if (!schema.ok()) return InvalidArgument("schema", schema.status().message());
      return TranslateSchema(*schema, grammar, budget);
    }
    case GuideSpec::Kind::kTagged:
      return TranslateTagged(spec.text, grammar, budget);
  }
  return Internal("guide: of no kind");
}

Status CheckText(const GuideSpec& spec) {
  if (spec.text.size() > kMaxGuideBytes) {
    return ResourceExhausted(fmt::format("guide: has {} bytes, at most {} are allowed (shorten it)",
                                         spec.text.size(), kMaxGuideBytes));
  }
  if (spec.begins_after.size() > kMaxTagBytes) {
    return InvalidArgument("begins_after",
                           fmt::format("has {} bytes, at most {} are allowed (shorten it)",
                                       spec.begins_after.size(), kMaxTagBytes));
  }
  if (!IsUtf8(spec.text) || !IsUtf8(spec.begins_after)) {
    return InvalidArgument("guide", "its text is no UTF-8");
  }
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<const Guide>> CompileGuide(const GuideSpec& spec,
                                                  std::shared_ptr<const TokenTexts> tokens,
                                                  Budget budget) {
  RETURN_IF_ERROR(CheckText(spec));
  Grammar grammar;
  ASSIGN_OR_RETURN(const NodeId body, Translate(spec, grammar, budget));
  grammar.root = grammar.AddRule("the guide", body);
  if (!spec.begins_after.empty()) {
    const NodeId before = grammar.Call(grammar.AddRule(
        "the text before the guide", std::make_shared<const Dfa>(DfaUpTo(spec.begins_after))));
    const NodeId guided = grammar.Call(grammar.root);
    grammar.root = grammar.AddRule("the text", grammar.Sequence({before, guided}));
  }
  ASSIGN_OR_RETURN(Automaton automaton, CompileAutomaton(grammar, budget));
  return std::shared_ptr<const Guide>(
      std::make_shared<CompiledGuide>(std::move(automaton), std::move(tokens)));
}

}  // namespace grammar

Result<std::shared_ptr<const Guide>> MakeGuide(const GuideSpec& spec,
                                               std::shared_ptr<const TokenTexts> tokens) {
  return grammar::CompileGuide(spec, std::move(tokens), grammar::Budget());
}

}  // namespace inflight
