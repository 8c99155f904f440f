// SPDX-License-Identifier: Apache-2.0
#include "grammar/regex_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "grammar/budget.h"
#include "grammar/regex_escapes.h"

namespace inflight::grammar {
namespace {

// Of {m,n}. What is larger exceeds the bounds of a compiled grammar in any case.
constexpr uint32_t kMaxRegexRepetitions = 1'000'000;

struct GroupKind {
  std::string_view begin;
  std::string_view what;  // empty: supported
};
// Longer ones before those that they begin with.
constexpr GroupKind kGroupKinds[] = {
    {"?:", ""},
    {"?=", "looking ahead, (?=...)"},
    {"?!", "looking ahead, (?!...)"},
    {"?<=", "looking behind, (?<=...)"},
    {"?<!", "looking behind, (?<!...)"},
    {"?P=", "a reference to a group, (?P=...)"},
    {"?>", "an atomic group, (?>...)"},
};

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const RegexSyntax& syntax, Grammar& grammar)
      : pattern_(pattern), rest_(pattern), syntax_(syntax), grammar_(grammar) {}

  Result<NodeId> Parse() {
    auto parsed = ParseAlternatives();
    if (parsed.ok() && !rest_.empty()) parsed = InvalidArgument(") closes no group");
    if (!parsed.ok()) {
      return parsed.status().WithPrefix(fmt::format("at byte {}", pattern_.size() - rest_.size()));
    }
    return parsed;
  }

 private:
  NodeId OneOf(const CharSet& set) {
    return syntax_.chars ? syntax_.chars(set) : grammar_.Chars(set);
  }
  bool Take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  bool IsAtEndOfAlternative() const {
    return rest_.empty() || rest_.front() == '|' || rest_.front() == ')';
  }

  Result<NodeId> ParseAlternatives() {
    std::vector<NodeId> alternatives;
    do {
      ASSIGN_OR_RETURN(alternatives.emplace_back(), ParseAlternative());
    } while (Take("|"));
    return grammar_.Choice(alternatives);
  }

  Result<NodeId> ParseAlternative() {
    std::vector<NodeId> parts;
    const bool is_outside = depth_ == 0;
    bool is_search_before = is_outside && syntax_.is_search;
    bool is_search_behind = is_search_before;
    if (is_outside && Take("^")) is_search_before = false;
    if (is_search_before) parts.push_back(AnyText());
    while (!IsAtEndOfAlternative()) {
      if (is_outside && Take("$")) {
        if (!IsAtEndOfAlternative()) return InvalidArgument("$ is supported at the end only");
        is_search_behind = false;
        break;
      }
      ASSIGN_OR_RETURN(const NodeId atom, ParseAtom());
      ASSIGN_OR_RETURN(parts.emplace_back(), ParseQuantifiers(atom));
    }
    if (is_search_behind) parts.push_back(AnyText());
    return grammar_.Sequence(parts);
  }

  NodeId AnyText() { return grammar_.Repeat(OneOf(CharSet::Any()), 0, kUnlimited); }

  Result<NodeId> ParseAtom() {
    switch (rest_.front()) {
      case '(':
        return ParseGroup();
      case '[': {
        ASSIGN_OR_RETURN(const CharSet set, ParseClass());
        return OneOf(set);
      }
      case '.':
        rest_.remove_prefix(1);
        return OneOf(RegexNotLineEnds());
      case '^':
      case '$':
        return InvalidArgument(fmt::format(
            "{} is supported at the ends of alternatives outside groups only", rest_.front()));
      case '*':
      case '+':
      case '?':
        return InvalidArgument(fmt::format("{} has nothing to repeat", rest_.front()));
      default: {
        ASSIGN_OR_RETURN(const CharSet set, ParseChar(/*is_in_class=*/false));
        return OneOf(set);
      }
    }
  }

  // A character or an escape.
  Result<CharSet> ParseChar(bool is_in_class) {
    if (Take("\\")) return TakeRegexEscape(rest_, is_in_class);
    const uint32_t c = TakeChar(rest_);
    if (c == kNoChar) return InvalidArgument("the pattern is no UTF-8");
    return CharSet({{c, c}});
  }

  Result<NodeId> ParseGroup() {
    if (++depth_ > kMaxNesting) {
      return InvalidArgument(fmt::format("groups nest deeper than {}", kMaxNesting));
    }
    Take("(");
    if (rest_.starts_with("?")) {
      RETURN_IF_ERROR(TakeGroupKind());
    }
    ASSIGN_OR_RETURN(const NodeId inner, ParseAlternatives());
    if (!Take(")")) return InvalidArgument("a group is not closed by )");
    --depth_;
    return inner;
  }

