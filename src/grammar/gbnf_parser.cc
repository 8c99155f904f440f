// SPDX-License-Identifier: Apache-2.0
// Grammars in GBNF, the notation of llama.cpp (ggml-org/llama.cpp/grammars/README.md), which other
// servers call EBNF: rules `name ::= ...` of literals, classes, `.`, groups, alternatives and
// repetitions, with comments from # to the end of a line. A rule ends where the next one begins, so
// that it may take any number of lines.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "grammar/budget.h"
#include "grammar/regex_escapes.h"
#include "grammar/translate.h"

namespace inflight::grammar {
namespace {

constexpr std::string_view kRootRule = "root";
constexpr std::string_view kDefines = "::=";
constexpr int kMaxQuantifiers = 4;                   // of one part: each is a node around it
constexpr uint32_t kMaxGbnfRepetitions = 1'000'000;  // of {m,n}

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

class GbnfParser {
 public:
  GbnfParser(std::string_view text, Grammar& grammar)
      : text_(text), rest_(text), grammar_(grammar) {}

  Result<NodeId> Parse() {
    auto parsed = ParseRules();
    if (parsed.ok()) return parsed;
    const std::string_view read = text_.substr(0, text_.size() - rest_.size());
    const auto line = 1 + std::ranges::count(read, '\n');
    return parsed.status().WithPrefix(fmt::format("grammar: line {}", line));
  }

 private:
  struct RuleEntry {
    RuleId id = 0;
    bool is_defined = false;
  };

  bool Take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  static void SkipBlanks(std::string_view& rest) {
    for (;;) {
      rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
      if (!rest.starts_with('#')) return;
      rest.remove_prefix(std::min(rest.find('\n'), rest.size()));
    }
  }
  std::string_view TakeName() {
    const auto end = std::ranges::find_if_not(rest_, IsNameChar);
    const std::string_view name = rest_.substr(0, static_cast<size_t>(end - rest_.begin()));
    rest_.remove_prefix(name.size());
    return name;
  }
  bool IsAtDefinition() const {
    std::string_view rest = rest_;
    rest.remove_prefix(
        static_cast<size_t>(std::ranges::find_if_not(rest, IsNameChar) - rest.begin()));
    if (rest.size() == rest_.size()) return false;
    SkipBlanks(rest);
    return rest.starts_with(kDefines);
  }

  RuleEntry& EntryOf(std::string_view name) {
    const auto [place, is_new] = rules_.try_emplace(std::string(name));
    if (is_new) place->second.id = grammar_.AddRule(std::string(name));
    return place->second;
  }

  Result<NodeId> ParseRules() {
    SkipBlanks(rest_);
    while (!rest_.empty()) {
      if (!IsAtDefinition()) {
        return InvalidArgument("a rule is expected here: its name, ::= and what it stands for");
      }
      RETURN_IF_ERROR(ParseRule());
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.is_defined) return InvalidArgument(fmt::format("rule {} is not defined", name));
    }
    const auto root = rules_.find(kRootRule);
    if (root == rules_.end()) {
      return InvalidArgument("rule root is not defined; it stands for the whole text");
    }
    return grammar_.Call(root->second.id);
  }

