// SPDX-License-Identifier: Apache-2.0
#include "grammar/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/status_macros.h"
#include "grammar/grammar.h"
#include "grammar/json_text.h"
#include "grammar/rule_nfa.h"

namespace inflight::grammar {
namespace {

// What a magnitude is compared with, and what may be written of it.
class MagnitudeGrammar {
 public:
  explicit MagnitudeGrammar(Grammar& grammar) : grammar_(grammar) {}

  NodeId Digits(char first, char last) {
    return grammar_.Chars(CharSet({{static_cast<uint8_t>(first), static_cast<uint8_t>(last)}}));
  }
  NodeId AnyDigits(uint32_t min, uint32_t max) {
    return grammar_.Repeat(Digits('0', '9'), min, max);
  }
  NodeId OptionalFraction() {
    return grammar_.Optional(
        grammar_.Sequence({grammar_.Char('.'), AnyDigits(1, kMaxNumberDigits)}));
  }
  NodeId OptionalZeroFraction() {
    return grammar_.Optional(grammar_.Sequence(
        {grammar_.Char('.'), grammar_.Repeat(grammar_.Char('0'), 1, kMaxNumberDigits)}));
  }
  // Whole parts of exactly or of more digits than `min_digits`, up to the bound; zero has one.
  NodeId WholeOf(uint32_t min_digits, uint32_t max_digits) {
    if (min_digits > max_digits) return grammar_.Never();
    return grammar_.Sequence({Digits('1', '9'), AnyDigits(min_digits - 1, max_digits - 1)});
  }
  NodeId Any() {
    return grammar_.Sequence(
        {grammar_.Choice({grammar_.Char('0'), WholeOf(1, kMaxNumberDigits)}), OptionalFraction()});
  }

  // Above the magnitude of `bound`, and equal to it where `with_equal`.
  NodeId Above(const Decimal& bound, bool with_equal) {
    const auto num_whole = static_cast<uint32_t>(std::max<size_t>(1, bound.whole.size()));
    std::vector<NodeId> choices = {
        grammar_.Sequence({WholeOf(num_whole + 1, kMaxNumberDigits), OptionalFraction()})};
    AddSameLength(bound, with_equal, /*is_above=*/true, choices);
    return grammar_.Choice(choices);
  }
  // Below it, and equal where `with_equal`.
  NodeId Below(const Decimal& bound, bool with_equal) {
    std::vector<NodeId> choices;
    const auto num_whole = static_cast<uint32_t>(bound.whole.size());
    if (num_whole > 0) {  // else it is below 1
      choices.push_back(grammar_.Sequence({grammar_.Char('0'), OptionalFraction()}));
    }
    if (num_whole > 1) {
      choices.push_back(grammar_.Sequence({WholeOf(1, num_whole - 1), OptionalFraction()}));
    }
    AddSameLength(bound, with_equal, /*is_above=*/false, choices);
    return grammar_.Choice(choices);
  }

 private:
  // The first digit that differs decides; then what follows is free.
  void AddSameLength(const Decimal& bound, bool with_equal, bool is_above,
                     std::vector<NodeId>& choices) {
    const std::string whole = bound.whole.empty() ? "0" : bound.whole;
    for (size_t i = 0; i < whole.size(); ++i) {
      const char low =
          i == 0 && whole.size() > 1 ? '1' : '0';  // no number begins with 0 and goes on
      if (i == 0 && whole == "0" && !is_above) continue;
      const NodeId digit = Differing(whole[i], low, is_above);
      const auto rest = static_cast<uint32_t>(whole.size() - i - 1);
      choices.push_back(grammar_.Sequence({grammar_.Bytes(std::string_view(whole).substr(0, i)),
                                           digit, AnyDigits(rest, rest), OptionalFraction()}));
    }
    const std::string_view fraction = bound.fraction;
    std::string prefix = whole + ".";
    for (const char bound_digit : fraction) {
      choices.push_back(
          grammar_.Sequence({grammar_.Bytes(prefix), Differing(bound_digit, '0', is_above),
                             AnyDigits(0, kMaxNumberDigits)}));
      prefix += bound_digit;
    }
    AddEnds(whole, fraction, with_equal, is_above, choices);
  }

  // Equal as far as the bound's digits, or as far as the number's where these are fewer.
  void AddEnds(const std::string& whole, std::string_view fraction, bool with_equal, bool is_above,
               std::vector<NodeId>& choices) {
    const NodeId zeros = grammar_.Repeat(grammar_.Char('0'), 0, kMaxNumberDigits);
    if (!is_above && !fraction.empty()) {  // the fraction ends early
      choices.push_back(grammar_.Bytes(whole));
      for (size_t size = 1; size < fraction.size(); ++size) {
        choices.push_back(grammar_.Bytes(fmt::format("{}.{}", whole, fraction.substr(0, size))));
      }
    }
    if (with_equal) {
      choices.push_back(
          fraction.empty()
              ? grammar_.Sequence({grammar_.Bytes(whole), OptionalZeroFraction()})
              : grammar_.Sequence({grammar_.Bytes(fmt::format("{}.{}", whole, fraction)), zeros}));
    }
    if (is_above) {  // more digits behind equal ones, not all of them zero
      choices.push_back(
          grammar_.Sequence({grammar_.Bytes(fmt::format("{}.{}", whole, fraction)), zeros,
                             Digits('1', '9'), AnyDigits(0, kMaxNumberDigits)}));
    }
  }

  NodeId Differing(char bound, char low, bool is_above) {
    const char first = is_above ? std::max(low, static_cast<char>(bound + 1)) : low;
    const char last = is_above ? '9' : static_cast<char>(bound - 1);
    return first > last ? grammar_.Never() : Digits(first, last);
  }

