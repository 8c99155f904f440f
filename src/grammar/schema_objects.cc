// SPDX-License-Identifier: Apache-2.0
// Objects: properties, required, additionalProperties, patternProperties, propertyNames.
//
// Members are written in the order in which the schema has its properties; those that are required
// and no property follow, then others. Names are written in one spelling, so that those of other
// members are told from the properties' by their text.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "grammar/dfa_product.h"
#include "grammar/schema_translator.h"

namespace inflight::grammar {
namespace {

constexpr size_t kMaxPatternProperties = 16;
// Objects of more optional properties have a rule for each of them: their automaton would have a
// state for each byte of each name behind each of the others.
constexpr size_t kMaxInlineProperties = 32;

}  // namespace

struct SchemaTranslator::KeyPattern {
  const Schema* owner;  // that has it
  const Schema* schema;
  Dfa keys;
};

struct SchemaTranslator::ObjectSchema {
  struct Part {
    const Schema* schema;
    std::map<std::string, const Schema*, std::less<>> properties;
    const Schema* additional = nullptr;  // null: the schema does not say
  };
  std::vector<Part> parts;
  std::vector<std::string> names;  // properties in their order, then others that are required
  std::set<std::string, std::less<>> required;
  std::vector<KeyPattern> patterns;
  std::vector<const Schema*> of_names;
  bool is_open = true;  // other members may come
};

Result<SchemaTranslator::ObjectSchema> SchemaTranslator::ReadObject(const Conjunction& all) {
  ObjectSchema object;
  std::set<std::string, std::less<>> known;
  bool has_properties = false;
  bool says_others = false;
  for (const Conjunct& one : all) {
    const Schema& schema = *one.schema;
    if (std::ranges::find(object.parts, &schema, &ObjectSchema::Part::schema) !=
        object.parts.end()) {
      continue;  // it is there twice, as others deal with different keywords of it
    }
    ObjectSchema::Part& part = object.parts.emplace_back();
    part.schema = &schema;
    if (schema[Keyword::kProperties]) {
      ASSIGN_OR_RETURN(const auto* members, document_.MembersOf(schema, Keyword::kProperties));
      for (const auto& [name, member] : *members) {
        part.properties.try_emplace(name, member);
        if (known.insert(name).second) object.names.push_back(name);
      }
    }
    if (schema[Keyword::kPatternProperties]) {
      ASSIGN_OR_RETURN(const auto* members,
                       document_.MembersOf(schema, Keyword::kPatternProperties));
      for (const auto& [pattern, member] : *members) {
        if (object.patterns.size() == kMaxPatternProperties) {
          return SchemaError(schema, Keyword::kPatternProperties,
                             fmt::format("more than {} are not supported", kMaxPatternProperties));
        }
        auto keys = ContentsOfPattern(pattern, /*is_search=*/true, style_.values);
        if (!keys.ok())
          return keys.status().WithPrefix(fmt::format("schema: at {}", member->pointer));
        object.patterns.push_back({&schema, member, *std::move(keys)});
      }
    }
    if (const auto& additional = schema[Keyword::kAdditionalProperties]) {
      ASSIGN_OR_RETURN(part.additional,
                       document_.At(*additional, schema.pointer + "/additionalProperties"));
    }
    if (const auto& names = schema[Keyword::kPropertyNames]) {
      ASSIGN_OR_RETURN(object.of_names.emplace_back(),
                       document_.At(*names, schema.pointer + "/propertyNames"));
    }
    has_properties = has_properties || schema[Keyword::kProperties];
    says_others = says_others || schema[Keyword::kAdditionalProperties] ||
                  schema[Keyword::kPatternProperties];
  }
  for (const Conjunct& one : all) {
    const auto& required = (*one.schema)[Keyword::kRequired];
    if (!required) continue;
    const auto refused = [&] {
      return SchemaError(*one.schema, Keyword::kRequired, "must be an array of names");
    };
    if (required->kind() != json::Value::Kind::kArray) return refused();
    if (!budget_.Spend(1 + required->text_bytes() / kTextBytesPerStep)) return OutOfSteps();
    RETURN_IF_ERROR(required->ForEachElement([&](const json::Value& name) {
      auto text = name.AsString();
      if (!text.ok()) return refused();
      if (known.insert(*text).second) object.names.push_back(*text);
      object.required.insert(*std::move(text));
      return Status::Ok();
    }));
  }
  object.is_open = !has_properties || says_others;
  return object;
}

// "name": value, by all schemas that hold of it.
Result<NodeId> SchemaTranslator::NodeOfMember(const ObjectSchema& object, const std::string& name,
                                              Layout layout) {
  Conjunction all;
  for (const ObjectSchema::Part& part : object.parts) {
    if (!budget_.Spend(1 + name.size() * (1 + object.patterns.size()))) return OutOfSteps();
    bool is_known = false;
    if (const auto property = part.properties.find(name); property != part.properties.end()) {
      all.push_back({property->second});
      is_known = true;
    }
    for (const KeyPattern& pattern : object.patterns) {
      if (pattern.owner != part.schema || !Matches(pattern.keys, json_.Content(name))) continue;
      all.push_back({pattern.schema});
      is_known = true;
    }
    if (!is_known && part.additional != nullptr) all.push_back({part.additional});
  }
  if (layout == nullptr) {
    ASSIGN_OR_RETURN(const NodeId value, NodeOf(all));
    return json_.Member(json_.Name(name), value);
  }
  if (!layout->MayName(name)) {
    return InvalidArgument(
        fmt::format("schema: at {}: a property's name, '{}', cannot be written in the format of "
                    "this model's calls (rename it)",
                    object.parts[0].schema->pointer, name));
  }
  ASSIGN_OR_RETURN(const NodeId value, style_.texts.contains(name) ? RawText(all) : NodeOf(all));
  return Member(grammar_.Bytes(name), value, layout);
}

NodeId SchemaTranslator::Member(NodeId name, NodeId value, Layout layout) {
  if (layout == nullptr) return json_.Member(name, value);
  return grammar_.Sequence({grammar_.Bytes(layout->before_name), name,
                            grammar_.Bytes(layout->behind_name), value,
                            grammar_.Bytes(layout->behind_value)});
}

Result<NodeId> SchemaTranslator::ObjectNode(const Conjunction& all) {
  Types about = 0;
  for (const Conjunct& one : all) about |= one.schema->types_of_keywords();
  if ((about & kObjects) == 0) return json_.Object();
  return MembersNode(all, nullptr);
}

Result<NodeId> SchemaTranslator::MembersNode(const Conjunction& all, Layout layout) {
  ASSIGN_OR_RETURN(const ObjectSchema object, ReadObject(all));
  std::optional<Dfa> allowed_names;
  if (!object.of_names.empty()) {
    ASSIGN_OR_RETURN(allowed_names, KeysOf(object.of_names));
  }
  std::vector<Grammar::ListPart> parts;
  for (const std::string& name : object.names) {
    ASSIGN_OR_RETURN(NodeId member, NodeOfMember(object, name, layout));
    if (allowed_names && !Matches(*allowed_names, json_.Content(name))) member = grammar_.Never();
    if (object.names.size() > kMaxInlineProperties) {
      member = grammar_.Call(grammar_.AddRule(
          fmt::format("of member {} at {}", name, all[0].schema->pointer), member));
    }
    parts.push_back({member, object.required.contains(name)});
  }
  ASSIGN_OR_RETURN(const std::vector<NodeId> others, OtherMembers(object, allowed_names, layout));
  const NodeId separator = layout == nullptr ? json_.Comma() : grammar_.Bytes(layout->between);
  if (!others.empty()) {
    const NodeId other = grammar_.Choice(others);
    const NodeId more = grammar_.Repeat(grammar_.Sequence({separator, other}), 0, kUnlimited);
    parts.push_back({grammar_.Sequence({other, more}), /*is_required=*/false});
  }
  const NodeId members = parts.empty() ? grammar_.Never() : grammar_.List(separator, parts);
  if (layout != nullptr) return object.required.empty() ? grammar_.Optional(members) : members;
  return json_.Enclosed('{', members, '}', /*may_be_empty=*/object.required.empty());
}

// Members that are no property: those whose names match one pattern and no other, each by its
// schema, and those that match none, by additionalProperties.
Result<std::vector<NodeId>> SchemaTranslator::OtherMembers(const ObjectSchema& object,
                                                           const std::optional<Dfa>& allowed_names,
                                                           Layout layout) {
  std::vector<NodeId> members;
  if (!object.is_open) return members;
  for (size_t i = 0; i <= object.patterns.size(); ++i) {
    const KeyPattern* pattern = i < object.patterns.size() ? &object.patterns[i] : nullptr;
    Conjunction all;
    if (pattern != nullptr) all.push_back({pattern->schema});
    for (const ObjectSchema::Part& part : object.parts) {
      if (pattern != nullptr && pattern->owner == part.schema) continue;
      if (part.additional != nullptr) all.push_back({part.additional});
    }
    const auto is_never = [](const Conjunct& one) { return one.schema->is_always == false; };
    if (std::ranges::any_of(all, is_never)) continue;
    const bool is_any = object.names.empty() && object.patterns.empty() && !allowed_names;
    NodeId key = layout == nullptr ? json_.AnyName() : BareNames(grammar_);
    if (!is_any) {
      ASSIGN_OR_RETURN(key, KeyNode(object, pattern, allowed_names, layout));
    }
    ASSIGN_OR_RETURN(const NodeId value, NodeOf(all));
    members.push_back(Member(key, value, layout));
  }
  return members;
}

Result<NodeId> SchemaTranslator::KeyNode(const ObjectSchema& object, const KeyPattern* pattern,
                                         const std::optional<Dfa>& allowed_names, Layout layout) {
  ASSIGN_OR_RETURN(Dfa keys, ContentsOfLength(0, kUnlimited, style_.values));
  if (pattern != nullptr) keys = pattern->keys;
  if (allowed_names) {
    ASSIGN_OR_RETURN(keys, Intersect(keys, *allowed_names, budget_));
  }
  for (const KeyPattern& other : object.patterns) {
    if (&other == pattern) continue;
    ASSIGN_OR_RETURN(keys, Subtract(keys, other.keys, budget_));
  }
  if (!object.names.empty()) {
    Grammar grammar;
    std::vector<NodeId> names;
    for (const std::string& name : object.names)
      names.push_back(grammar.Bytes(json_.Content(name)));
    ASSIGN_OR_RETURN(const Dfa properties, DfaOf(grammar, grammar.Choice(names)));
    ASSIGN_OR_RETURN(keys, Subtract(keys, properties, budget_));
  }
  const bool are_bare = layout != nullptr || style_.values.has_bare_names;
  if (are_bare) {
    Grammar grammar;
    ASSIGN_OR_RETURN(const Dfa names, DfaOf(grammar, BareNames(grammar)));
    ASSIGN_OR_RETURN(keys, Intersect(keys, names, budget_));
  } else if (!style_.values.never.empty()) {
    ASSIGN_OR_RETURN(keys, Intersect(keys, DfaWithout(style_.values.never), budget_));
  }
  const RuleId rule =
      grammar_.AddRule("of names of members", std::make_shared<const Dfa>(std::move(keys)));
  return are_bare ? grammar_.Call(rule) : json_.QuotedRule(rule);
}

// The names that propertyNames allows. They are strings, so that keywords about strings, values and
// nothing else matter.
Result<Dfa> SchemaTranslator::KeysOf(const std::vector<const Schema*>& of_names) {
  Conjunction all;
  for (const Schema* schema : of_names) all.push_back({schema});
  ASSIGN_OR_RETURN(all, document_.Flattened(all));
  ASSIGN_OR_RETURN(const Types types, SaidTypes(all));
  for (const Conjunct& one : all) {
    for (const Keyword keyword : {Keyword::kAnyOf, Keyword::kOneOf}) {
      if ((*one.schema)[keyword]) {
        return SchemaError(*one.schema, keyword, "is not supported below propertyNames");
      }
    }
  }
  ASSIGN_OR_RETURN(std::optional<Dfa> keys, StringContents(all, style_.values));
  if (!keys) {
    ASSIGN_OR_RETURN(keys, ContentsOfLength(0, kUnlimited, style_.values));
  }
  ASSIGN_OR_RETURN(const auto values, AllowedValues(all));
  if (values || (types & kStrings) == 0) {
    Grammar grammar;
    std::vector<NodeId> names;
    for (const json::Value& value : values.value_or(std::vector<json::Value>())) {
      if (value.kind() != json::Value::Kind::kString || (types & kStrings) == 0) continue;
      names.push_back(grammar.Bytes(json_.Content(*value.AsString())));
    }
    ASSIGN_OR_RETURN(const Dfa listed, DfaOf(grammar, grammar.Choice(names)));
    ASSIGN_OR_RETURN(keys, Intersect(*keys, listed, budget_));
  }
  return *std::move(keys);
}

}  // namespace inflight::grammar
