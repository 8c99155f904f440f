// SPDX-License-Identifier: Apache-2.0
// JSON as text (RFC 8259): the parts that guides are made of.
//
// Blanks are one blank, or a new line with its indentation; they stand where writers put them:
// behind { [ , : and before } ]. Numbers have bounded digits, so that each is finite as a double.
// The same parts make values that are written in another style, such as Python's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/grammar.h"

namespace inflight::grammar {

inline constexpr uint32_t kMaxIndentation = 64;    // blanks or tabs behind a new line
inline constexpr uint32_t kMaxNumberDigits = 32;   // before the decimal point, and behind it
inline constexpr uint32_t kMaxExponentDigits = 2;  // of a number

// What differs where values are not JSON, or stand where a text ends them.
struct ValueStyle {
  std::string quote = "\"";     // before and behind a string
  std::string never = {};       // a text that no string has; empty: none is left out
  bool is_raw = false;          // characters of strings stand as they are, without escapes
  bool is_python = false;       // True, False, None, and the escapes that Python's strings have
  bool has_bare_names = false;  // of members: they have no quotes where IsBareName
  bool has_blanks = true;
};

// Letters and digits of ASCII, _ - . and any character that is not of ASCII; one at least.
bool IsBareName(std::string_view name);
NodeId BareNames(Grammar& grammar);

class JsonText {
 public:
  explicit JsonText(Grammar& grammar, ValueStyle style = {})
      : grammar_(grammar), style_(std::move(style)) {}

  // The contents of any string, where the style's `never` makes them fewer.
  void SetContents(std::shared_ptr<const Dfa> contents) {
    contents_ = grammar_.AddRule("contents of strings", std::move(contents));
  }

  NodeId Blanks();  // none too
  NodeId String();
  NodeId Number();
  NodeId Integer();  // without fraction and exponent
  NodeId Object();   // any
  NodeId Array();
  NodeId Value();
  NodeId Literal(std::string_view name);  // true, false, null
  NodeId AnyName();                       // of a member

  // A character of a string in any of its spellings; the \u of one above U+FFFF is a pair.
  NodeId StringChar();
  // A character of the set, as it is where it may be, else as its short escape, or \u00XX.
  NodeId PlainChar(const CharSet& set);
  // `text` between its quotes, in the spelling of PlainChar.
  std::string Content(std::string_view text) const;
  NodeId Quoted(std::string_view text);
  NodeId Name(std::string_view text);  // of a member
  NodeId QuotedRule(RuleId contents);  // a string

  // `open` parts `close`, with blanks inside; `parts` may be left out where `may_be_empty`.
  NodeId Enclosed(char open, NodeId parts, char close, bool may_be_empty);
  NodeId Comma();                            // with the blanks behind it
  NodeId Member(NodeId name, NodeId value);  // "name": value

 private:
  RuleId ValueRule();

  Grammar& grammar_;
  const ValueStyle style_;
  std::optional<RuleId> contents_;
  std::optional<NodeId> blanks_;
  std::optional<RuleId> string_;
  std::optional<RuleId> number_;
  std::optional<RuleId> object_;
  std::optional<RuleId> array_;
  std::optional<RuleId> value_;
};

}  // namespace inflight::grammar
