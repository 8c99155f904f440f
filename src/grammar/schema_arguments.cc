// SPDX-License-Identifier: Apache-2.0
// The arguments of a call that are no object of JSON: members by themselves, and texts without
// quotes.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/status_macros.h"
#include "grammar/dfa_product.h"
#include "grammar/schema_translator.h"

namespace inflight::grammar {

// Strings of a style that has a text which ends them.
Status SchemaTranslator::SetContents() {
  if (style_.values.never.empty()) return Status::Ok();
  Grammar grammar;
  JsonText json(grammar, style_.values);
  ASSIGN_OR_RETURN(const Dfa all, DfaOf(grammar, grammar.Repeat(json.StringChar(), 0, kUnlimited)));
  ASSIGN_OR_RETURN(Dfa contents, Intersect(all, DfaWithout(style_.values.never), budget_));
  json_.SetContents(std::make_shared<const Dfa>(std::move(contents)));
  return Status::Ok();
}

Result<NodeId> SchemaTranslator::Arguments(const Schema& root) {
  ASSIGN_OR_RETURN(const Conjunction all, document_.Flattened({{&root}}));
  for (const Conjunct& one : all) {
    if (one.schema->is_always == false) return grammar_.Never();
    for (const Keyword keyword :
         {Keyword::kAnyOf, Keyword::kOneOf, Keyword::kEnum, Keyword::kConst}) {
      if (!(*one.schema)[keyword]) continue;
      return SchemaError(*one.schema, keyword,
                         "is not supported for all arguments at once where calls are not written "
                         "as JSON; say it of single ones");
    }
  }
  ASSIGN_OR_RETURN(const Types types, SaidTypes(all));
  if ((types & kObjects) == 0) return grammar_.Never();
  return MembersNode(all, &*style_.members);
}

// A string as it stands, where the schema allows one. Recurses from choice to choice, to a bound.
Result<NodeId> SchemaTranslator::RawText(const Conjunction& all) {
  ASSIGN_OR_RETURN(const Conjunction flat, document_.Flattened(all));
  for (const Conjunct& one : flat) {
    if (one.schema->is_always == false) return grammar_.Never();
  }
  if (!budget_.Spend(1 + flat.size())) return OutOfSteps();
  if (num_open_texts_ == kMaxNesting) {
    return InvalidArgument(
        fmt::format("schema: at {}: anyOf and oneOf of a text lead through more than {} others",
                    flat[0].schema->pointer, kMaxNesting));
  }
  ++num_open_texts_;  // an error ends the translation
  ASSIGN_OR_RETURN(const auto distributed, Distributed(flat, &SchemaTranslator::RawText));
  --num_open_texts_;
  if (distributed) return *distributed;
  ASSIGN_OR_RETURN(const Types types, AllowedTypes(flat));
  if ((types & kStrings) == 0) return grammar_.Never();
  const ValueStyle raw = {.quote = "", .never = style_.values.never, .is_raw = true};
  ASSIGN_OR_RETURN(std::optional<Dfa> contents, StringContents(flat, raw));
  ASSIGN_OR_RETURN(const auto values, AllowedValues(flat));
  if (values) {
    std::vector<NodeId> texts;
    for (const json::Value& value : *values) {
      if (value.kind() != json::Value::Kind::kString) continue;
      const std::string text = *value.AsString();
      if (!contents || Matches(*contents, text)) texts.push_back(grammar_.Bytes(text));
    }
    return grammar_.Choice(texts);
  }
  if (!contents) return grammar_.Repeat(grammar_.Chars(CharSet::Any()), 0, kUnlimited);
  return grammar_.Call(grammar_.AddRule(fmt::format("of texts at {}", flat[0].schema->pointer),
                                        std::make_shared<const Dfa>(*std::move(contents))));
}

}  // namespace inflight::grammar
