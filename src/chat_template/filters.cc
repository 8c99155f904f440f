// SPDX-License-Identifier: Apache-2.0
// Jinja's filters, and transformers' `tojson`, which escapes nothing for HTML.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat_template/builtins.h"
#include "chat_template/order_filters.h"
#include "chat_template/text.h"

namespace inflight::chat_template {
namespace {

using Filter = Value (*)(Runtime&, const Value&, const CallArguments&);

Value Trim(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "trim", arguments, {"chars"});
  const std::string text = value.ToText();
  if (values[0] == nullptr || values[0]->is_none())
    return runtime.NewText(std::string(Strip(text)));
  const std::string chars = values[0]->ToText();
  return runtime.NewText(std::string(StripRight(StripLeft(text, chars), chars)));
}

Value Length(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "length", arguments, {});
  size_t size = 0;
  if (const std::string* text = value.string())
    size = NumCharacters(*text);
  else if (const List* list = value.list())
    size = list->items.size();
  else if (const Dict* dict = value.dict())
    size = dict->items.size();
  else if (!value.is_undefined())
    return runtime.Fail(fmt::format("length: a value of type {} has none", value.TypeName()));
  return Value(static_cast<int64_t>(size));
}

Value WriteJson(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values =
      Bind(runtime, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (runtime.failed()) return {};
  JsonStyle style;
  style.ensure_ascii = values[0] != nullptr && values[0]->Truthy();
  style.sort_keys = values[3] != nullptr && values[3]->Truthy();
  if (values[1] != nullptr && !values[1]->is_none()) {
    style.indent = values[1]->integer();
    style.item_separator = ",";
    if (!style.indent || *style.indent > 100)
      return runtime.Fail("tojson: indent needs an integer up to 100");
  }
  if (values[2] != nullptr && !values[2]->is_none()) {
    const List* pair = values[2]->list();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].string() == nullptr ||
        pair->items[1].string() == nullptr)
      return runtime.Fail("tojson: separators needs two texts");
    style.item_separator = *pair->items[0].string();
    style.key_separator = *pair->items[1].string();
  }
  auto text = ToJson(value, style);
  if (!text.ok()) return runtime.Fail(text.status().message());
  return runtime.NewText(*std::move(text));
}

Value Join(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "join", arguments, {"d", "attribute"});
  const std::string separator = values[0] == nullptr ? "" : values[0]->ToText();
  std::string out;
  bool first = true;
  for (const Value& item : Iterate(runtime, value)) {
    const std::string text = values[1] == nullptr
                                 ? item.ToText()
                                 : MemberOf(runtime, item, values[1]->ToText()).ToText();
    if (!runtime.Charge(text.size() + separator.size())) return {};
    if (!first) out += separator;
    first = false;
    out += text;
  }
  return Value(std::move(out));
}

template <std::string (*change)(std::string_view)>
Value Change(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "the filter", arguments, {});
  return runtime.NewText(change(value.ToText()));
}

Value Default(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "default", arguments, {"default_value", "boolean"});
  const bool by_truth = values[1] != nullptr && values[1]->Truthy();
  if (!value.is_undefined() && (!by_truth || value.Truthy())) return value;
  return values[0] == nullptr ? Value(std::string()) : *values[0];
}

Value ReplaceText(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  if (runtime.failed()) return {};
  CallArguments texts{.positional = {Value(values[0]->ToText()), Value(values[1]->ToText())},
                      .named = {}};
  if (values[2] != nullptr) texts.positional.push_back(*values[2]);
  return CallMethod(runtime, Value(value.ToText()), "replace", texts);
}

Value First(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "first", arguments, {});
  const std::vector<Value> items = Iterate(runtime, value);
  return items.empty() ? Value(Undefined{"first item"}) : items.front();
}

Value Last(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "last", arguments, {});
  const std::vector<Value> items = Iterate(runtime, value);
  return items.empty() ? Value(Undefined{"last item"}) : items.back();
}

Value ToList(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "list", arguments, {});
  return runtime.NewList(Iterate(runtime, value));
}

Value ToString(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "string", arguments, {});
  return runtime.NewText(value.ToText());
}

Value Safe(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "safe", arguments, {});  // nothing is escaped here
  return runtime.NewText(value.ToText());
}

std::optional<double> ParseFloat(const Value& value) {
  if (const auto number = value.number()) return number;
  if (value.string() == nullptr) return std::nullopt;
  std::string_view text = Strip(*value.string());
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Value ToInt(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "int", arguments, {"default"});
  if (const auto whole = value.integer()) return Value(*whole);
  const auto number = ParseFloat(value);
  if (number && std::abs(*number) < 9e15) return Value(static_cast<int64_t>(*number));
  if (number && std::isfinite(*number)) return runtime.Fail("int: the number is too large");
  return values[0] == nullptr ? Value(int64_t{0}) : *values[0];
}

Value ToFloat(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "float", arguments, {"default"});
  if (const auto number = ParseFloat(value)) return Value(*number);
  return values[0] == nullptr ? Value(0.0) : *values[0];
}

