// SPDX-License-Identifier: Apache-2.0
// Jinja's tests: `value is NAME`.
#include <fmt/format.h>

#include <algorithm>

#include "chat_template/builtins.h"
#include "chat_template/text.h"

namespace inflight::chat_template {
namespace {

using Predicate = bool (*)(Runtime&, const Value&, const Value* argument);

bool IsFloat(const Value& value) { return std::holds_alternative<double>(value.storage()); }
bool IsInteger(const Value& value) { return std::holds_alternative<int64_t>(value.storage()); }

int64_t Remainder(Runtime& runtime, const Value& value, int64_t divisor) {
  const auto whole = value.integer();
  if (!whole)
    runtime.Fail(fmt::format("needs an integer, got a value of type {}", value.TypeName()));
  if (divisor == 0) runtime.Fail("divides by 0");
  return runtime.failed() || divisor == -1 ? 0 : *whole % divisor;
}

bool Ordered(Runtime& runtime, const Value& a, const Value& b, bool or_equal) {
  const auto less = Less(a, b);
  if (!less)
    runtime.Fail(fmt::format("'<' does not compare {} and {}", a.TypeName(), b.TypeName()));
  return less.value_or(false) || (or_equal && Equal(a, b));
}

bool HasCase(const Value& value, std::string (*change)(std::string_view)) {
  const std::string text = value.ToText();
  return text == change(text) && Upper(text) != Lower(text);
}

struct Test {
  std::string_view name;
  bool takes_argument;
  Predicate holds;
};

constexpr Test kTests[] = {
    {"boolean", false,
     [](Runtime&, const Value& v, const Value*) { return v.boolean() != nullptr; }},
    {"callable", false, [](Runtime&, const Value& v, const Value*) { return v.is_macro(); }},
    {"defined", false, [](Runtime&, const Value& v, const Value*) { return !v.is_undefined(); }},
    {"undefined", false, [](Runtime&, const Value& v, const Value*) { return v.is_undefined(); }},
    {"none", false, [](Runtime&, const Value& v, const Value*) { return v.is_none(); }},
    {"string", false, [](Runtime&, const Value& v, const Value*) { return v.string() != nullptr; }},
    {"number", false,
     [](Runtime&, const Value& v, const Value*) { return v.number().has_value(); }},
    {"integer", false, [](Runtime&, const Value& v, const Value*) { return IsInteger(v); }},
    {"float", false, [](Runtime&, const Value& v, const Value*) { return IsFloat(v); }},
    {"mapping", false, [](Runtime&, const Value& v, const Value*) { return v.dict() != nullptr; }},
    {"iterable", false,
     [](Runtime&, const Value& v, const Value*) {
       return v.is_undefined() || v.string() != nullptr || v.list() != nullptr ||
              v.dict() != nullptr;
     }},
    {"sequence", false,
     [](Runtime&, const Value& v, const Value*) {
       return v.is_undefined() || v.string() != nullptr || v.dict() != nullptr ||
              (v.list() != nullptr && !v.is_generator());
     }},
    {"true", false,
     [](Runtime&, const Value& v, const Value*) { return v.boolean() != nullptr && *v.boolean(); }},
    {"false", false,
     [](Runtime&, const Value& v, const Value*) {
       return v.boolean() != nullptr && !*v.boolean();
     }},
    {"odd", false,
     [](Runtime& r, const Value& v, const Value*) { return Remainder(r, v, 2) != 0; }},
    {"even", false,
     [](Runtime& r, const Value& v, const Value*) { return Remainder(r, v, 2) == 0; }},
    {"lower", false, [](Runtime&, const Value& v, const Value*) { return HasCase(v, Lower); }},
    {"upper", false, [](Runtime&, const Value& v, const Value*) { return HasCase(v, Upper); }},
    {"divisibleby", true,
     [](Runtime& r, const Value& v, const Value* a) {
       return Remainder(r, v, a->integer().value_or(0)) == 0;
     }},
    {"in", true, [](Runtime& r, const Value& v, const Value* a) { return Contains(r, *a, v); }},
    {"eq", true, [](Runtime&, const Value& v, const Value* a) { return Equal(v, *a); }},
    {"equalto", true, [](Runtime&, const Value& v, const Value* a) { return Equal(v, *a); }},
    {"==", true, [](Runtime&, const Value& v, const Value* a) { return Equal(v, *a); }},
    {"ne", true, [](Runtime&, const Value& v, const Value* a) { return !Equal(v, *a); }},
    {"!=", true, [](Runtime&, const Value& v, const Value* a) { return !Equal(v, *a); }},
    {"lt", true,
     [](Runtime& r, const Value& v, const Value* a) { return Ordered(r, v, *a, false); }},
    {"le", true,
     [](Runtime& r, const Value& v, const Value* a) { return Ordered(r, v, *a, true); }},
    {"gt", true,
     [](Runtime& r, const Value& v, const Value* a) { return Ordered(r, *a, v, false); }},
    {"ge", true,
     [](Runtime& r, const Value& v, const Value* a) { return Ordered(r, *a, v, true); }},
};

const Test* Find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [&](const Test& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace

bool HasTest(std::string_view name) { return Find(name) != nullptr; }

std::string TestNames() {
  std::string names;
  for (const Test& test : kTests) names.append(names.empty() ? "" : ", ").append(test.name);
  return names;
}

bool TestTakesArgument(std::string_view name) {
  const Test* test = Find(name);
  return test != nullptr && test->takes_argument;
}

bool ApplyTest(Runtime& runtime, std::string_view name, const Value& operand,
               const CallArguments& arguments) {
  const Test* test = Find(name);
  if (test == nullptr) {
    runtime.Fail(
        fmt::format("the test '{}' is not supported; supported are {}", name, TestNames()));
    return false;
  }
  const size_t expected = test->takes_argument ? 1 : 0;
  if (arguments.positional.size() != expected || !arguments.named.empty()) {
    runtime.Fail(fmt::format("the test '{}' takes {} arguments", name, expected));
    return false;
  }
  return test->holds(runtime, operand, expected == 1 ? arguments.positional.data() : nullptr);
}

}  // namespace inflight::chat_template
