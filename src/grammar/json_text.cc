// SPDX-License-Identifier: Apache-2.0
#include "grammar/json_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "json/json_writer.h"

namespace inflight::grammar {
namespace {

CharSet HexDigits() { return CharSet({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}); }

// Characters that stand in a string as they are.
CharSet UnescapedChars() { return CharSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).Complement(); }

CharSet BareNameChars() {
  return CharSet({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}, {'-', '-'}, {'.', '.'}})
      .Union(CharSet({{0, 0x7F}}).Complement());
}

}  // namespace

bool IsBareName(std::string_view name) {
  const auto is_of_name = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
  };
  return !name.empty() && std::ranges::all_of(name, is_of_name);
}

NodeId BareNames(Grammar& grammar) {
  return grammar.Repeat(grammar.Chars(BareNameChars()), 1, kUnlimited);
}

NodeId JsonText::Literal(std::string_view name) {
  if (!style_.is_python) return grammar_.Bytes(name);
  if (name == "null") return grammar_.Bytes("None");
  return grammar_.Bytes(name == "true" ? "True" : "False");
}

NodeId JsonText::Blanks() {
  if (!style_.has_blanks) return grammar_.Empty();
  if (!blanks_) {
    const NodeId indentation =
        grammar_.Choice({grammar_.Repeat(grammar_.Char(' '), 0, kMaxIndentation),
                         grammar_.Repeat(grammar_.Char('\t'), 1, kMaxIndentation)});
    const NodeId line = grammar_.Sequence(
        {grammar_.Optional(grammar_.Char('\r')), grammar_.Char('\n'), indentation});
    const RuleId rule =
        grammar_.AddRule("JSON's blanks", grammar_.Choice({grammar_.Char(' '), line}));
    blanks_ = grammar_.Optional(grammar_.Call(rule));
  }
  return *blanks_;
}

NodeId JsonText::StringChar() {
  if (style_.is_raw) return grammar_.Chars(CharSet::Any());
  const NodeId hex = grammar_.Chars(HexDigits());
  const auto digits = [&](const CharSet& set) { return grammar_.Chars(set); };
  const CharSet d = CharSet({{'d', 'd'}, {'D', 'D'}});
  const CharSet not_d = CharSet({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}});
  const CharSet high = CharSet({{'8', '9'}, {'a', 'b'}, {'A', 'B'}});
  const CharSet low = CharSet({{'c', 'f'}, {'C', 'F'}});
  const NodeId two = grammar_.Repeat(hex, 2, 2);
  const NodeId plain =
      grammar_.Choice({grammar_.Sequence({digits(not_d), hex, two}),
                       grammar_.Sequence({digits(d), digits(CharSet({{'0', '7'}})), two})});
  const NodeId pair = grammar_.Sequence(
      {digits(d), digits(high), two, grammar_.Bytes("\\u"), digits(d), digits(low), two});
  const NodeId unicode = grammar_.Sequence(
      {grammar_.Char('u'), style_.is_python ? plain : grammar_.Choice({plain, pair})});
  const uint32_t slash = style_.is_python ? U'"' : U'/';  // Python would keep the backslash
  const CharSet short_ones({{'"', '"'},
                            {'\\', '\\'},
                            {slash, slash},
                            {'b', 'b'},
                            {'f', 'f'},
                            {'n', 'n'},
                            {'r', 'r'},
                            {'t', 't'}});
  const NodeId escape = grammar_.Sequence(
      {grammar_.Char('\\'), grammar_.Choice({grammar_.Chars(short_ones), unicode})});
  return grammar_.Choice({grammar_.Chars(UnescapedChars()), escape});
}

NodeId JsonText::PlainChar(const CharSet& set) {
  if (style_.is_raw) return grammar_.Chars(set);
  const auto has_escaped = [](const CharRange& range) {
    const auto has = [&](uint32_t c) { return range.first <= c && c <= range.last; };
    return range.first < 0x20 || has('"') || has('\\');
  };
  if (std::ranges::none_of(set.ranges(), has_escaped)) return grammar_.Chars(set);
  std::vector<NodeId> choices = {grammar_.Chars(set.Intersection(UnescapedChars()))};
  const CharSet escaped = set.Intersection(UnescapedChars().Complement());
  for (const CharRange& range : escaped.ranges()) {
    for (uint32_t c = range.first; c <= range.last; ++c) {
      std::string quoted;
      json::AppendString(quoted, std::string(1, static_cast<char>(c)));
      choices.push_back(grammar_.Bytes(std::string_view(quoted).substr(1, quoted.size() - 2)));
    }
  }
  return grammar_.Choice(choices);
}

