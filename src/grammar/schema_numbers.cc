// SPDX-License-Identifier: Apache-2.0
// Numbers: minimum, maximum and their exclusive forms, multipleOf. Numbers with any of these are
// written without an exponent.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

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

// Without a fraction, or of at most 15 digits that count: such are different doubles where they
// differ, so that one beyond an exclusive bound is not read as that bound.
NodeId DistinctDoubles(Grammar& grammar) {
  constexpr uint32_t kDigits = 15;
  const NodeId digit = grammar.Chars(CharSet({{'0', '9'}}));
  const NodeId first = grammar.Chars(CharSet({{'1', '9'}}));
  const NodeId zero = grammar.Char('0');
  const NodeId point = grammar.Char('.');
  std::vector<NodeId> choices = {
      grammar.Repeat(digit, 1, kMaxNumberDigits),
      grammar.Sequence({zero, point, grammar.Repeat(zero, 0, kMaxNumberDigits),
                        grammar.Repeat(digit, 0, kDigits)})};
  for (uint32_t i = 1; i < kDigits; ++i) {
    choices.push_back(grammar.Sequence({first, grammar.Repeat(digit, i - 1, i - 1), point,
                                        grammar.Repeat(digit, 1, kDigits - i)}));
  }
  return grammar.Sequence({grammar.Optional(grammar.Char('-')), grammar.Choice(choices)});
}

// Leaves those out that are read as a double which is an exclusive bound's: integers, and bounds,
// of more digits than DistinctDoubles tells apart.
Status LeaveOutBounds(const Conjunction& all, Dfa& numbers, Budget& budget) {
  constexpr double kLeast = 1e-14;  // of those below, some need more than kMaxNumberDigits digits
  for (const Conjunct& one : all) {
    for (const BoundEntry& entry : kBounds) {
      const auto& value = (*one.schema)[entry.keyword];
      if (!value || !entry.is_exclusive) continue;
      ASSIGN_OR_RETURN(const double bound, value->AsDouble());
      if (std::abs(bound) < kLeast) continue;
      const double next = std::nextafter(bound, entry.is_from ? HUGE_VAL : -HUGE_VAL);
      const auto inclusive = ParseDecimal(fmt::format("{}", next));
      if (!inclusive.ok())
        return SchemaError(*one.schema, entry.keyword, inclusive.status().message());
      ASSIGN_OR_RETURN(const Dfa side,
                       entry.is_from ? NumbersFrom(*inclusive, /*is_exclusive=*/false, budget)
                                     : NumbersUpTo(*inclusive, /*is_exclusive=*/false, budget));
      ASSIGN_OR_RETURN(numbers, Intersect(numbers, side, budget));
    }
  }
  return Status::Ok();
}

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
  const auto has_exclusive = [](const Conjunct& one) {
    return (*one.schema)[Keyword::kExclusiveMinimum] || (*one.schema)[Keyword::kExclusiveMaximum];
  };
  if (!are_integers && std::ranges::any_of(all, has_exclusive)) {
    Grammar grammar;
    ASSIGN_OR_RETURN(const Dfa distinct, DfaOf(grammar, DistinctDoubles(grammar)));
    ASSIGN_OR_RETURN(numbers, Intersect(*numbers, distinct, budget_));
    RETURN_IF_ERROR(LeaveOutBounds(all, *numbers, budget_));
  }
  return grammar_.Call(grammar_.AddRule(fmt::format("of numbers at {}", all[0].schema->pointer),
                                        std::make_shared<const Dfa>(*std::move(numbers))));
}

}  // namespace inflight::grammar
