// SPDX-License-Identifier: Apache-2.0
// The grammar of expressions, with Jinja's precedence:
//   conditional: or [if or [else conditional]]      or: and {or and}      and: not {and not}
//   not: [not] compare       compare: sum {(== != < <= > >= in | not in) sum}
//   sum: concat {(+ | -) concat}        concat: product {~ product}
//   product: power {(* | / | // | %) power}      power: unary {** unary}
//   unary: [- | +] unary | primary {postfix} {| filter} {is test}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat_template/lexer.h"
#include "chat_template/syntax.h"

namespace inflight::chat_template {

// Reads tokens from one position on. The first error sticks and moves to the end, so that callers
// need not look after each step.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Status& status() const { return status_; }

 protected:
  ExprPtr Expression();  // one expression
  ExprPtr WithTuples();  // or several, separated by commas
  ExprPtr WithoutIf();   // one that an `if` ends: the sequence of a `for`

  const Token& current() const { return tokens_[at_]; }
  bool Is(Token::Kind kind) const { return current().kind == kind; }
  bool IsName(std::string_view name) const {
    return Is(Token::Kind::kName) && current().text == name;
  }
  bool IsOperator(std::string_view op) const {
    return Is(Token::Kind::kOperator) && current().text == op;
  }
  void Advance() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  void Expect(std::string_view op);
  std::string ExpectName(std::string_view what);
  bool failed() const { return !status_.ok(); }
  void Fail(std::string_view message);
  void Refuse(std::string_view what);  // Jinja has it, this has not

  // Counts nesting of what the parser reads by recursion.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.nesting_ > 100) parser_.Fail("nests deeper than 100");
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

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

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  Status status_;
};

}  // namespace inflight::chat_template
