// SPDX-License-Identifier: Apache-2.0
// Strings: minLength, maxLength, pattern, format. Where more than one of them holds, the automata
// of each are one, of the texts of all.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "grammar/dfa_product.h"
#include "grammar/regex_parser.h"
#include "grammar/rule_nfa.h"
#include "grammar/schema_translator.h"
#include "grammar/string_formats.h"

namespace inflight::grammar {

Result<Dfa> SchemaTranslator::DfaOf(Grammar& grammar, NodeId body) {
  const RuleId rule = grammar.AddRule("contents of strings", body);
  ASSIGN_OR_RETURN(const Nfa nfa, MakeNfa(grammar, rule, budget_));
  return Determinize(nfa, budget_);
}

Result<Dfa> SchemaTranslator::ContentsOfPattern(std::string_view pattern, bool is_search,
                                                const ValueStyle& style) {
  Grammar grammar;
  JsonText json(grammar, style);
  const RegexSyntax syntax = {
      .is_search = is_search,
      .chars = [&](const CharSet& set) { return json.PlainChar(set); },
  };
  ASSIGN_OR_RETURN(const NodeId body, ParseRegex(pattern, syntax, grammar));
  return DfaOf(grammar, body);
}

Result<Dfa> SchemaTranslator::ContentsOfLength(uint32_t min, uint32_t max,
                                               const ValueStyle& style) {
  Grammar grammar;
  JsonText json(grammar, style);
  return DfaOf(grammar, grammar.Repeat(json.PlainChar(CharSet::Any()), min, max));
}

// Unset: there is no keyword about them.
Result<std::optional<Dfa>> SchemaTranslator::StringContents(const Conjunction& all,
                                                            const ValueStyle& style) {
  std::optional<Dfa> contents;
  const auto add = [&](Dfa other) {
    if (!contents) {
      contents = std::move(other);
      return Status::Ok();
    }
    ASSIGN_OR_RETURN(contents, Intersect(*contents, other, budget_));
    return Status::Ok();
  };
  for (const Conjunct& one : all) {
    const Schema& schema = *one.schema;
    for (const Keyword keyword : {Keyword::kPattern, Keyword::kFormat}) {
      if (!schema[keyword]) continue;
      const auto text = schema[keyword]->AsString();
      if (!text.ok()) return SchemaError(schema, keyword, "must be a string");
      const bool is_format = keyword == Keyword::kFormat;
      const std::string pattern = is_format ? PatternOfFormat(*text) : *text;
      if (is_format && pattern.empty()) {
        return SchemaError(
            schema, keyword,
            fmt::format("{} is not supported; supported are {}", *text, FormatNames()));
      }
      auto matching = ContentsOfPattern(pattern, /*is_search=*/!is_format, style);
      if (!matching.ok()) {
        return matching.status().WithPrefix(
            fmt::format("schema: at {}: {}", schema.pointer, NameOf(keyword)));
      }
      RETURN_IF_ERROR(add(*std::move(matching)));
    }
  }
  ASSIGN_OR_RETURN(const auto min, Largest(all, Keyword::kMinLength));
  ASSIGN_OR_RETURN(const auto max, Smallest(all, Keyword::kMaxLength));
  if (min || max) {
    ASSIGN_OR_RETURN(Dfa lengths,
                     ContentsOfLength(std::min(min.value_or(0), max.value_or(kUnlimited)),
                                      max.value_or(kUnlimited), style));
    if (min && max && *min > *max) lengths = Dfa{.states = {{0, 0, false}, {0, 0, false}}};
    RETURN_IF_ERROR(add(std::move(lengths)));
  }
  if (style.never.empty() || (!contents && !style.is_raw)) return contents;
  if (!contents) {
    ASSIGN_OR_RETURN(contents, ContentsOfLength(0, kUnlimited, style));
  }
  RETURN_IF_ERROR(add(DfaWithout(style.never)));
  return contents;
}

Result<NodeId> SchemaTranslator::StringNode(const Conjunction& all) {
  ASSIGN_OR_RETURN(std::optional<Dfa> contents, StringContents(all, style_.values));
  if (!contents) return json_.String();
  const RuleId rule = grammar_.AddRule(fmt::format("of strings at {}", all[0].schema->pointer),
                                       std::make_shared<const Dfa>(*std::move(contents)));
  return json_.QuotedRule(rule);
}

}  // namespace inflight::grammar
