// SPDX-License-Identifier: Apache-2.0
#include "chat_template/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "chat_template/builtins.h"

namespace inflight::chat_template {

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_)
    for (const auto& [key, value] : scope->variables_)
      if (key == name) return &value;
  return nullptr;
}

bool Scope::Defines(const MacroNode& macro) const {
  return std::ranges::any_of(variables_, [&](const auto& variable) {
    const auto* const found = std::get_if<const MacroNode*>(&variable.second.storage());
    return found != nullptr && *found == &macro && variable.first == macro.name;
  });
}

void Scope::Set(std::string_view name, Value value) {
  for (auto& [key, old] : variables_)
    if (key == name) {
      old = std::move(value);
      return;
    }
  variables_.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const std::vector<std::pair<std::string, Value>>& variables, int64_t now_s)
    : runtime_(now_s), root_(nullptr) {
  for (const auto& [name, value] : variables) root_.Set(name, value);
}

Result<std::string> Interpreter::Run(const Body& body) {
  std::string out;
  Execute(body, out);
  RETURN_IF_ERROR(runtime_.status());
  return out;
}

void Interpreter::Write(std::string_view text, std::string& out) {
  if (runtime_.Charge(text.size())) out += text;
}

Interpreter::Flow Interpreter::Execute(const Body& body, std::string& out) {
  const Runtime::Recursion recursion(runtime_);
  for (const Statement& statement : body) {
    if (runtime_.failed()) return Flow::kBreak;
    const Flow flow = Execute(statement, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Execute(const Statement& statement, std::string& out) {
  if (!runtime_.Charge(Runtime::kStepWork)) return Flow::kBreak;
  runtime_.set_line(statement.line);
  switch (statement.kind) {
    case StatementKind::kText:
      Write(statement.text, out);
      break;
    case StatementKind::kOutput: {
      const Value value = Evaluate(*statement.expr);
      if (value.name_space() != nullptr || value.is_macro() || value.is_generator())
        runtime_.Fail(fmt::format("a {} cannot be printed", value.TypeName()));
      if (!runtime_.failed()) Write(value.ToText(), out);
      break;
    }
    case StatementKind::kIf:
      return If(statement, out);
    case StatementKind::kFor:
      return For(statement, out);
    case StatementKind::kSet:
    case StatementKind::kSetBlock:
      Set(statement);
      break;
    case StatementKind::kMacro:
      scope_->Set(statement.macro->name, Value(statement.macro.get()));
      break;
    case StatementKind::kScope: {
      Scope inner(scope_);
      Scope* const outer = std::exchange(scope_, &inner);
      const Flow flow = Execute(statement.body, out);
      scope_ = outer;
      return flow;
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::If(const Statement& statement, std::string& out) {
  for (const Branch& branch : statement.branches) {
    const bool taken = branch.condition == nullptr || Evaluate(*branch.condition).Truthy();
    if (runtime_.failed()) return Flow::kBreak;
    if (taken) return Execute(branch.body, out);
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::For(const Statement& statement, std::string& out) {
  const Value sequence = Evaluate(*statement.expr);
  std::vector<Value> items = Iterate(runtime_, sequence);
  Scope* const outer = scope_;
  const Loop* const outer_loop = loop_;
  if (statement.condition != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      if (runtime_.failed()) return Flow::kBreak;
      Scope inner(outer);
      scope_ = &inner;
      Assign(statement.targets, item);
      if (Evaluate(*statement.condition).Truthy()) kept.push_back(item);
      scope_ = outer;
    }
    items = std::move(kept);
  }
  Loop loop{.items = &items, .depth = outer_loop == nullptr ? 1 : outer_loop->depth + 1};
  for (; loop.index < items.size() && !runtime_.failed(); ++loop.index) {
    Scope inner(outer);
    scope_ = &inner;
    loop_ = &loop;
    Assign(statement.targets, items[loop.index]);
    const Flow flow = Execute(statement.body, out);
    scope_ = outer;
    loop_ = outer_loop;
    if (flow == Flow::kBreak) break;
  }
  if (runtime_.failed()) return Flow::kBreak;
  if (items.empty() && !statement.otherwise.empty()) {
    Scope inner(outer);
    scope_ = &inner;
    const Flow flow = Execute(statement.otherwise, out);
    scope_ = outer;
    return flow;
  }
  return Flow::kNext;
}

void Interpreter::Set(const Statement& statement) {
  if (statement.kind == StatementKind::kSetBlock) {
    std::string text;
    Scope inner(scope_);
    Scope* const outer = std::exchange(scope_, &inner);
    Execute(statement.body, text);
    scope_ = outer;
    return scope_->Set(statement.targets[0], Value(std::move(text)));
  }
  Value value = Evaluate(*statement.expr);
  if (runtime_.failed()) return;
  if (statement.member.empty()) return Assign(statement.targets, value);
  const Value* target = scope_->Find(statement.targets[0]);
  Namespace* space = target == nullptr ? nullptr : target->name_space();
  runtime_.set_line(statement.line);
  if (space == nullptr)
    runtime_.Fail(fmt::format("'{}' is no namespace, so its '{}' cannot be set",
                              statement.targets[0], statement.member));
  else if (value.name_space() != nullptr)
    runtime_.Fail("a namespace cannot hold another namespace");
  else
    space->Set(statement.member, std::move(value));
}

void Interpreter::Assign(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) return scope_->Set(targets[0], value);
  const std::vector<Value> parts = Iterate(runtime_, value);
  if (runtime_.failed()) return;
  if (parts.size() != targets.size()) {
    runtime_.Fail(fmt::format("{} values for {} names", parts.size(), targets.size()));
    return;
  }
  for (size_t i = 0; i < parts.size(); ++i) scope_->Set(targets[i], parts[i]);
}

// The scope of its definition, among those around the call; null where that is over.
Scope* Interpreter::HomeOf(const MacroNode& macro) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent())
    if (scope->Defines(macro)) return scope;
  return nullptr;
}

Value Interpreter::CallMacro(const MacroNode& macro, const CallArguments& arguments) {
  Scope* const home = macro.is_nested ? HomeOf(macro) : &root_;
  if (home == nullptr)
    return runtime_.Fail(
        fmt::format("the macro '{}' is called where it is not defined", macro.name));
  std::vector<std::string_view> names(macro.parameters.begin(), macro.parameters.end());
  const auto values = Bind(runtime_, macro.name, arguments, names);
  const size_t first_default = names.size() - macro.defaults.size();
  Scope inner(home);
  Scope* const outer = std::exchange(scope_, &inner);
  const Loop* const outer_loop = std::exchange(loop_, nullptr);
  for (size_t i = 0; i < names.size() && !runtime_.failed(); ++i) {
    if (values[i] != nullptr)
      inner.Set(names[i], *values[i]);
    else if (i >= first_default)
      inner.Set(names[i], Evaluate(*macro.defaults[i - first_default]));
    else
      inner.Set(names[i], Value(Undefined{std::string(names[i])}));
  }
  std::string text;
  Execute(macro.body, text);
  scope_ = outer;
  loop_ = outer_loop;
  return Value(std::move(text));
}

}  // namespace inflight::chat_template
