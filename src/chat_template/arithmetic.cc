// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "chat_template/interpreter.h"
#include "chat_template/text.h"

namespace inflight::chat_template {
namespace {

// Python rounds towards minus infinity; the remainder has the divisor's sign.
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value OfIntegers(Runtime& runtime, std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else {
    if (b == 0) return runtime.Fail("division by 0");
    if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
    overflow = b == -1 && a == INT64_MIN;
    if (!overflow) result = op == "//" ? FloorDivide(a, b) : a - FloorDivide(a, b) * b;
  }
  if (overflow) return runtime.Fail(fmt::format("'{}' exceeds 64 bits", op));
  return Value(result);
}

Value OfNumbers(Runtime& runtime, std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (b == 0) return runtime.Fail("division by 0");
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Value Repeated(Runtime& runtime, const Value& sequence, int64_t count) {
  const size_t times = static_cast<size_t>(std::max<int64_t>(0, count));
  const size_t size =
      sequence.string() != nullptr ? sequence.string()->size() : sequence.list()->items.size();
  if (size == 0) return sequence;
  const size_t work = sequence.string() != nullptr ? size : size * Runtime::kItemWork;
  if (times > static_cast<size_t>(Runtime::kMaxWork) || !runtime.Charge(times * work))
    return runtime.Fail("a repetition is too long");
  if (const std::string* text = sequence.string()) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += *text;
    return Value(std::move(out));
  }
  std::vector<Value> items;
  for (size_t i = 0; i < times; ++i)
    items.insert(items.end(), sequence.list()->items.begin(), sequence.list()->items.end());
  return runtime.NewList(std::move(items), sequence.list()->is_tuple);
}

bool IsSequence(const Value& value) {
  return value.string() != nullptr || (value.list() != nullptr && !value.is_generator());
}

// As Python's markupsafe adds them: what is not `safe` is escaped.
Value SafeSum(Runtime& runtime, const Value& a, const Value& b) {
  const auto part = [](const Value& value) {
    return value.is_safe() ? *value.string() : EscapedForHtml(*value.string());
  };
  std::string sum = part(a) + part(b);
  return runtime.Charge(sum.size()) ? Value::MakeSafe(std::move(sum)) : Value();
}

}  // namespace

Value Arithmetic(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  for (const Value* side : {&a, &b})
    if (side->is_undefined())
      return runtime.Fail(
          fmt::format("'{}' is undefined", std::get<Undefined>(side->storage()).name));
  if (const auto x = a.integer(), y = b.integer(); x && y) return OfIntegers(runtime, op, *x, *y);
  if (const auto x = a.number(), y = b.number(); x && y) return OfNumbers(runtime, op, *x, *y);
  if (op == "+" && a.string() != nullptr && b.string() != nullptr) {
    if (!runtime.Charge(a.string()->size() + b.string()->size())) return {};
    if (a.is_safe() || b.is_safe()) return SafeSum(runtime, a, b);
    return Value(*a.string() + *b.string());
  }
  if (op == "+" && a.list() != nullptr && b.list() != nullptr && IsSequence(a) && IsSequence(b) &&
      a.list()->is_tuple == b.list()->is_tuple) {
    if (!runtime.ChargeItems(a.list()->items.size() + b.list()->items.size())) return {};
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    return runtime.NewList(std::move(items), a.list()->is_tuple);
  }
  if (op == "*" && IsSequence(a) && b.integer()) return Repeated(runtime, a, *b.integer());
  if (op == "*" && IsSequence(b) && a.integer()) return Repeated(runtime, b, *a.integer());
  if (op == "%" && a.string() != nullptr)
    return runtime.Fail("formatting a text with '%' is not supported; join texts with ~");
  return runtime.Fail(fmt::format("'{}' does not join {} and {}", op, a.TypeName(), b.TypeName()));
}

}  // namespace inflight::chat_template
