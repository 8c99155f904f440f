// SPDX-License-Identifier: Apache-2.0
// JSON schemas -> grammars of the JSON that is valid (docs/reference/structured-output.md, "JSON
// schemas"). A file for each type of values: schema_objects.cc, schema_arrays.cc,
// schema_strings.cc, schema_numbers.cc; enum and const are in schema_values.cc, anyOf and oneOf in
// schema_choices.cc. Arguments of calls may stand in another style than JSON's:
// schema_arguments.cc.
//
// Each place of a value has a conjunction of schemas that hold there, and each conjunction a rule,
// so that schemas which refer to themselves are rules that call themselves. All that is written is
// valid; what is valid and not written is said where it is left out.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/argument_style.h"
#include "grammar/budget.h"
#include "grammar/grammar.h"
#include "grammar/json_text.h"
#include "grammar/rule_dfa.h"
#include "grammar/schema_document.h"
#include "grammar/schema_keywords.h"

namespace inflight::grammar {

class SchemaTranslator {
 public:
  SchemaTranslator(json::Value root, Grammar& grammar, Budget& budget, ArgumentStyle style = {})
      : grammar_(grammar),
        budget_(budget),
        style_(std::move(style)),
        json_(grammar, style_.values),
        document_(root, budget) {}

  Result<NodeId> Translate();

 private:
  struct Pending {
    RuleId rule;
    Conjunction all;  // flattened
  };
  // Of an object: what its members are held to.
  struct ObjectSchema;
  struct KeyPattern;

  // A call of the conjunction's rule, whose body is made later.
  Result<NodeId> NodeOf(const Conjunction& all);
  Result<NodeId> BodyOf(const Conjunction& all);

  // schema_arguments.cc
  Status SetContents();
  Result<NodeId> Arguments(const Schema& root);
  Result<NodeId> RawText(const Conjunction& all);

  // schema_choices.cc. The alternatives of the first anyOf or oneOf that is not dealt with, each
  // made by `make`.
  using MakeNode = Result<NodeId> (SchemaTranslator::*)(const Conjunction& all);
  Result<std::optional<NodeId>> Distributed(const Conjunction& all, MakeNode make);
  Status CheckOneOf(const Conjunction& all, const Schema& schema,
                    const std::vector<const Schema*>& branches);
  Result<const std::vector<std::string>*> RequiredNames(const Schema& schema);
  Result<std::vector<std::string_view>> CommonNames(const Conjunction& a, const Conjunction& b);
  Result<bool> AreDisjoint(const Conjunction& a, const Conjunction& b);
  Result<bool> DifferInValues(const Conjunction& a, const Conjunction& b);
  Result<Types> SaidTypes(const Conjunction& all);     // those of `type`
  Result<Types> AllowedTypes(const Conjunction& all);  // these, or those that keywords are about

  // schema_values.cc
  Result<std::optional<std::vector<json::Value>>> AllowedValues(const Conjunction& all);
  Result<NodeId> ChoiceOfValues(const Conjunction& all, Types types,
                                const std::vector<json::Value>& values);
  Result<NodeId> NodeOfValue(const json::Value& value, int depth);

  // schema_objects.cc
  Result<NodeId> ObjectNode(const Conjunction& all);
  Result<ObjectSchema> ReadObject(const Conjunction& all);
  // `layout` of members that stand by themselves; null: they stand in an object.
  using Layout = const ArgumentStyle::Members*;
  Result<NodeId> MembersNode(const Conjunction& all, Layout layout);
  Result<NodeId> NodeOfMember(const ObjectSchema& object, const std::string& name, Layout layout);
  Result<std::vector<NodeId>> OtherMembers(const ObjectSchema& object,
                                           const std::optional<Dfa>& allowed_names, Layout layout);
  Result<NodeId> KeyNode(const ObjectSchema& object, const KeyPattern* pattern,
                         const std::optional<Dfa>& allowed_names, Layout layout);
  NodeId Member(NodeId name, NodeId value, Layout layout);
  Result<Dfa> KeysOf(const std::vector<const Schema*>& of_names);

  // schema_arrays.cc
  Result<NodeId> ArrayNode(const Conjunction& all);

  // schema_strings.cc. The contents of strings, in the spelling of JsonText::PlainChar.
  Result<NodeId> StringNode(const Conjunction& all);
  Result<std::optional<Dfa>> StringContents(const Conjunction& all, const ValueStyle& style);
  Result<Dfa> ContentsOfPattern(std::string_view pattern, bool is_search, const ValueStyle& style);
  Result<Dfa> ContentsOfLength(uint32_t min, uint32_t max, const ValueStyle& style);
  Result<Dfa> DfaOf(Grammar& grammar, NodeId body);

  // schema_numbers.cc
  Result<NodeId> NumberNode(const Conjunction& all, bool are_integers);
  Result<std::optional<Dfa>> Numbers(const Conjunction& all, bool are_integers);

  // The largest of a keyword's counts, or the smallest; unset where no schema has it.
  Result<std::optional<uint32_t>> Largest(const Conjunction& all, Keyword keyword);
  Result<std::optional<uint32_t>> Smallest(const Conjunction& all, Keyword keyword);

  Grammar& grammar_;
  Budget& budget_;
  const ArgumentStyle style_;
  JsonText json_;
  SchemaDocument document_;
  std::map<Conjunction, RuleId> rules_;  // by sorted conjunctions
  std::deque<Pending> pending_;
  std::map<const Schema*, std::vector<std::string>> required_;  // that were asked for
  int num_open_texts_ = 0;  // calls of RawText within each other
};

// Of equal values equal.
std::string ComparableText(const json::Value& value);

}  // namespace inflight::grammar
