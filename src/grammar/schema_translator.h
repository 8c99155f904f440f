// SPDX-License-Identifier: Apache-2.0
// JSON schemas -> grammars of the JSON that is valid (docs/reference/structured-output.md, "JSON
// schemas"). A file for each type of values: schema_objects.cc, schema_arrays.cc,
// schema_strings.cc, schema_numbers.cc; enum and const are in schema_values.cc, anyOf and oneOf in
// schema_choices.cc.
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

#include "grammar/budget.h"
#include "grammar/grammar.h"
#include "grammar/json_text.h"
#include "grammar/rule_dfa.h"
#include "grammar/schema_document.h"
#include "grammar/schema_keywords.h"

namespace inflight::grammar {

class SchemaTranslator {
 public:
  SchemaTranslator(json::Value root, Grammar& grammar, Budget& budget)
      : grammar_(grammar), budget_(budget), json_(grammar), document_(root, budget) {}

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

  // schema_choices.cc. The alternatives of the first anyOf or oneOf that is not dealt with.
  Result<std::optional<NodeId>> Distributed(const Conjunction& all);
  Status CheckOneOf(const Conjunction& all, const Schema& schema,
                    const std::vector<const Schema*>& branches);
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
  Result<NodeId> NodeOfMember(const ObjectSchema& object, const std::string& name);
  Result<std::vector<NodeId>> OtherMembers(const ObjectSchema& object,
                                           const std::optional<Dfa>& allowed_names);
  Result<NodeId> KeyNode(const ObjectSchema& object, const KeyPattern* pattern,
                         const std::optional<Dfa>& allowed_names);
  Result<Dfa> KeysOf(const std::vector<const Schema*>& of_names);

  // schema_arrays.cc
  Result<NodeId> ArrayNode(const Conjunction& all);

  // schema_strings.cc. The contents of strings, in the spelling of JsonText::PlainChar.
  Result<NodeId> StringNode(const Conjunction& all);
  Result<std::optional<Dfa>> StringContents(const Conjunction& all);
  Result<Dfa> ContentsOfPattern(std::string_view pattern, bool is_search);
  Result<Dfa> ContentsOfLength(uint32_t min, uint32_t max);
  Result<Dfa> DfaOf(Grammar& grammar, NodeId body);

  // schema_numbers.cc
  Result<NodeId> NumberNode(const Conjunction& all, bool are_integers);
  Result<std::optional<Dfa>> Numbers(const Conjunction& all, bool are_integers);

  // The largest of a keyword's counts, or the smallest; unset where no schema has it.
  Result<std::optional<uint32_t>> Largest(const Conjunction& all, Keyword keyword);
  Result<std::optional<uint32_t>> Smallest(const Conjunction& all, Keyword keyword);

  Grammar& grammar_;
  Budget& budget_;
  JsonText json_;
  SchemaDocument document_;
  std::map<Conjunction, RuleId> rules_;  // by sorted conjunctions
  std::deque<Pending> pending_;
};

// Of equal values equal.
std::string ComparableText(const json::Value& value);

// The content of a string as it stands between its quotes.
std::string PlainContent(std::string_view text);

}  // namespace inflight::grammar
