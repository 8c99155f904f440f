// SPDX-License-Identifier: Apache-2.0
// Expressions of the interpreter.
#include <fmt/format.h>

#include <algorithm>

#include "chat_template/builtins.h"
#include "chat_template/interpreter.h"
#include "chat_template/text.h"

namespace inflight::chat_template {

Value Interpreter::Evaluate(const Expr& expr) {
  const Runtime::Recursion recursion(runtime_);
  if (!runtime_.Charge(Runtime::kStepWork)) return {};
  runtime_.set_line(expr.line);
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.value;
    case ExprKind::kName:
      return Name(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return Sequence(expr);
    case ExprKind::kDict:
      return DictLiteral(expr);
    case ExprKind::kConcat:
      return Concat(expr);
    case ExprKind::kCompare:
      return Compare(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = Evaluate(*expr.operands[0]);
      const bool decided = left.Truthy() == (expr.kind == ExprKind::kOr);
      return decided || runtime_.failed() ? left : Evaluate(*expr.operands[1]);
    }
    case ExprKind::kConditional: {
      const bool holds = Evaluate(*expr.operands[0]).Truthy();
      const ExprPtr& chosen = expr.operands[holds ? 1 : 2];
      return chosen == nullptr ? Value(Undefined{"value of an 'if' without 'else'"})
                               : Evaluate(*chosen);
    }
    case ExprKind::kMember:
      return Member(expr);
    case ExprKind::kItem:
      return Item(expr);
    case ExprKind::kSlice:
      return Slice(expr);
    case ExprKind::kCall:
      return Call(expr, /*caller=*/nullptr);
    default:
      return EvaluateOperands(expr);
  }
}

// Those whose operands are evaluated first, all of them.
Value Interpreter::EvaluateOperands(const Expr& expr) {
  const Value first = Evaluate(*expr.operands[0]);
  const Value second = expr.operands.size() > 1 ? Evaluate(*expr.operands[1]) : Value();
  const CallArguments arguments = EvaluateArguments(expr.arguments);
  if (runtime_.failed()) return {};
  runtime_.set_line(expr.line);
  switch (expr.kind) {
    case ExprKind::kBinary:
      return Arithmetic(runtime_, expr.text, first, second);
    case ExprKind::kNot:
      return Value(!first.Truthy());
    case ExprKind::kNegate:
      return Arithmetic(runtime_, first.integer() ? "-" : "*",
                        first.integer() ? Value(int64_t{0}) : Value(-1.0), first);
    case ExprKind::kPlus:
      return Arithmetic(runtime_, "+", Value(int64_t{0}), first);
    case ExprKind::kFilter:
      return ApplyFilter(runtime_, expr.text, first, arguments);
    default:  // kTest
      return Value(ApplyTest(runtime_, expr.text, first, arguments));
  }
}

Value Interpreter::Name(const Expr& expr) {
  if (IsLoop(expr) && loop_ != nullptr)
    return runtime_.Fail("'loop' is supported only as loop.NAME");
  if (const Value* value = scope_->Find(expr.text)) return *value;
  if (const MacroNode* function = FindFunction(expr.text))
    return Value(BoundMacro{.node = function});
  return Value(Undefined{expr.text});
}

Value Interpreter::Sequence(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& operand : expr.operands) items.push_back(Evaluate(*operand));
  return runtime_.NewList(std::move(items), expr.kind == ExprKind::kTuple);
}

static std::optional<Key> KeyOfDict(const Value& value) {
  if (value.string() != nullptr) return Key(*value.string());
  const auto* const number = std::get_if<int64_t>(&value.storage());
  return number == nullptr ? std::nullopt : std::optional(Key(*number));
}

Value Interpreter::DictLiteral(const Expr& expr) {
  DictItems items;
  for (size_t i = 0; i + 1 < expr.operands.size(); i += 2) {
    const Value said = Evaluate(*expr.operands[i]);
    Value value = Evaluate(*expr.operands[i + 1]);
    if (runtime_.failed()) return {};
    std::optional<Key> key = KeyOfDict(said);
    if (!key)
      return runtime_.Fail(fmt::format(
          "a key of type {} is not supported; keys are texts and integers", said.TypeName()));
    const auto found = std::find_if(items.begin(), items.end(),
                                    [&](const auto& item) { return item.first == *key; });
    if (found != items.end())
      found->second = std::move(value);
    else
      items.emplace_back(*std::move(key), std::move(value));
  }
  return runtime_.Take(Value::MakeDict(std::move(items)));
}

