// SPDX-License-Identifier: Apache-2.0
// A document with JSON schemas: each schema in it by its place, and what they refer to.
//
// Reading a place costs steps of a budget, since the text is gone through again for it; what was
// read is kept, since many places may refer to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/budget.h"
#include "grammar/schema_keywords.h"

namespace inflight::grammar {

inline constexpr size_t kTextBytesPerStep = 2;  // of text that is gone through

// A schema that holds of a value, together with others. The bits say which of its keywords are
// dealt with elsewhere.
struct Conjunct {
  static constexpr uint8_t kWithoutAnyOf = 1;
  static constexpr uint8_t kWithoutOneOf = 2;
  static constexpr uint8_t kWithoutRefs = 4;  // $ref and allOf

  const Schema* schema;
  uint8_t without = 0;

  auto operator<=>(const Conjunct&) const = default;
};

// All hold; none: any value is valid.
using Conjunction = std::vector<Conjunct>;

class SchemaDocument {
 public:
  // `text` outlives it.
  SchemaDocument(json::Value root, Budget& budget) : root_(root), budget_(budget) {}

  // The schema at a place; one object for each.
  Result<const Schema*> At(const json::Value& value, std::string pointer);
  Result<const Schema*> Root() { return At(root_, "#"); }

  // With what $ref and allOf refer to beside those that do, each schema once. kInvalidArgument
  // where one refers to itself by these, anyOf and oneOf alone, so that it says nothing.
  Result<Conjunction> Flattened(const Conjunction& all);

  // The schemas of an array such as that of anyOf.
  using List = std::vector<const Schema*>;
  Result<List> AllOf(const Schema& schema, Keyword keyword);

  // The schemas of an object such as that of properties, in its order.
  using Members = std::vector<std::pair<std::string, const Schema*>>;
  Result<const Members*> MembersOf(const Schema& schema, Keyword keyword);

  // The member or the element that a token of a pointer names; unset where there is none.
  Result<std::optional<json::Value>> ChildOf(const json::Value& value, std::string_view token);

 private:
  Result<const Schema*> Resolve(const Schema& schema);
  Result<List> InPlace(const Schema& schema);
  Status CheckEnds(const Schema& schema);

  const json::Value root_;
  Budget& budget_;
  // By the places of their texts.
  std::map<const char*, std::unique_ptr<const Schema>> schemas_;
  std::map<const char*, List> lists_;
  std::map<const char*, Members> members_;
  // Of what pointers led through, by the places of their texts.
  std::map<const char*, std::map<std::string, json::Value, std::less<>>> children_;
  std::map<std::string, const Schema*> resolved_;  // by $ref
  std::map<const Schema*, bool> is_open_;  // of those that CheckEnds saw: it is on their way
};

}  // namespace inflight::grammar
