// SPDX-License-Identifier: Apache-2.0
// JSON as text (RFC 8259): the parts that guides are made of.
//
// Blanks are one blank, or a new line with its indentation; they stand where writers put them:
// behind { [ , : and before } ]. Numbers have bounded digits, so that each is finite as a double.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/grammar.h"

namespace inflight::grammar {

inline constexpr uint32_t kMaxIndentation = 64;    // blanks or tabs behind a new line
inline constexpr uint32_t kMaxNumberDigits = 32;   // before the decimal point, and behind it
inline constexpr uint32_t kMaxExponentDigits = 2;  // of a number

class JsonText {
 public:
  explicit JsonText(Grammar& grammar) : grammar_(grammar) {}

  NodeId Blanks();  // none too
  NodeId String();
  NodeId Number();
  NodeId Integer();  // without fraction and exponent
  NodeId Object();   // any
  NodeId Array();
  NodeId Value();
  NodeId Literal(std::string_view name) { return grammar_.Bytes(name); }  // true, false, null

  // A character of a string in any of its spellings; the \u of one above U+FFFF is a pair.
  NodeId StringChar();
  // A character of the set, as it is where it may be, else as its short escape, or \u00XX.
  NodeId PlainChar(const CharSet& set);
  // `text` quoted, in the spelling of PlainChar.
  NodeId Quoted(std::string_view text);

  // `open` parts `close`, with blanks inside; `parts` may be left out where `may_be_empty`.
  NodeId Enclosed(char open, NodeId parts, char close, bool may_be_empty);
  NodeId Comma();                            // with the blanks behind it
  NodeId Member(NodeId name, NodeId value);  // "name": value

 private:
  RuleId ValueRule();

  Grammar& grammar_;
  std::optional<NodeId> blanks_;
  std::optional<RuleId> string_;
  std::optional<RuleId> number_;
  std::optional<RuleId> object_;
  std::optional<RuleId> array_;
  std::optional<RuleId> value_;
};

}  // namespace inflight::grammar
