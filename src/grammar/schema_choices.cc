// SPDX-License-Identifier: Apache-2.0
// anyOf and oneOf: a value of one of several schemas. oneOf is taken where no value is of two.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/status_macros.h"
#include "grammar/schema_translator.h"

namespace inflight::grammar {
namespace {

constexpr size_t kMaxOneOf = 256;          // branches, each of which is compared with each
constexpr size_t kComparisonsPerStep = 8;  // of names

}  // namespace

// As far as they can be read, sorted.
Result<const std::vector<std::string>*> SchemaTranslator::RequiredNames(const Schema& schema) {
  const auto [at, is_new] = required_.try_emplace(&schema);
  std::vector<std::string>& names = at->second;
  const auto& required = schema[Keyword::kRequired];
  if (!is_new || !required || required->kind() != json::Value::Kind::kArray) return &names;
  if (!budget_.Spend(1 + required->text_bytes() / kTextBytesPerStep)) return OutOfSteps();
  (void)required->ForEachElement([&](const json::Value& name) {
    if (auto text = name.AsString(); text.ok()) names.push_back(*std::move(text));
    return Status::Ok();
  });
  std::ranges::sort(names);
  return &names;
}

// Names that both require.
Result<std::vector<std::string_view>> SchemaTranslator::CommonNames(const Conjunction& a,
                                                                    const Conjunction& b) {
  std::vector<std::string_view> common;
  for (const Conjunct& one : a) {
    ASSIGN_OR_RETURN(const std::vector<std::string>* names_a, RequiredNames(*one.schema));
    for (const Conjunct& other : b) {
      ASSIGN_OR_RETURN(const std::vector<std::string>* names_b, RequiredNames(*other.schema));
      if (!budget_.Spend(1 + (names_a->size() + names_b->size()) / kComparisonsPerStep))
        return OutOfSteps();
      std::ranges::set_intersection(*names_a, *names_b, std::back_inserter(common));
    }
  }
  std::ranges::sort(common);
  const auto rest = std::ranges::unique(common);
  common.erase(rest.begin(), rest.end());
  return common;
}

Result<std::optional<NodeId>> SchemaTranslator::Distributed(const Conjunction& all, MakeNode make) {
  for (size_t i = 0; i < all.size(); ++i) {
    const Schema& schema = *all[i].schema;
    for (const auto& [keyword, bit] : {std::pair(Keyword::kAnyOf, Conjunct::kWithoutAnyOf),
                                       std::pair(Keyword::kOneOf, Conjunct::kWithoutOneOf)}) {
      if (!schema[keyword] || (all[i].without & bit) != 0) continue;
      ASSIGN_OR_RETURN(const auto branches, document_.AllOf(schema, keyword));
      if (branches.empty()) return SchemaError(schema, keyword, "must have one schema at least");
      Conjunction rest = all;
      rest[i].without |= bit;
      if (keyword == Keyword::kOneOf) {
        RETURN_IF_ERROR(CheckOneOf(rest, schema, branches));
      }
      std::vector<NodeId> choices;
      for (const Schema* branch : branches) {
        Conjunction chosen = rest;
        chosen.push_back({branch});
        ASSIGN_OR_RETURN(choices.emplace_back(), (this->*make)(chosen));
      }
      return std::optional(grammar_.Choice(choices));
    }
  }
  return std::optional<NodeId>();
}

Status SchemaTranslator::CheckOneOf(const Conjunction& all, const Schema& schema,
                                    const std::vector<const Schema*>& branches) {
  if (branches.size() > kMaxOneOf) {
    return SchemaError(schema, Keyword::kOneOf,
                       fmt::format("has {} schemas, at most {} are supported (write anyOf)",
                                   branches.size(), kMaxOneOf));
  }
  std::vector<Conjunction> whole;
  for (const Schema* branch : branches) {
    Conjunction chosen = all;
    chosen.push_back({branch});
    ASSIGN_OR_RETURN(whole.emplace_back(), document_.Flattened(chosen));
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    for (size_t j = i + 1; j < whole.size(); ++j) {
      ASSIGN_OR_RETURN(const bool are_disjoint, AreDisjoint(whole[i], whole[j]));
      if (are_disjoint) continue;
      return SchemaError(
          schema, Keyword::kOneOf,
          fmt::format("schemas {} and {} may both be valid; supported are schemas of "
                      "different types, constants, or values of a required property "
                      "(write anyOf)",
                      i, j));
    }
  }
  return Status::Ok();
}

// Whether no value is valid for both, by their types and the values that are listed.
Result<bool> SchemaTranslator::DifferInValues(const Conjunction& a, const Conjunction& b) {
  if (!budget_.Spend(16 * (a.size() + b.size()))) return OutOfSteps();
  ASSIGN_OR_RETURN(const Types types_a, SaidTypes(a));
  ASSIGN_OR_RETURN(const Types types_b, SaidTypes(b));
  if ((types_a & types_b) == 0) return true;
  ASSIGN_OR_RETURN(const auto values_a, AllowedValues(a));
  ASSIGN_OR_RETURN(const auto values_b, AllowedValues(b));
  if (!values_a || !values_b) return false;
  std::vector<std::string> texts;
  for (const json::Value& value : *values_a) texts.push_back(ComparableText(value));
  std::ranges::sort(texts);
  return std::ranges::none_of(*values_b, [&](const json::Value& value) {
    return std::ranges::binary_search(texts, ComparableText(value));
  });
}

// The same, and by the values of a property that both require.
Result<bool> SchemaTranslator::AreDisjoint(const Conjunction& a, const Conjunction& b) {
  ASSIGN_OR_RETURN(const bool differ, DifferInValues(a, b));
  if (differ) return true;
  ASSIGN_OR_RETURN(const Types types_a, SaidTypes(a));
  ASSIGN_OR_RETURN(const Types types_b, SaidTypes(b));
  if ((types_a & types_b) != kObjects) return false;
  ASSIGN_OR_RETURN(const std::vector<std::string_view> names, CommonNames(a, b));
  for (const std::string_view name : names) {
    Conjunction property_a;
    Conjunction property_b;
    for (const auto& [all, property] : {std::pair(&a, &property_a), std::pair(&b, &property_b)}) {
      for (const Conjunct& one : *all) {
        const auto& properties = (*one.schema)[Keyword::kProperties];
        if (!properties || properties->kind() != json::Value::Kind::kObject) continue;
        ASSIGN_OR_RETURN(const auto value, document_.ChildOf(*properties, name));
        if (!value) continue;
        ASSIGN_OR_RETURN(const Schema* schema,
                         document_.At(*value, fmt::format("{}/properties/{}", one.schema->pointer,
                                                          EscapedForPointer(name))));
        property->push_back({schema});
      }
    }
    ASSIGN_OR_RETURN(property_a, document_.Flattened(property_a));
    ASSIGN_OR_RETURN(property_b, document_.Flattened(property_b));
    ASSIGN_OR_RETURN(const bool property_differs, DifferInValues(property_a, property_b));
    if (property_differs) return true;
  }
  return false;
}

}  // namespace inflight::grammar
