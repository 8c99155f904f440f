// SPDX-License-Identifier: Apache-2.0
// Walks a template's tree with a conversation's variables. One object renders once.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_template/runtime.h"
#include "chat_template/syntax.h"

namespace inflight::chat_template {

// Variables of the template, a loop's pass, or a macro's call. Names point into the tree.
class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}

  const Value* Find(std::string_view name) const;  // here and above
  bool Defines(const MacroNode& macro) const;      // here
  void Set(std::string_view name, Value value);    // here
  Scope* parent() const { return parent_; }

 private:
  Scope* const parent_;
  std::vector<std::pair<std::string_view, Value>> variables_;
};

class Interpreter {
 public:
  Interpreter(const std::vector<std::pair<std::string, Value>>& variables, int64_t now_s);

  Result<std::string> Run(const Body& body);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // What `loop.NAME` tells; the enclosing loop's while one runs inside of it.
  struct Loop {
    const std::vector<Value>* items;
    size_t index = 0;
    int depth = 1;
  };

  // interpreter.cc: statements
  Flow Execute(const Body& body, std::string& out);
  Flow Execute(const Statement& statement, std::string& out);
  Flow If(const Statement& statement, std::string& out);
  Flow For(const Statement& statement, std::string& out);
  void Set(const Statement& statement);
  void Assign(const std::vector<std::string>& targets, const Value& value);
  Value CallMacro(const MacroNode& macro, const CallArguments& arguments);
  Scope* HomeOf(const MacroNode& macro);
  void Write(std::string_view text, std::string& out);

  // evaluate.cc: expressions
  Value Evaluate(const Expr& expr);
  Value EvaluateOperands(const Expr& expr);
  Value Name(const Expr& expr);
  Value Sequence(const Expr& expr);
  Value DictLiteral(const Expr& expr);
  Value Concat(const Expr& expr);
  Value Compare(const Expr& expr);
  Value Member(const Expr& expr);
  Value LoopMember(const Expr& expr);
  Value Item(const Expr& expr);
  Value Slice(const Expr& expr);
  Value Call(const Expr& expr);
  CallArguments EvaluateArguments(const Arguments& arguments);
  bool IsLoop(const Expr& expr) const {
    return expr.kind == ExprKind::kName && expr.text == "loop";
  }

  Runtime runtime_;
  Scope root_;
  Scope* scope_ = &root_;
  const Loop* loop_ = nullptr;
};

// a `op` b for + - * / // %, as Python computes it. Fails on other types, overflow, division by 0.
Value Arithmetic(Runtime& runtime, std::string_view op, const Value& a, const Value& b);

}  // namespace inflight::chat_template