Value Items(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "items", arguments, {});
  if (value.is_undefined()) return runtime.NewList({});
  if (value.dict() == nullptr)
    return runtime.Fail(fmt::format("items: needs a dict, got a {}", value.TypeName()));
  return CallMethod(runtime, value, "items", {});
}

Value Reverse(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "reverse", arguments, {});
  std::vector<Value> items = Iterate(runtime, value);
  std::reverse(items.begin(), items.end());
  Value list = runtime.NewList(std::move(items));
  return value.string() == nullptr ? list : Join(runtime, list, {});
}

Value Indent(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "indent", arguments, {"width", "first", "blank"});
  std::string indentation(4, ' ');
  if (values[0] != nullptr && values[0]->string() != nullptr)
    indentation = *values[0]->string();
  else if (values[0] != nullptr)
    indentation = std::string(
        static_cast<size_t>(std::clamp<int64_t>(values[0]->integer().value_or(4), 0, 1000)), ' ');
  const bool blank = values[2] != nullptr && values[2]->Truthy();
  const std::vector<std::string> lines = SplitLines(value.ToText() + "\n", /*keep_ends=*/false);
  if (!runtime.Charge(lines.size() * (indentation.size() + 1))) return {};
  std::string out = values[1] != nullptr && values[1]->Truthy() ? indentation : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indentation;
    out += lines[i];
  }
  return runtime.NewText(std::move(out));
}

Value Map(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  if (!value.Truthy()) return runtime.NewList({});  // as Jinja, also of none
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const auto values = Bind(runtime, "map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : Iterate(runtime, value)) {
      if (runtime.failed()) return {};
      Value mapped = AttributeOf(runtime, item, values[0]->ToText());
      out.push_back(mapped.is_undefined() && values[1] != nullptr ? *values[1] : mapped);
    }
    return runtime.NewList(std::move(out));
  }
  const std::string name = arguments.positional[0].ToText();
  if (!HasFilter(name))
    return runtime.Fail(
        fmt::format("the filter '{}' is not supported; supported are {}", name, FilterNames()));
  CallArguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : Iterate(runtime, value)) {
    if (runtime.failed()) return {};
    out.push_back(ApplyFilter(runtime, name, item, rest));
  }
  return runtime.NewList(std::move(out));
}

// select, reject: (test, argument); selectattr, rejectattr: (attribute, test, argument).
template <bool wanted, bool by_attribute>
Value Choose(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  if (!value.Truthy()) return runtime.NewList({});  // as Jinja, also of none
  if (!arguments.named.empty()) return runtime.Fail("the filter takes no named arguments");
  CallArguments rest = arguments;
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) return runtime.Fail("the filter needs an attribute");
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    test = rest.positional[0].ToText();
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> out;
  for (const Value& item : Iterate(runtime, value)) {
    if (runtime.failed()) return {};
    const Value tested = by_attribute ? AttributeOf(runtime, item, attribute.ToText()) : item;
    const bool holds = test.empty() ? tested.Truthy() : ApplyTest(runtime, test, tested, rest);
    if (holds == wanted) out.push_back(item);
  }
  return runtime.NewList(std::move(out));
}

struct Named {
  std::string_view name;
  Filter apply;
};
constexpr Named kFilters[] = {{"capitalize", Change<Capitalize>},
                              {"count", Length},
                              {"d", Default},
                              {"default", Default},
                              {"dictsort", SortDict},
                              {"first", First},
                              {"float", ToFloat},
                              {"indent", Indent},
                              {"int", ToInt},
                              {"items", Items},
                              {"join", Join},
                              {"last", Last},
                              {"length", Length},
                              {"list", ToList},
                              {"lower", Change<Lower>},
                              {"map", Map},
                              {"max", GreatestItem},
                              {"min", LeastItem},
                              {"reject", Choose<false, false>},
                              {"rejectattr", Choose<false, true>},
                              {"replace", ReplaceText},
                              {"reverse", Reverse},
                              {"safe", Safe},
                              {"select", Choose<true, false>},
                              {"selectattr", Choose<true, true>},
                              {"sort", SortItems},
                              {"string", ToString},
                              {"tojson", WriteJson},
                              {"trim", Trim},
                              {"unique", UniqueItems},
                              {"upper", Change<Upper>}};

const Named* FindFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const Named& filter) { return filter.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

}  // namespace

bool HasFilter(std::string_view name) { return FindFilter(name) != nullptr; }

std::string FilterNames() {
  std::string names;
  for (const Named& filter : kFilters) names.append(names.empty() ? "" : ", ").append(filter.name);
  return names;
}

Value ApplyFilter(Runtime& runtime, std::string_view name, const Value& operand,
                  const CallArguments& arguments) {
  const Runtime::Recursion recursion(runtime);
  if (!runtime.Charge(1)) return {};
  const Named* filter = FindFilter(name);
  if (filter == nullptr)
    return runtime.Fail(
        fmt::format("the filter '{}' is not supported; supported are {}", name, FilterNames()));
  return filter->apply(runtime, operand, arguments);
}

}  // namespace inflight::chat_template