std::string JsonText::Content(std::string_view text) const {
  if (style_.is_raw) return std::string(text);
  std::string quoted;
  json::AppendString(quoted, text);
  return quoted.substr(1, quoted.size() - 2);
}

NodeId JsonText::Quoted(std::string_view text) {
  const std::string content = Content(text);
  const bool is_left_out = !style_.never.empty() && content.find(style_.never) != std::string::npos;
  return is_left_out ? grammar_.Never() : grammar_.Bytes(style_.quote + content + style_.quote);
}

NodeId JsonText::Name(std::string_view text) {
  return style_.has_bare_names && IsBareName(text) ? grammar_.Bytes(text) : Quoted(text);
}

NodeId JsonText::AnyName() { return style_.has_bare_names ? BareNames(grammar_) : String(); }

NodeId JsonText::QuotedRule(RuleId contents) {
  const NodeId quote = grammar_.Bytes(style_.quote);
  return grammar_.Sequence({quote, grammar_.Call(contents), quote});
}

NodeId JsonText::String() {
  if (!string_) {
    const NodeId quote = grammar_.Bytes(style_.quote);
    const NodeId chars =
        contents_ ? grammar_.Call(*contents_) : grammar_.Repeat(StringChar(), 0, kUnlimited);
    string_ = grammar_.AddRule("a JSON string", grammar_.Sequence({quote, chars, quote}));
  }
  return grammar_.Call(*string_);
}

NodeId JsonText::Integer() {
  const NodeId digit = grammar_.Chars(CharSet({{'0', '9'}}));
  const NodeId large = grammar_.Sequence(
      {grammar_.Chars(CharSet({{'1', '9'}})), grammar_.Repeat(digit, 0, kMaxNumberDigits - 1)});
  return grammar_.Sequence(
      {grammar_.Optional(grammar_.Char('-')), grammar_.Choice({grammar_.Char('0'), large})});
}

NodeId JsonText::Number() {
  if (!number_) {
    const NodeId digit = grammar_.Chars(CharSet({{'0', '9'}}));
    const NodeId fraction =
        grammar_.Sequence({grammar_.Char('.'), grammar_.Repeat(digit, 1, kMaxNumberDigits)});
    const NodeId exponent =
        grammar_.Sequence({grammar_.Chars(CharSet({{'e', 'e'}, {'E', 'E'}})),
                           grammar_.Optional(grammar_.Chars(CharSet({{'+', '+'}, {'-', '-'}}))),
                           grammar_.Repeat(digit, 1, kMaxExponentDigits)});
    number_ = grammar_.AddRule(
        "a JSON number",
        grammar_.Sequence({Integer(), grammar_.Optional(fraction), grammar_.Optional(exponent)}));
  }
  return grammar_.Call(*number_);
}

NodeId JsonText::Comma() { return grammar_.Sequence({grammar_.Char(','), Blanks()}); }

NodeId JsonText::Member(NodeId name, NodeId value) {
  return grammar_.Sequence({name, grammar_.Char(':'), Blanks(), value});
}

NodeId JsonText::Enclosed(char open, NodeId parts, char close, bool may_be_empty) {
  const NodeId inner = grammar_.Sequence({parts, Blanks()});
  return grammar_.Sequence({grammar_.Char(static_cast<uint8_t>(open)), Blanks(),
                            may_be_empty ? grammar_.Optional(inner) : inner,
                            grammar_.Char(static_cast<uint8_t>(close))});
}

NodeId JsonText::Object() {
  if (!object_) {
    object_ = grammar_.AddRule("a JSON object");
    const NodeId member = Member(AnyName(), Value());
    const NodeId more = grammar_.Sequence({Comma(), member});
    const NodeId members = grammar_.Sequence({member, grammar_.Repeat(more, 0, kUnlimited)});
    grammar_.SetBody(*object_, Enclosed('{', members, '}', /*may_be_empty=*/true));
  }
  return grammar_.Call(*object_);
}

NodeId JsonText::Array() {
  if (!array_) {
    array_ = grammar_.AddRule("a JSON array");
    const NodeId more = grammar_.Sequence({Comma(), Value()});
    const NodeId values = grammar_.Sequence({Value(), grammar_.Repeat(more, 0, kUnlimited)});
    grammar_.SetBody(*array_, Enclosed('[', values, ']', /*may_be_empty=*/true));
  }
  return grammar_.Call(*array_);
}

RuleId JsonText::ValueRule() {
  if (!value_) {
    value_ = grammar_.AddRule("a JSON value");
    grammar_.SetBody(*value_,
                     grammar_.Choice({Object(), Array(), String(), Number(), Literal("true"),
                                      Literal("false"), Literal("null")}));
  }
  return *value_;
}

NodeId JsonText::Value() { return grammar_.Call(ValueRule()); }

}  // namespace inflight::grammar
