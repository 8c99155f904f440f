// SPDX-License-Identifier: Apache-2.0
// Numbers within bounds, as automata over their digits: what is compared is the text, so that no
// bound is rounded.
#pragma once

#include <string>
#include <string_view>

#include "grammar/budget.h"
#include "grammar/rule_dfa.h"
#include "inflight/status.h"

namespace inflight::grammar {

// +-whole.fraction, without zeros at the outer ends; zero has no digits and is not negative.
struct Decimal {
  bool is_negative = false;
  std::string whole;
  std::string fraction;
};

// A JSON number. kInvalidArgument where it has more than kMaxNumberDigits digits on a side of its
// decimal point, or is no number.
Result<Decimal> ParseDecimal(std::string_view token);

// Numbers as JSON has them, without an exponent: all that are integers, or all.
Result<Dfa> AllNumbers(bool are_integers, Budget& budget);

// Of these, the ones that are at least or at most `bound`, or, where `is_exclusive`, more or less.
Result<Dfa> NumbersFrom(const Decimal& bound, bool is_exclusive, Budget& budget);
Result<Dfa> NumbersUpTo(const Decimal& bound, bool is_exclusive, Budget& budget);

// Integers that `divisor` divides, 1 to kMaxDivisor.
inline constexpr uint32_t kMaxDivisor = 1000;
Dfa MultiplesOf(uint32_t divisor);

}  // namespace inflight::grammar