  Grammar& grammar_;
};

Result<Dfa> DfaOf(Grammar& grammar, NodeId body, Budget& budget) {
  const RuleId rule = grammar.AddRule("numbers", body);
  ASSIGN_OR_RETURN(const Nfa nfa, MakeNfa(grammar, rule, budget));
  return Determinize(nfa, budget);
}

// The numbers of a side of the bound: those of its own sign compare by magnitude, those of the
// other are all or none.
Result<Dfa> Side(const Decimal& bound, bool is_exclusive, bool is_from, Budget& budget) {
  Grammar grammar;
  MagnitudeGrammar magnitudes(grammar);
  std::vector<NodeId> choices;
  const NodeId minus = grammar.Char('-');
  const bool is_above = is_from != bound.is_negative;
  const NodeId near =
      is_above ? magnitudes.Above(bound, !is_exclusive) : magnitudes.Below(bound, !is_exclusive);
  choices.push_back(bound.is_negative ? grammar.Sequence({minus, near}) : near);
  if (is_from && bound.is_negative) choices.push_back(magnitudes.Any());
  if (!is_from && !bound.is_negative) {
    const bool is_zero = bound.whole.empty() && bound.fraction.empty();
    // -0 is no less than 0.
    const NodeId any =
        is_zero && is_exclusive ? magnitudes.Above(bound, /*with_equal=*/false) : magnitudes.Any();
    choices.push_back(grammar.Sequence({minus, any}));
  }
  return DfaOf(grammar, grammar.Choice(choices), budget);
}

}  // namespace

Result<Decimal> ParseDecimal(std::string_view token) {
  Decimal decimal;
  std::string_view rest = token;
  decimal.is_negative = rest.starts_with('-');
  if (decimal.is_negative) rest.remove_prefix(1);
  const size_t mantissa_size = std::min(rest.find_first_of("eE"), rest.size());
  std::string_view mantissa = rest.substr(0, mantissa_size);
  rest.remove_prefix(mantissa_size);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string digits(mantissa.substr(0, point));
  auto num_whole = static_cast<int64_t>(digits.size());
  if (point < mantissa.size()) digits += mantissa.substr(point + 1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) {
    return InvalidArgument(fmt::format("{} is no number", token));
  }
  if (!rest.empty()) {
    rest.remove_prefix(1);
    if (rest.starts_with('+')) rest.remove_prefix(1);
    int exponent = 0;
    const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), exponent);
    if (read.ec != std::errc{}) exponent = rest.starts_with('-') ? -1'000'000 : 1'000'000;
    num_whole += exponent;
  }
  const size_t first = std::min(digits.find_first_not_of('0'), digits.size());
  digits.erase(0, first);
  num_whole -= static_cast<int64_t>(first);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.empty()) return Decimal{};
  const auto size = static_cast<int64_t>(digits.size());
  if (num_whole > int64_t{kMaxNumberDigits} || size - num_whole > int64_t{kMaxNumberDigits}) {
    return InvalidArgument(fmt::format("{} has more than {} digits before or behind its point",
                                       token, kMaxNumberDigits));
  }
  if (num_whole >= size) {
    decimal.whole = digits + std::string(static_cast<size_t>(num_whole - size), '0');
  } else if (num_whole > 0) {
    decimal.whole = digits.substr(0, static_cast<size_t>(num_whole));
    decimal.fraction = digits.substr(static_cast<size_t>(num_whole));
  } else {
    decimal.fraction = std::string(static_cast<size_t>(-num_whole), '0') + digits;
  }
  return decimal;
}

Result<Dfa> AllNumbers(bool are_integers, Budget& budget) {
  Grammar grammar;
  MagnitudeGrammar magnitudes(grammar);
  const NodeId whole = grammar.Choice({grammar.Char('0'), magnitudes.WholeOf(1, kMaxNumberDigits)});
  const NodeId magnitude = are_integers ? whole : magnitudes.Any();
  return DfaOf(grammar, grammar.Sequence({grammar.Optional(grammar.Char('-')), magnitude}), budget);
}

Result<Dfa> NumbersFrom(const Decimal& bound, bool is_exclusive, Budget& budget) {
  return Side(bound, is_exclusive, /*is_from=*/true, budget);
}

Result<Dfa> NumbersUpTo(const Decimal& bound, bool is_exclusive, Budget& budget) {
  return Side(bound, is_exclusive, /*is_from=*/false, budget);
}

// State 2 + r has read digits whose number is r modulo the divisor; 0 is the start, 1 behind a -,
// and the last one behind a 0 that begins the number.
Dfa MultiplesOf(uint32_t divisor) {
  Dfa dfa;
  const uint32_t behind_zero = 2 + divisor;
  const auto add_state = [&](bool is_final) {
    dfa.states.push_back({static_cast<uint32_t>(dfa.edges.size()), 0, is_final});
  };
  const auto add_digits = [&](uint32_t first, uint32_t remainder) {
    for (uint32_t digit = first; digit < 10; ++digit) {
      const auto byte = static_cast<uint8_t>('0' + digit);
      dfa.edges.push_back({byte, byte, 2 + (10 * remainder + digit) % divisor});
    }
  };
  for (const bool may_be_negative : {true, false}) {
    add_state(/*is_final=*/false);
    if (may_be_negative) dfa.edges.push_back({'-', '-', 1});
    dfa.edges.push_back({'0', '0', behind_zero});
    add_digits(1, 0);
  }
  for (uint32_t remainder = 0; remainder < divisor; ++remainder) {
    add_state(/*is_final=*/remainder == 0);
    add_digits(0, remainder);
  }
  add_state(/*is_final=*/true);
  add_state(/*is_final=*/false);
  return dfa;
}

}  // namespace inflight::grammar
