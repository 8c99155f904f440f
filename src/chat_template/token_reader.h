// SPDX-License-Identifier: Apache-2.0
// The tokens of a template, read from front to back.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_template/lexer.h"

namespace inflight::chat_template {

// The first error sticks and moves to the end, so that callers need not look after each step.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Status& status() const { return status_; }

 protected:
  const Token& current() const { return tokens_[at_]; }
  bool Is(Token::Kind kind) const { return current().kind == kind; }
  bool IsName(std::string_view name) const {
    return Is(Token::Kind::kName) && current().text == name;
  }
  bool IsOperator(std::string_view op) const {
    return Is(Token::Kind::kOperator) && current().text == op;
  }
  // Of the token behind the current one, which is not the end.
  bool NextIs(Token::Kind kind, std::string_view text) const {
    return tokens_[at_ + 1].kind == kind && tokens_[at_ + 1].text == text;
  }
  void Advance() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  void Expect(std::string_view op);
  std::string ExpectName(std::string_view what);
  std::string Found() const;  // the current token, for messages
  bool failed() const { return !status_.ok(); }
  void Fail(std::string_view message);
  // Of what Jinja has and this has not; `instead` says what to write.
  void Refuse(std::string_view what, std::string_view instead);

  // Counts nesting of what the parser reads by recursion.
  class Nested {
   public:
    explicit Nested(TokenReader& reader) : reader_(reader) {
      if (++reader_.nesting_ > 100) reader_.Fail("nests deeper than 100");
    }
    ~Nested() { --reader_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    TokenReader& reader_;
  };

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  Status status_;
};

}  // namespace inflight::chat_template