  Status ParseRule() {
    const std::string_view name = TakeName();
    SkipBlanks(rest_);
    Take(kDefines);
    RuleEntry& rule = EntryOf(name);
    if (rule.is_defined) return InvalidArgument(fmt::format("rule {} is defined twice", name));
    rule.is_defined = true;
    std::vector<NodeId> alternatives;
    std::vector<NodeId> continuations;  // of alternatives that begin with the rule itself
    do {
      std::vector<NodeId> parts;
      RETURN_IF_ERROR(ParseSequence(&parts));
      const bool begins_with_itself = !parts.empty() && IsCallOf(parts[0], rule.id);
      if (begins_with_itself) parts.erase(parts.begin());
      (begins_with_itself ? continuations : alternatives).push_back(grammar_.Sequence(parts));
    } while (Take("|"));
    NodeId body = grammar_.Choice(alternatives);
    if (!continuations.empty()) {  // a ::= a b | c is c b*
      const NodeId repeated = grammar_.Repeat(grammar_.Choice(continuations), 0, kUnlimited);
      body = grammar_.Sequence({body, repeated});
    }
    grammar_.SetBody(rule.id, body);
    if (!rest_.empty() && !IsAtDefinition()) {
      return InvalidArgument(fmt::format("'{}' is not expected here", rest_.substr(0, 1)));
    }
    return Status::Ok();
  }
  bool IsCallOf(NodeId id, RuleId rule) const {
    const Node& node = grammar_.node(id);
    return node.kind == Node::Kind::kCall && node.first == rule;
  }

  Result<NodeId> ParseAlternatives() {
    std::vector<NodeId> alternatives;
    do {
      std::vector<NodeId> parts;
      RETURN_IF_ERROR(ParseSequence(&parts));
      alternatives.push_back(grammar_.Sequence(parts));
    } while (Take("|"));
    return grammar_.Choice(alternatives);
  }

  // Up to what is no part of it, behind blanks.
  Status ParseSequence(std::vector<NodeId>* parts) {
    for (SkipBlanks(rest_); !rest_.empty(); SkipBlanks(rest_)) {
      const char c = rest_.front();
      if (c == '|' || c == ')') break;
      NodeId part = 0;
      if (IsNameChar(c)) {
        if (IsAtDefinition()) break;
        part = grammar_.Call(EntryOf(TakeName()).id);
      } else {
        ASSIGN_OR_RETURN(part, ParseAtom());
      }
      ASSIGN_OR_RETURN(parts->emplace_back(), ParseQuantifiers(part));
    }
    return Status::Ok();
  }

  Result<NodeId> ParseAtom() {
    if (Take("\"")) return ParseLiteral('"');
    if (Take("'")) return ParseLiteral('\'');
    if (Take("[")) return ParseClass();
    if (Take(".")) return grammar_.Chars(CharSet::Any());
    if (rest_.starts_with("(=")) {
      return InvalidArgument("looking ahead, (=...), is not supported");
    }
    if (rest_.starts_with("<") || rest_.starts_with("!")) {
      return InvalidArgument("tokens, <...>, are not supported; write their text as a literal");
    }
    if (!Take("(")) {
      return InvalidArgument(
          fmt::format("'{}' is not expected here; supported are literals, classes, ., groups and "
                      "names of rules",
                      rest_.substr(0, 1)));
    }
    if (++depth_ > kMaxNesting) {
      return InvalidArgument(fmt::format("groups nest deeper than {}", kMaxNesting));
    }
    ASSIGN_OR_RETURN(const NodeId inner, ParseAlternatives());
    if (!Take(")")) return InvalidArgument("a group is not closed by )");
    --depth_;
    return inner;
  }

  Result<NodeId> ParseLiteral(char quote) {
    std::string bytes;
    while (!Take({&quote, 1})) {
      if (rest_.empty() || rest_.front() == '\n') {
        return InvalidArgument(fmt::format("a literal is not closed by {}", quote));
      }
      ASSIGN_OR_RETURN(const uint32_t c, ParseChar());
      AppendUtf8(c, bytes);
    }
    return grammar_.Bytes(bytes);
  }

  Result<NodeId> ParseClass() {
    const bool is_complement = Take("^");
    std::vector<CharRange> ranges;
    while (!Take("]")) {
      if (rest_.empty() || rest_.front() == '\n') {
        return InvalidArgument("a class is not closed by ]");
      }
      ASSIGN_OR_RETURN(const uint32_t first, ParseChar());
      uint32_t last = first;
      if (rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
        Take("-");
        ASSIGN_OR_RETURN(last, ParseChar());
      }
      if (first > last) return InvalidArgument("a range of a class is reversed");
      ranges.push_back({first, last});
    }
    const CharSet set(std::move(ranges));
    return grammar_.Chars(is_complement ? set.Complement() : set);
  }

