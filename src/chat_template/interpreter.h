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

// What `loop.NAME` tells; the enclosing loop's while one runs inside of it.
struct Loop {
  const std::vector<Value>* items;
  size_t index = 0;
  int depth = 1;
};

class Scope;

// Those that have not ended, innermost last. Their numbers grow and begin with 1.
class LiveScopes {
 public:
  uint64_t Push(Scope* scope);
  void Pop() { scopes_.pop_back(); }
  Scope* Find(uint64_t number) const;  // null where that has ended

 private:
  std::vector<Scope*> scopes_;
  uint64_t num_made_ = 0;
};

// Variables of the template, a loop's pass, or a macro's call. Names point into the tree.
class Scope {
 public:
  Scope(Scope* parent, const Loop* loop, LiveScopes& live)
      : parent_(parent), loop_(loop), live_(live), number_(live.Push(this)) {}
  ~Scope() { live_.Pop(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  const Value* Find(std::string_view name) const;  // here and above
  void Set(std::string_view name, Value value);    // here
  const Loop* loop() const { return loop_; }
  uint64_t number() const { return number_; }

 private:
  Scope* const parent_;
  const Loop* const loop_;  // the innermost around it; may be null
  LiveScopes& live_;
  const uint64_t number_;
  std::vector<std::pair<std::string_view, Value>> variables_;
};

class Interpreter {
 public:
  Interpreter(const std::vector<std::pair<std::string, Value>>& variables, int64_t now_s);

  Result<std::string> Run(const Body& body);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // interpreter.cc: statements
  Flow Execute(const Body& body, std::string& out);
  Flow Execute(const Statement& statement, std::string& out);
  Flow If(const Statement& statement, std::string& out);
  Flow For(const Statement& statement, std::string& out);
  void Set(const Statement& statement);
  void Assign(const std::vector<std::string>& targets, const Value& value);
  void CallBlock(const Statement& statement, std::string& out);
  Value CallMacro(const BoundMacro& called, CallArguments arguments);
  void SetSpecial(const MacroNode& macro, CallArguments& arguments, Scope& scope);
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
  // `caller`: of a `call` block, else null.
  Value Call(const Expr& expr, const Value* caller);
  CallArguments EvaluateArguments(const Arguments& arguments, const Value* caller = nullptr);
  void Unpack(Value dict, CallArguments& arguments);
  bool IsLoop(const Expr& expr) const {
    return expr.kind == ExprKind::kName && expr.text == "loop";
  }

  Runtime runtime_;
  LiveScopes live_;
  Scope root_;
  Scope* scope_ = &root_;
  const Loop* loop_ = nullptr;
};

// a `op` b for + - * / // %, as Python computes it. Fails on other types, overflow, division by 0.
Value Arithmetic(Runtime& runtime, std::string_view op, const Value& a, const Value& b);

}  // namespace inflight::chat_template
