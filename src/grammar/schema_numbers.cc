// SPDX-License-Identifier: Apache-2.0
// Numbers: minimum, maximum and their exclusive forms, multipleOf. Numbers with any of these are
// written without an exponent.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "grammar/dfa_product.h"
#include "grammar/number_range.h"
#include "grammar/schema_translator.h"

namespace inflight::grammar {
namespace {

struct BoundEntry {
  Keyword keyword;
  bool is_from;
  bool is_exclusive;
};
constexpr BoundEntry kBounds[] = {{Keyword::kMinimum, true, false},
                                  {Keyword::kMaximum, false, false},
                                  {Keyword::kExclusiveMinimum, true, true},
                                  {Keyword::kExclusiveMaximum, false, true}};

Result<Dfa> Multiples(const Schema& schema) {
  const auto divisor = schema[Keyword::kMultipleOf]->AsDouble();
  if (!divisor.ok() || !(*divisor >= 1) || *divisor > kMaxDivisor ||
      *divisor != std::floor(*divisor)) {
    return SchemaError(schema, Keyword::kMultipleOf,
                       fmt::format("integers from 1 to {} are supported", kMaxDivisor));
  }
  return MultiplesOf(static_cast<uint32_t>(*divisor));
}

}  // namespace

// Unset: there is no keyword about them.
Result<std::optional<Dfa>> SchemaTranslator::Numbers(const Conjunction& all, bool are_integers) {
  std::optional<Dfa> numbers;
  for (const Conjunct& one : all) {
    if ((*one.schema)[Keyword::kMultipleOf]) {
      ASSIGN_OR_RETURN(Dfa multiples, Multiples(*one.schema));
      if (!numbers) {
        ASSIGN_OR_RETURN(numbers, AllNumbers(/*are_integers=*/true, budget_));
      }
      ASSIGN_OR_RETURN(numbers, Intersect(*numbers, multiples, budget_));
    }
    for (const BoundEntry& entry : kBounds) {
      const Schema& schema = *one.schema;
      const auto& value = schema[entry.keyword];
      if (!value) continue;
      if (value->kind() != json::Value::Kind::kNumber) {
        return SchemaError(schema, entry.keyword, "must be a number");
      }
      const auto bound = ParseDecimal(value->text());
      if (!bound.ok()) return SchemaError(schema, entry.keyword, bound.status().message());
      if (!numbers) {
        ASSIGN_OR_RETURN(numbers, AllNumbers(are_integers, budget_));
      }
      ASSIGN_OR_RETURN(const Dfa side, entry.is_from
                                           ? NumbersFrom(*bound, entry.is_exclusive, budget_)
                                           : NumbersUpTo(*bound, entry.is_exclusive, budget_));
      ASSIGN_OR_RETURN(numbers, Intersect(*numbers, side, budget_));
    }
  }
  return numbers;
}

Result<NodeId> SchemaTranslator::NumberNode(const Conjunction& all, bool are_integers) {
  ASSIGN_OR_RETURN(std::optional<Dfa> numbers, Numbers(all, are_integers));
  if (!numbers) return are_integers ? json_.Integer() : json_.Number();
  return grammar_.Call(grammar_.AddRule(fmt::format("of numbers at {}", all[0].schema->pointer),
                                        std::make_shared<const Dfa>(*std::move(numbers))));
}

}  // namespace inflight::grammar
