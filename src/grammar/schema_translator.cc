// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_translator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "grammar/translate.h"

namespace inflight::grammar {
namespace {

// Of a schema in a conjunction, which is kept twice: it bounds their memory.
constexpr uint64_t kStepsPerConjunct = 16;
// Of characters or items: no answer has so many, and a bound of as many asks for nothing.
constexpr uint32_t kBeyondAnswers = uint32_t{1} << 30;

// A count of characters or items: a number without a fraction, not below zero.
Result<uint32_t> CountOf(const Schema& schema, Keyword keyword) {
  const auto value = schema[keyword]->AsDouble();
  if (!value.ok() || !(*value >= 0) || !std::isfinite(*value) || *value != std::floor(*value)) {
    return SchemaError(schema, keyword, "must be an integer, 0 or more");
  }
  return static_cast<uint32_t>(std::min<double>(*value, kUnlimited - 1));
}

}  // namespace

Result<NodeId> SchemaTranslator::Translate() {
  RETURN_IF_ERROR(SetContents());
  ASSIGN_OR_RETURN(const Schema* root, document_.Root());
  ASSIGN_OR_RETURN(const NodeId body, style_.members ? Arguments(*root) : NodeOf({{root}}));
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.front());
    pending_.pop_front();
    ASSIGN_OR_RETURN(const NodeId node, BodyOf(next.all));
    grammar_.SetBody(next.rule, node);
  }
  return body;
}

Result<NodeId> SchemaTranslator::NodeOf(const Conjunction& all) {
  ASSIGN_OR_RETURN(Conjunction flat, document_.Flattened(all));
  for (const Conjunct& one : flat) {
    if (one.schema->is_always == false) return grammar_.Never();
  }
  std::erase_if(flat, [](const Conjunct& one) { return one.schema->is_always == true; });
  if (flat.empty()) return json_.Value();
  if (!budget_.Spend(kStepsPerConjunct * (1 + flat.size()))) return OutOfSteps();
  Conjunction key = flat;
  std::ranges::sort(key);
  const auto [place, is_new] = rules_.try_emplace(std::move(key), RuleId{0});
  if (is_new) {
    place->second = grammar_.AddRule(fmt::format("of the schema at {}", flat[0].schema->pointer));
    pending_.push_back({place->second, std::move(flat)});
  }
  return grammar_.Call(place->second);
}

Result<NodeId> SchemaTranslator::BodyOf(const Conjunction& all) {
  ASSIGN_OR_RETURN(const auto distributed, Distributed(all, &SchemaTranslator::NodeOf));
  if (distributed) return *distributed;
  ASSIGN_OR_RETURN(const Types types, AllowedTypes(all));
  ASSIGN_OR_RETURN(const auto values, AllowedValues(all));
  if (values) return ChoiceOfValues(all, types, *values);
  std::vector<NodeId> choices;
  if ((types & kObjects) != 0) {
    ASSIGN_OR_RETURN(choices.emplace_back(), ObjectNode(all));
  }
  if ((types & kArrays) != 0) {
    ASSIGN_OR_RETURN(choices.emplace_back(), ArrayNode(all));
  }
  if ((types & kStrings) != 0) {
    ASSIGN_OR_RETURN(choices.emplace_back(), StringNode(all));
  }
  if ((types & (kNumbers | kIntegers)) != 0) {
    ASSIGN_OR_RETURN(choices.emplace_back(), NumberNode(all, (types & kNumbers) == 0));
  }
  if ((types & kBooleans) != 0) {
    choices.push_back(json_.Literal("true"));
    choices.push_back(json_.Literal("false"));
  }
  if ((types & kNulls) != 0) choices.push_back(json_.Literal("null"));
  return grammar_.Choice(choices);
}

Result<Types> SchemaTranslator::SaidTypes(const Conjunction& all) {
  Types types = kAllTypes;
  for (const Conjunct& one : all) {
    ASSIGN_OR_RETURN(const Types said, TypesOf(*one.schema));
    types &= one.schema->is_always == false ? Types{0} : said;
  }
  return types;
}

// Where no schema says the type, it is that of what the keywords are about: a schema of properties
// means an object.
Result<Types> SchemaTranslator::AllowedTypes(const Conjunction& all) {
  ASSIGN_OR_RETURN(const Types types, SaidTypes(all));
  Types about = 0;
  bool is_said = false;
  for (const Conjunct& one : all) {
    about |= one.schema->types_of_keywords();
    is_said = is_said || (*one.schema)[Keyword::kType] || (*one.schema)[Keyword::kEnum] ||
              (*one.schema)[Keyword::kConst];
  }
  return is_said || about == 0 ? types : about;
}

Result<std::optional<uint32_t>> SchemaTranslator::Largest(const Conjunction& all, Keyword keyword) {
  std::optional<uint32_t> largest;
  for (const Conjunct& one : all) {
    if (!(*one.schema)[keyword]) continue;
    ASSIGN_OR_RETURN(const uint32_t count, CountOf(*one.schema, keyword));
    largest = std::max(largest.value_or(0), count);
  }
  return largest;
}

Result<std::optional<uint32_t>> SchemaTranslator::Smallest(const Conjunction& all,
                                                           Keyword keyword) {
  std::optional<uint32_t> smallest;
  for (const Conjunct& one : all) {
    if (!(*one.schema)[keyword]) continue;
    ASSIGN_OR_RETURN(const uint32_t count, CountOf(*one.schema, keyword));
    if (count < kBeyondAnswers) smallest = std::min(smallest.value_or(count), count);
  }
  return smallest;
}

Result<NodeId> TranslateSchema(const json::Value& schema, Grammar& grammar, Budget& budget,
                               const ArgumentStyle& style) {
  return SchemaTranslator(schema, grammar, budget, style).Translate();
}

}  // namespace inflight::grammar
