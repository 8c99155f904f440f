// SPDX-License-Identifier: Apache-2.0
// Languages of two deterministic automata at once. Neither may call rules.
#pragma once

#include "grammar/budget.h"
#include "grammar/rule_dfa.h"

namespace inflight::grammar {

// The texts of both. kResourceExhausted when the budget is spent.
Result<Dfa> Intersect(const Dfa& a, const Dfa& b, Budget& budget);

// The texts of `a` that are none of `b`.
Result<Dfa> Subtract(const Dfa& a, const Dfa& b, Budget& budget);

bool Matches(const Dfa& dfa, std::string_view text);

}  // namespace inflight::grammar
