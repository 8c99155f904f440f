// SPDX-License-Identifier: Apache-2.0
// The grammar of expressions, with Jinja's precedence:
//   conditional: or [if or [else conditional]]      or: and {or and}      and: not {and not}
//   not: [not] compare       compare: sum {(== != < <= > >= in | not in) sum}
//   sum: concat {(+ | -) concat}        concat: product {~ product}
//   product: power {(* | / | // | %) power}      power: unary {** unary}
//   unary: [- | +] unary | primary {postfix} {| filter} {is test}
#pragma once

#include <string>

#include "chat_template/syntax.h"
#include "chat_template/token_reader.h"

namespace inflight::chat_template {

class ExpressionParser : public TokenReader {
 protected:
  using TokenReader::TokenReader;

  ExprPtr Expression();  // one expression
  ExprPtr WithTuples();  // or several, separated by commas
  ExprPtr WithoutIf();   // one that an `if` ends: the sequence of a `for`

  SpecialNames reads_;  // of the names read so far

 private:
  ExprPtr Make(ExprKind kind, std::string text = {}) const;
  // Adds `child` and bounds the depth of the tree, since it is walked and destroyed by recursion.
  void Add(Expr& parent, ExprPtr child);
  void Count(Expr& parent, const ExprPtr& child);
  ExprPtr Binary(ExprKind kind, ExprPtr left, ExprPtr right, std::string text = {});

  ExprPtr Or();
  ExprPtr And();
  ExprPtr Not();
  ExprPtr Compare();
  ExprPtr Sum();
  ExprPtr Concat();
  ExprPtr Product();
  ExprPtr Power();
  ExprPtr Unary(bool with_filter);
  ExprPtr Primary();
  ExprPtr NameOrLiteral();
  ExprPtr Number();
  ExprPtr Parenthesized();
  ExprPtr ListLiteral();
  ExprPtr DictLiteral();
  ExprPtr Postfix(ExprPtr expr);
  ExprPtr Subscript(ExprPtr object);
  ExprPtr Call(ExprPtr callee);
  ExprPtr Filter(ExprPtr operand);
  ExprPtr Test(ExprPtr operand);
  void ReadArguments(Expr& call);
  void ReadArgument(Expr& call);
  void ReadUnpacked(Expr& call);
};

}  // namespace inflight::chat_template
