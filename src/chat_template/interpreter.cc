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

uint64_t LiveScopes::Push(Scope* scope) {
  scopes_.push_back(scope);
  return ++num_made_;
}

Scope* LiveScopes::Find(uint64_t number) const {
  const auto found = std::ranges::lower_bound(scopes_, number, {}, &Scope::number);
  return found != scopes_.end() && (*found)->number() == number ? *found : nullptr;
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
    : runtime_(now_s), root_(nullptr, nullptr, live_) {
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
      scope_->Set(statement.macro->name,
                  Value(BoundMacro{.node = statement.macro.get(), .home = scope_->number()}));
      break;
    case StatementKind::kCall:
      CallBlock(statement, out);
      break;
    case StatementKind::kScope: {
      Scope inner(scope_, loop_, live_);
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
      Scope inner(outer, outer_loop, live_);
      scope_ = &inner;
      Assign(statement.targets, item);
      if (Evaluate(*statement.condition).Truthy()) kept.push_back(item);
      scope_ = outer;
    }
    items = std::move(kept);
  }
  Loop loop{.items = &items, .depth = outer_loop == nullptr ? 1 : outer_loop->depth + 1};
  for (; loop.index < items.size() && !runtime_.failed(); ++loop.index) {
    Scope inner(outer, &loop, live_);
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
    Scope inner(outer, outer_loop, live_);
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
    Scope inner(scope_, loop_, live_);
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

void Interpreter::CallBlock(const Statement& statement, std::string& out) {
  const Runtime::Recursion recursion(runtime_);
  const Value caller(BoundMacro{.node = statement.macro.get(), .home = scope_->number()});
  const Value text = Call(*statement.expr, &caller);
  if (runtime_.failed()) return;
  if (text.string() == nullptr)
    runtime_.Fail(
        fmt::format("a `call` block needs a text, got a value of type {}", text.TypeName()));
  else
    Write(*text.string(), out);
}

Value Interpreter::CallMacro(const BoundMacro& called, CallArguments arguments) {
  const MacroNode& macro = *called.node;
  Scope* const home = live_.Find(called.home);
  if (home == nullptr)
    return runtime_.Fail(
        fmt::format("the macro '{}' is called where it is not defined", macro.name));
  Scope inner(home, home->loop(), live_);
  SetSpecial(macro, arguments, inner);
  std::vector<std::string_view> names(macro.parameters.begin(), macro.parameters.end());
  const auto values = Bind(runtime_, macro.name, arguments, names);
  const size_t first_default = names.size() - macro.defaults.size();
  Scope* const outer = std::exchange(scope_, &inner);
  const Loop* const outer_loop = std::exchange(loop_, home->loop());
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

// Takes from `arguments` what the body has by the names `caller`, `varargs` and `kwargs`.
void Interpreter::SetSpecial(const MacroNode& macro, CallArguments& arguments, Scope& scope) {
  const std::vector<std::string>& parameters = macro.parameters;
  const auto has = [&](bool is_read, std::string_view name) {
    return is_read && std::ranges::find(parameters, name) == parameters.end();
  };
  auto& [positional, named, unpacked] = arguments;
  if (has(macro.reads.caller, "caller")) {
    const auto found = std::ranges::find_if(
        named, [](const auto& argument) { return argument.first == "caller"; });
    const bool is_called_by_block = found != named.end();
    scope.Set("caller", is_called_by_block ? found->second : Value(Undefined{"caller"}));
    if (is_called_by_block) named.erase(found);
  }
  const auto num_bound =
      static_cast<std::ptrdiff_t>(std::min(positional.size(), parameters.size()));
  if (has(macro.reads.kwargs, "kwargs")) {
    DictItems rest;
    std::erase_if(named, [&](const auto& argument) {
      const auto first_unbound = parameters.begin() + num_bound;
      if (std::find(first_unbound, parameters.end(), argument.first) != parameters.end())
        return false;
      rest.emplace_back(argument.first, argument.second);
      return true;
    });
    scope.Set("kwargs", runtime_.Take(Value::MakeDict(std::move(rest))));
  }
  if (has(macro.reads.varargs, "varargs")) {
    const auto first = positional.begin() + num_bound;
    scope.Set("varargs", runtime_.NewList({first, positional.end()}, /*is_tuple=*/true));
    positional.erase(first, positional.end());
  }
}

}  // namespace inflight::chat_template