  Result<uint32_t> ParseChar() {
    if (!Take("\\")) {
      const uint32_t c = TakeChar(rest_);
      if (c == kNoChar) return InvalidArgument("the grammar is no UTF-8");
      return c;
    }
    const char name = rest_.empty() ? '\0' : rest_.front();
    uint32_t c = kNoChar;
    if (rest_.starts_with("U")) {
      Take("U");
      c = TakeHex(rest_, 8);
    } else if (name == 'x' || name == 'u' || name == '-' || name == '_' || !IsNameChar(name)) {
      ASSIGN_OR_RETURN(const CharSet set, TakeRegexEscape(rest_, /*is_in_class=*/true));
      c = set.ranges()[0].first;
    } else if (const size_t known = std::string_view("nrt").find(name);
               known != std::string::npos) {
      rest_.remove_prefix(1);
      c = static_cast<uint32_t>("\n\r\t"[known]);
    }
    if (c > kMaxChar || (c >= 0xD800 && c < 0xE000)) {
      return InvalidArgument(
          fmt::format("escape \\{} is not supported; supported are \\n \\r \\t \\xHH \\uHHHH "
                      "\\UHHHHHHHH and a backslash before what is no letter or digit",
                      name));
    }
    return c;
  }

  Result<NodeId> ParseQuantifiers(NodeId part) {
    for (int count = 0; count <= kMaxQuantifiers; ++count) {
      SkipBlanks(rest_);
      if (Take("*")) {
        part = grammar_.Repeat(part, 0, kUnlimited);
      } else if (Take("+")) {
        part = grammar_.Repeat(part, 1, kUnlimited);
      } else if (Take("?")) {
        part = grammar_.Optional(part);
      } else if (Take("{")) {
        ASSIGN_OR_RETURN(part, ParseCounts(part));
      } else {
        return part;
      }
    }
    return InvalidArgument(fmt::format("a part has more than {} quantifiers", kMaxQuantifiers));
  }

  Result<NodeId> ParseCounts(NodeId part) {
    constexpr const char* kForm = "a repetition is {m}, {m,} or {m,n}, with m not above n";
    uint32_t min = 0;
    SkipBlanks(rest_);
    if (!TakeNumber(&min)) return InvalidArgument(kForm);
    uint32_t max = min;
    SkipBlanks(rest_);
    if (Take(",")) {
      SkipBlanks(rest_);
      if (!TakeNumber(&max)) max = kUnlimited;
    }
    SkipBlanks(rest_);
    if (!Take("}") || min > max) return InvalidArgument(kForm);
    if (std::max(min, max == kUnlimited ? 0 : max) > kMaxGbnfRepetitions) {
      return ResourceExhausted(
          fmt::format("{{m,n}} repeats more than {} times", kMaxGbnfRepetitions));
    }
    return grammar_.Repeat(part, min, max);
  }
  bool TakeNumber(uint32_t* value) {
    const std::string_view digits =
        rest_.substr(0, std::min(rest_.find_first_not_of("0123456789"), rest_.size()));
    uint64_t number = 0;
    for (const char digit : digits) {
      number = std::min<uint64_t>(number * 10 + static_cast<uint64_t>(digit - '0'), kUnlimited - 1);
    }
    rest_.remove_prefix(digits.size());
    *value = static_cast<uint32_t>(number);
    return !digits.empty();
  }

  const std::string_view text_;
  std::string_view rest_;
  Grammar& grammar_;
  std::map<std::string, RuleEntry, std::less<>> rules_;
  int depth_ = 0;  // of groups
};

}  // namespace

Result<NodeId> TranslateGbnf(std::string_view text, Grammar& grammar) {
  return GbnfParser(text, grammar).Parse();
}

}  // namespace inflight::grammar