Value Interpreter::Concat(const Expr& expr) {
  std::string text;
  for (const ExprPtr& operand : expr.operands) Write(Evaluate(*operand).ToText(), text);
  return Value(std::move(text));
}

Value Interpreter::Compare(const Expr& expr) {
  Value left = Evaluate(*expr.operands[0]);
  for (size_t i = 0; i < expr.operators.size() && !runtime_.failed(); ++i) {
    Value right = Evaluate(*expr.operands[i + 1]);
    if (runtime_.failed()) break;
    runtime_.set_line(expr.line);
    const std::string& op = expr.operators[i];
    bool holds = false;
    if (op == "==" || op == "!=") {
      holds = Equal(left, right) == (op == "==");
    } else if (op == "in" || op == "not in") {
      holds = Contains(runtime_, right, left) == (op == "in");
    } else {
      const bool swapped = op[0] == '>';
      const auto less = swapped ? Less(right, left) : Less(left, right);
      if (!less)
        return runtime_.Fail(
            fmt::format("'{}' does not compare {} and {}", op, left.TypeName(), right.TypeName()));
      holds = *less || (op.size() == 2 && Equal(left, right));
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::Member(const Expr& expr) {
  if (IsLoop(*expr.operands[0]) && loop_ != nullptr) return LoopMember(expr);
  const Value object = Evaluate(*expr.operands[0]);
  if (runtime_.failed()) return {};
  if (object.dict() != nullptr && IsDictMethod(expr.text))
    return runtime_.Fail(
        fmt::format("'.{0}' of a dict is Python's method, which is supported only as a call; write "
                    "['{0}'] for the member",
                    expr.text));
  return MemberOf(runtime_, object, expr.text);
}

Value Interpreter::LoopMember(const Expr& expr) {
  const auto size = static_cast<int64_t>(loop_->items->size());
  const auto index = static_cast<int64_t>(loop_->index);
  const std::string& name = expr.text;
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  // Loops nest, but only recursive ones count their depth.
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem")
    return index == 0 ? Value(Undefined{"loop.previtem"}) : (*loop_->items)[loop_->index - 1];
  if (name == "nextitem")
    return index + 1 == size ? Value(Undefined{"loop.nextitem"})
                             : (*loop_->items)[loop_->index + 1];
  return runtime_.Fail(
      fmt::format("loop.{} is not supported; supported are index, index0, revindex, revindex0, "
                  "first, last, length, depth, depth0, previtem, nextitem and cycle()",
                  name));
}

// The index counted from the end where negative; nothing outside of [0, size).
static std::optional<size_t> IndexIn(int64_t index, size_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  if (index < 0 || index >= static_cast<int64_t>(size)) return std::nullopt;
  return static_cast<size_t>(index);
}

Value Interpreter::Item(const Expr& expr) {
  const Value object = Evaluate(*expr.operands[0]);
  const Value key = Evaluate(*expr.operands[1]);
  if (runtime_.failed()) return {};
  if (key.string() != nullptr || object.is_undefined()) {
    Value found = MemberOf(runtime_, object, key.ToText());
    if (!found.is_undefined() || object.dict() == nullptr) return found;
    const MacroNode* const method = FindDictMethod(key.ToText());
    return method == nullptr ? found : Value(BoundMacro{.node = method});
  }
  const auto index = key.integer();
  const List* list = object.is_generator() ? nullptr : object.list();
  const std::string* text = object.string();
  if (index && list != nullptr) {
    if (const auto at = IndexIn(*index, list->items.size())) return list->items[*at];
  } else if (index && object.dict() != nullptr) {
    if (!runtime_.Charge(object.dict()->items.size() / 8)) return {};
    if (const Value* found = object.dict()->Find(*index)) return *found;
  } else if (index && text != nullptr) {
    if (!runtime_.Charge(8 * text->size())) return {};
    const std::vector<size_t> offsets = CharacterOffsets(*text);
    if (const auto at = IndexIn(*index, offsets.size() - 1))
      return Value(text->substr(offsets[*at], offsets[*at + 1] - offsets[*at]));
  }
  return Value(Undefined{fmt::format("item {}", key.ToText())});
}

Value Interpreter::Slice(const Expr& expr) {
  const Value object = Evaluate(*expr.operands[0]);
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.operands[i + 1] == nullptr) continue;
    const Value bound = Evaluate(*expr.operands[i + 1]);
    bounds[i] = bound.integer();
    if (!bounds[i] && !bound.is_none())
      runtime_.Fail(fmt::format("a slice needs integers, got a {}", bound.TypeName()));
  }
  if (runtime_.failed()) return {};
  const int64_t step = bounds[2].value_or(1);
  if (step == 0) return runtime_.Fail("the step of a slice must not be 0");
  const std::string* text = object.string();
  if (text == nullptr && (object.list() == nullptr || object.is_generator())) {
    if (object.is_undefined()) return MemberOf(runtime_, object, "slice");
    return runtime_.Fail(fmt::format("a value of type {} has no slices", object.TypeName()));
  }
  const std::vector<Value> items = Iterate(runtime_, object);
  const auto size = static_cast<int64_t>(items.size());
  // Python's bounds: counted from the end where negative, then clamped.
  const auto clamped = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    const int64_t at = *bound < 0 ? std::max<int64_t>(*bound, -size - 1) + size : *bound;
    return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
  };
  const int64_t begin = clamped(bounds[0], step > 0 ? 0 : size - 1);
  const int64_t end = clamped(bounds[1], step > 0 ? size : -1);
  std::vector<Value> out;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    out.push_back(items[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  if (text == nullptr) return runtime_.NewList(std::move(out), object.list()->is_tuple);
  return ApplyFilter(runtime_, "join", runtime_.NewList(std::move(out)), {});
}

CallArguments Interpreter::EvaluateArguments(const Arguments& arguments, const Value* caller) {
  CallArguments values;
  for (const ExprPtr& argument : arguments.positional)
    values.positional.push_back(Evaluate(*argument));
  for (const auto& [name, argument] : arguments.named)
    values.named.emplace_back(name, Evaluate(*argument));
  if (caller != nullptr) values.named.emplace_back("caller", *caller);
  if (arguments.list != nullptr) {
    for (Value& item : Iterate(runtime_, Evaluate(*arguments.list)))
      values.positional.push_back(std::move(item));
  }
  if (arguments.dict != nullptr) Unpack(Evaluate(*arguments.dict), values);
  return values;
}

void Interpreter::Unpack(Value dict, CallArguments& arguments) {
  if (runtime_.failed()) return;
  if (dict.dict() == nullptr) {
    runtime_.Fail(fmt::format("'**' needs a dict, got a value of type {}", dict.TypeName()));
    return;
  }
  if (!runtime_.ChargeItems(dict.dict()->items.size())) return;
  const auto num_written = static_cast<std::ptrdiff_t>(arguments.named.size());
  for (const auto& [key, value] : dict.dict()->items) {
    const auto written_end = arguments.named.begin() + num_written;
    if (key.text() == nullptr)
      runtime_.Fail("'**' needs a dict whose keys are texts");
    else if (std::any_of(arguments.named.begin(), written_end,
                         [&](const auto& written) { return written.first == *key.text(); }))
      runtime_.Fail(fmt::format("argument '{}' is given twice", *key.text()));
    else
      arguments.named.emplace_back(*key.text(), value);
  }
  arguments.unpacked = std::move(dict);
}

Value Interpreter::Call(const Expr& expr, const Value* caller) {
  const Expr& callee = *expr.operands[0];
  if (callee.kind == ExprKind::kMember) {
    if (IsLoop(*callee.operands[0]) && loop_ != nullptr) {
      const CallArguments arguments = EvaluateArguments(expr.arguments, caller);
      if (runtime_.failed()) return {};
      if (callee.text != "cycle" || arguments.positional.empty() || !arguments.named.empty())
        return runtime_.Fail(fmt::format(
            "loop.{}() is not supported; loop.cycle() with a value or more is", callee.text));
      return arguments.positional[loop_->index % arguments.positional.size()];
    }
    const Value object = Evaluate(*callee.operands[0]);
    const CallArguments arguments = EvaluateArguments(expr.arguments, caller);
    if (runtime_.failed()) return {};
    runtime_.set_line(expr.line);
    return CallMethod(runtime_, object, callee.text, arguments);
  }
  const Value function = Evaluate(callee);
  CallArguments arguments = EvaluateArguments(expr.arguments, caller);
  if (runtime_.failed()) return {};
  runtime_.set_line(expr.line);
  if (function.is_undefined())
    return runtime_.Fail(
        fmt::format("'{}' is undefined", std::get<Undefined>(function.storage()).name));
  if (!function.is_macro())
    return runtime_.Fail(fmt::format("a value of type {} cannot be called", function.TypeName()));
  const std::string& name = function.macro()->node->name;
  if (function.macro()->node == FindFunction(name)) return CallFunction(runtime_, name, arguments);
  if (function.macro()->node == FindDictMethod(name))
    return runtime_.Fail(fmt::format("the method '{0}' of a dict is called as .{0}()", name));
  return CallMacro(*function.macro(), std::move(arguments));
}

}  // namespace inflight::chat_template
