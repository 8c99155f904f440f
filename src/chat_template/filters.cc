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
    return runtime.NewTextLike(value, std::string(Strip(text)));
  const std::string chars = values[0]->ToText();
  return runtime.NewTextLike(value, std::string(StripRight(StripLeft(text, chars), chars)));
}

Value Length(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "length", arguments, {});
  size_t size = 0;
  if (const std::string* text = value.string())
    size = NumCharacters(*text);
  else if (const List* list = value.list(); list != nullptr && !list->is_generator)
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
  return runtime.NewTextLike(value, change(value.ToText()));
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
  if (value.is_generator()) {
    const List& list = *value.list();
    return list.num_taken < list.items.size() ? list.items[list.num_taken++]
                                              : Value(Undefined{"first item"});
  }
  const std::vector<Value> items = Iterate(runtime, value);
  return items.empty() ? Value(Undefined{"first item"}) : items.front();
}

Value Last(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "last", arguments, {});
  if (value.is_generator())
    return runtime.Fail("last: a generator cannot be reversed; make it a list");
  const std::vector<Value> items = Iterate(runtime, value);
  return items.empty() ? Value(Undefined{"last item"}) : items.back();
}

Value ToList(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "list", arguments, {});
  return runtime.NewList(Iterate(runtime, value));
}

Value ToString(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "string", arguments, {});
  return runtime.NewTextLike(value, value.ToText());
}

Value Safe(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "safe", arguments, {});
  return Value::MakeSafe(value.ToText());
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
  if (value.is_undefined()) return runtime.NewGenerator({});
  if (value.dict() == nullptr)
    return runtime.Fail(fmt::format("items: needs a dict, got a {}", value.TypeName()));
  const Value items = CallMethod(runtime, value, "items", {});
  return runtime.failed() ? Value() : runtime.NewGenerator(items.list()->items);
}

Value Reverse(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  Bind(runtime, "reverse", arguments, {});
  std::vector<Value> items = Iterate(runtime, value);
  std::reverse(items.begin(), items.end());
  if (value.string() != nullptr) return Join(runtime, runtime.NewList(std::move(items)), {});
  return value.is_generator() ? runtime.NewList(std::move(items))
                              : runtime.NewGenerator(std::move(items));
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

// Of Python's round, which rounds a number's exact value; whole numbers stay.
Value Round(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "round", arguments, {"precision", "method"});
  const auto number = value.number();
  if (!number) return runtime.Fail(fmt::format("round: got a {}, no number", value.TypeName()));
  const int64_t precision = values[0] == nullptr ? 0 : values[0]->integer().value_or(-1);
  const std::string method = values[1] == nullptr ? "common" : values[1]->ToText();
  if (precision < 0 || precision > 15)
    return runtime.Fail("round: precision must be an integer from 0 to 15");
  if (method == "common") {
    if (const auto whole = value.integer()) return Value(*whole);
    double rounded = 0;
    const std::string text = fmt::format("{:.{}f}", *number, precision);
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return Value(std::isfinite(*number) ? rounded : *number);
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(*number * unit) / unit);
  if (method == "floor") return Value(std::floor(*number * unit) / unit);
  return runtime.Fail("round: method must be common, ceil or floor");
}

// Of Python's % of a text: %s, %r, %d, %% and %.Nf.
Value Format(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  if (!arguments.named.empty()) return runtime.Fail("format: named values are not supported");
  const std::string text = value.ToText();
  std::string_view rest = text;
  std::string out;
  size_t next = 0;
  for (size_t at = rest.find('%'); at != std::string_view::npos; at = rest.find('%')) {
    out.append(rest.substr(0, at));
    rest.remove_prefix(at + 1);
    if (rest.starts_with('%')) {
      out += '%';
      rest.remove_prefix(1);
      continue;
    }
    const size_t end = std::min(rest.find_first_not_of(".0123456789"), rest.size());
    const std::string_view width = rest.substr(0, end);
    const char kind = end < rest.size() ? rest[end] : '\0';
    if (next == arguments.positional.size()) return runtime.Fail("format: a value is missing");
    const Value& given = arguments.positional[next++];
    int digits = 6;
    const bool has_digits = width.size() == 2 && width[0] == '.' && width[1] != '.';
    if (has_digits) digits = width[1] - '0';
    if ((kind == 's' || kind == 'r') && width.empty()) {
      out.append(kind == 's' ? given.ToText() : given.Repr());
    } else if (kind == 'd' && width.empty() && given.integer()) {
      out.append(std::to_string(*given.integer()));
    } else if (kind == 'f' && (width.empty() || has_digits) && given.number()) {
      out.append(fmt::format("{:.{}f}", *given.number(), digits));
    } else {
      return runtime.Fail(
          fmt::format("format: '%{}' does not write a {}, or is not supported; supported are %s, "
                      "%r, %d, %f, %.2f and %%",
                      rest.substr(0, end + 1), given.TypeName()));
    }
    if (!runtime.Charge(out.size() / 8)) return {};
    rest.remove_prefix(end + 1);
  }
  if (next < arguments.positional.size()) return runtime.Fail("format: a value has no place");
  return runtime.NewText(out.append(rest));
}

Value Map(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  if (!value.Truthy()) return runtime.NewGenerator({});  // as Jinja, also of none
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const auto values = Bind(runtime, "map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : Iterate(runtime, value)) {
      if (runtime.failed()) return {};
      Value mapped = AttributeOf(runtime, item, values[0]->ToText());
      out.push_back(mapped.is_undefined() && values[1] != nullptr ? *values[1] : mapped);
    }
    return runtime.NewGenerator(std::move(out));
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
  return runtime.NewGenerator(std::move(out));
}

// select, reject: (test, argument); selectattr, rejectattr: (attribute, test, argument).
template <bool wanted, bool by_attribute>
Value Choose(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  if (!value.Truthy()) return runtime.NewGenerator({});  // as Jinja, also of none
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
  return runtime.NewGenerator(std::move(out));
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
                              {"format", Format},
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
                              {"round", Round},
                              {"safe", Safe},
                              {"select", Choose<true, false>},
                              {"selectattr", Choose<true, true>},
                              {"sort", SortItems},
                              {"string", ToString},
                              {"title", Change<TitleOfWords>},
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