  Status TakeGroupKind() {
    for (const GroupKind& kind : kGroupKinds) {
      if (!rest_.starts_with(kind.begin)) continue;
      if (!kind.what.empty()) {
        return InvalidArgument(fmt::format("{} is not supported", kind.what));
      }
      Take(kind.begin);
      return Status::Ok();
    }
    if (Take("?P<") || Take("?<")) {
      const size_t end = rest_.find('>');
      if (end == rest_.npos || end == 0) return InvalidArgument("the group's name has no end");
      rest_.remove_prefix(end + 1);
      return Status::Ok();
    }
    return InvalidArgument(
        "(? begins what is not supported, such as flags; groups are (...), "
        "(?:...) and (?<name>...)");
  }

  Result<CharSet> ParseClass() {
    Take("[");
    const bool is_complement = Take("^");
    if (rest_.starts_with("]")) return InvalidArgument("a class is empty; write ] in it as \\]");
    std::vector<CharRange> ranges;
    while (!Take("]")) {
      if (rest_.empty()) return InvalidArgument("a class is not closed by ]");
      if (rest_.starts_with("[:")) {
        return InvalidArgument("[: :] is not supported; write \\d, \\w or \\s, or \\[ for a [");
      }
      ASSIGN_OR_RETURN(CharSet set, ParseChar(/*is_in_class=*/true));
      if (rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
        Take("-");
        ASSIGN_OR_RETURN(const CharSet last, ParseChar(/*is_in_class=*/true));
        if (!IsOneChar(set) || !IsOneChar(last)) {
          return InvalidArgument("a range of a class needs a character on both sides of its -");
        }
        const CharRange range = {set.ranges()[0].first, last.ranges()[0].first};
        if (range.first > range.last) return InvalidArgument("a range of a class is reversed");
        set = CharSet({range});
      }
      ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
    }
    CharSet set(std::move(ranges));
    return is_complement ? set.Complement() : set;
  }

  static bool IsOneChar(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  Result<NodeId> ParseQuantifiers(NodeId atom) {
    uint32_t min = 0;
    uint32_t max = 0;
    ASSIGN_OR_RETURN(const bool is_repeated, TakeQuantifier(&min, &max));
    if (!is_repeated) return atom;
    if (!Take("?") && rest_.starts_with("+")) {
      return InvalidArgument("a possessive quantifier, such as a*+, is not supported");
    }
    uint32_t unused = 0;
    ASSIGN_OR_RETURN(const bool is_repeated_again, TakeQuantifier(&unused, &unused));
    if (is_repeated_again) return InvalidArgument("a quantifier stands behind another one");
    return grammar_.Repeat(atom, min, max);
  }

  Result<bool> TakeQuantifier(uint32_t* min, uint32_t* max) {
    *min = 0;
    *max = kUnlimited;
    if (Take("*")) return true;
    if (Take("+")) {
      *min = 1;
      return true;
    }
    if (Take("?")) {
      *max = 1;
      return true;
    }
    return TakeCounts(min, max);
  }

  // {m}, {m,} and {m,n}; any other { is a character, in ECMA-262's Annex B as in Python.
  Result<bool> TakeCounts(uint32_t* min, uint32_t* max) {
    std::string_view inner = rest_;
    if (!inner.starts_with("{")) return false;
    inner.remove_prefix(1);
    if (inner.starts_with(",") && inner.size() > 1 && inner[1] >= '0' && inner[1] <= '9') {
      return InvalidArgument("{,n} is not supported; write {0,n}, or \\{ for a {");
    }
    if (!TakeNumber(inner, min)) return false;
    *max = *min;
    if (inner.starts_with(",")) {
      inner.remove_prefix(1);
      if (!TakeNumber(inner, max)) *max = kUnlimited;
    }
    if (!inner.starts_with("}")) return false;
    inner.remove_prefix(1);
    if (*min > *max) return InvalidArgument("{m,n} has m above n");
    if (std::max(*min, *max == kUnlimited ? 0 : *max) > kMaxRegexRepetitions) {
      return ResourceExhausted(
          fmt::format("{{m,n}} repeats more than {} times", kMaxRegexRepetitions));
    }
    rest_ = inner;
    return true;
  }

  static bool TakeNumber(std::string_view& rest, uint32_t* value) {
    uint64_t number = 0;
    size_t size = 0;
    for (; size < rest.size() && rest[size] >= '0' && rest[size] <= '9'; ++size) {
      number =
          std::min<uint64_t>(number * 10 + static_cast<uint64_t>(rest[size] - '0'), kUnlimited - 1);
    }
    rest.remove_prefix(size);
    *value = static_cast<uint32_t>(number);
    return size > 0;
  }

  const std::string_view pattern_;
  std::string_view rest_;
  const RegexSyntax& syntax_;
  Grammar& grammar_;
  int depth_ = 0;  // of groups
};

}  // namespace

Result<NodeId> ParseRegex(std::string_view pattern, const RegexSyntax& syntax, Grammar& grammar) {
  return RegexParser(pattern, syntax, grammar).Parse();
}

}  // namespace inflight::grammar
