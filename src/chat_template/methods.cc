// SPDX-License-Identifier: Apache-2.0
// Methods of texts and dicts, as Python has them. Those that change a value are refused, as in
// Jinja's immutable sandbox.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "chat_template/builtins.h"
#include "chat_template/syntax.h"
#include "chat_template/text.h"

namespace inflight::chat_template {
namespace {

const std::string* TextArgument(Runtime& runtime, std::string_view method, const Value* value) {
  if (value == nullptr || value->is_none()) return nullptr;
  if (value->string() == nullptr)
    runtime.Fail(
        fmt::format("{}: needs a text, got a value of type {}", method, value->TypeName()));
  return value->string();
}

Value Stripped(Runtime& runtime, const Value& object, std::string_view method,
               const CallArguments& arguments) {
  const auto values = Bind(runtime, method, arguments, {"chars"});
  const std::string* chars = TextArgument(runtime, method, values[0]);
  std::string_view result = *object.string();
  if (method != "rstrip") result = chars == nullptr ? StripLeft(result) : StripLeft(result, *chars);
  if (method != "lstrip")
    result = chars == nullptr ? StripRight(result) : StripRight(result, *chars);
  return runtime.NewTextLike(object, std::string(result));
}

// split, and rsplit, which cuts from the end.
Value SplitText(Runtime& runtime, const std::string& text, std::string_view method,
                const CallArguments& arguments) {
  const auto values = Bind(runtime, method, arguments, {"sep", "maxsplit"});
  const std::string* separator = TextArgument(runtime, method, values[0]);
  const int64_t max_splits = values[1] == nullptr ? -1 : values[1]->integer().value_or(-1);
  if (separator != nullptr && separator->empty())
    return runtime.Fail(fmt::format("{}: empty separator", method));
  const bool is_from_end = method == "rsplit";
  if (!runtime.Charge((is_from_end ? 8 : 2) * text.size())) return {};
  std::vector<Value> parts;
  for (std::string& part : is_from_end            ? SplitFromEnd(text, separator, max_splits)
                           : separator == nullptr ? Split(text, max_splits)
                                                  : Split(text, *separator, max_splits))
    parts.emplace_back(std::move(part));
  if (!runtime.ChargeItems(parts.size())) return {};
  return runtime.NewList(std::move(parts));
}

Value LinesOf(Runtime& runtime, const std::string& text, const CallArguments& arguments) {
  const auto values = Bind(runtime, "splitlines", arguments, {"keepends"});
  if (!runtime.ChargeItems(text.size())) return {};
  std::vector<Value> lines;
  for (std::string& line : SplitLines(text, values[0] != nullptr && values[0]->Truthy()))
    lines.emplace_back(std::move(line));
  return runtime.NewList(std::move(lines));
}

Value HasEnd(Runtime& runtime, const std::string& text, std::string_view method,
             const CallArguments& arguments) {
  const auto values = Bind(runtime, method, arguments, {"affix"}, 1);
  if (runtime.failed()) return {};
  std::vector<Value> affixes = {*values[0]};
  if (values[0]->list() != nullptr && values[0]->list()->is_tuple)
    affixes = values[0]->list()->items;
  bool found = false;
  for (const Value& affix : affixes) {
    const std::string* end = affix.string();
    if (end == nullptr)
      return runtime.Fail(fmt::format("{}: needs a text or a tuple of texts", method));
    found = found || (method == "startswith" ? text.starts_with(*end) : text.ends_with(*end));
  }
  return Value(found);
}

Value Replaced(Runtime& runtime, const std::string& text, const CallArguments& arguments) {
  const auto values = Bind(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  if (runtime.failed()) return {};
  const std::string* from = TextArgument(runtime, "replace", values[0]);
  const std::string* to = TextArgument(runtime, "replace", values[1]);
  if (from == nullptr || to == nullptr) return runtime.Fail("replace: needs two texts");
  const int64_t count = values[2] == nullptr ? -1 : values[2]->integer().value_or(-1);
  // At most one replacement per length of `from`, and one more.
  if (!runtime.Charge((text.size() / std::max<size_t>(1, from->size()) + 1) * (to->size() + 1)))
    return {};
  return runtime.NewText(Replace(text, *from, *to, count));
}

// find and index, which differ where there is none.
Value FindText(Runtime& runtime, const std::string& text, std::string_view method,
               const CallArguments& arguments) {
  const auto values = Bind(runtime, method, arguments, {"sub"}, 1);
  const std::string* part = runtime.failed() ? nullptr : TextArgument(runtime, method, values[0]);
  if (part == nullptr) return runtime.Fail(fmt::format("{}: needs a text", method));
  const size_t at = text.find(*part);
  if (at == std::string::npos)
    return method == "find" ? Value(int64_t{-1}) : runtime.Fail("index: the text is not there");
  return Value(static_cast<int64_t>(NumCharacters(std::string_view(text).substr(0, at))));
}

Value WithoutAffix(Runtime& runtime, const std::string& text, std::string_view method,
                   const CallArguments& arguments) {
  const auto values = Bind(runtime, method, arguments, {"affix"}, 1);
  const std::string* affix = runtime.failed() ? nullptr : TextArgument(runtime, method, values[0]);
  if (affix == nullptr) return runtime.Fail(fmt::format("{}: needs a text", method));
  std::string_view result = text;
  if (method == "removeprefix" && result.starts_with(*affix)) result.remove_prefix(affix->size());
  if (method == "removesuffix" && result.ends_with(*affix)) result.remove_suffix(affix->size());
  return runtime.NewText(std::string(result));
}

// What a field of `format` stands for: {} the next argument, {0} one by its place, {a} by its name.
const Value* FieldOf(std::string_view field, const CallArguments& arguments, size_t& next) {
  const auto named = std::ranges::find(arguments.named, field,
                                       [](const auto& argument) { return argument.first; });
  if (named != arguments.named.end()) return &named->second;
  size_t index = next;
  if (field.empty()) {
    ++next;
  } else {
    const auto read = std::from_chars(field.data(), field.data() + field.size(), index);
    if (read.ec != std::errc() || read.ptr != field.data() + field.size()) return nullptr;
  }
  return index < arguments.positional.size() ? &arguments.positional[index] : nullptr;
}

Value Formatted(Runtime& runtime, std::string_view text, const CallArguments& arguments) {
  std::string out;
  size_t next = 0;
  bool has_places = false;
  while (!text.empty()) {
    const size_t at = std::min(text.find_first_of("{}"), text.size());
    out.append(text.substr(0, at));
    text.remove_prefix(at);
    if (text.empty()) break;
    if (text.starts_with("{{") || text.starts_with("}}")) {
      out += text.front();
      text.remove_prefix(2);
      continue;
    }
    const size_t end = text.find('}');
    if (text.front() == '}' || end == std::string_view::npos)
      return runtime.Fail("format: a single brace stands in the text");
    const std::string_view field = text.substr(1, end - 1);
    has_places = has_places || (!field.empty() && field.front() >= '0' && field.front() <= '9');
    const Value* const value = FieldOf(field, arguments, next);
    if (value == nullptr || (has_places && next > 0))
      return runtime.Fail(fmt::format(
          "format: the field '{{{}}}' has no argument, or is not supported; supported are {{}}, "
          "{{0}} and {{name}}",
          field));
    const std::string written = value->ToText();
    if (!runtime.Charge(written.size())) return {};
    out.append(written);
    text.remove_prefix(end + 1);
  }
  return runtime.NewText(std::move(out));
}

constexpr std::string_view kTextMethods =
    "capitalize, endswith, find, format, index, join, lower, lstrip, removeprefix, removesuffix, "
    "replace, rsplit, rstrip, split, splitlines, startswith, strip, title and upper";

Value TextMethod(Runtime& runtime, const Value& object, std::string_view name,
                 const CallArguments& arguments) {
  const std::string& text = *object.string();
  if (!runtime.Charge(text.size())) return {};
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return Stripped(runtime, object, name, arguments);
  if (name == "split" || name == "rsplit") return SplitText(runtime, text, name, arguments);
  if (name == "splitlines") return LinesOf(runtime, text, arguments);
  if (name == "startswith" || name == "endswith") return HasEnd(runtime, text, name, arguments);
  if (name == "replace") return Replaced(runtime, text, arguments);
  if (name == "find" || name == "index") return FindText(runtime, text, name, arguments);
  if (name == "format") return Formatted(runtime, text, arguments);
  if (name == "removeprefix" || name == "removesuffix")
    return WithoutAffix(runtime, text, name, arguments);
  if (name == "join")
    return ApplyFilter(runtime, "join",
                       arguments.positional.empty() ? Value() : arguments.positional[0],
                       {.positional = {Value(text)}, .named = {}});
  using Change = std::string (*)(std::string_view);
  const Change change = name == "upper"        ? Upper
                        : name == "lower"      ? Lower
                        : name == "title"      ? Title
                        : name == "capitalize" ? Capitalize
                                               : Change{nullptr};
  if (change == nullptr)
    return runtime.Fail(fmt::format("the method '{}' of a text is not supported; supported are {}",
                                    name, kTextMethods));
  Bind(runtime, name, arguments, {});
  return runtime.NewTextLike(object, change(text));
}

Value DictMethod(Runtime& runtime, const Value& object, std::string_view name,
                 const CallArguments& arguments) {
  const Dict& dict = *object.dict();
  if (name == "get") {
    const auto values = Bind(runtime, "get", arguments, {"key", "default"}, 1);
    if (runtime.failed()) return {};
    if (Contains(runtime, object, *values[0])) {
      const auto number = values[0]->integer();
      return number ? *dict.Find(*number) : MemberOf(runtime, object, *values[0]->string());
    }
    return values[1] == nullptr ? Value(None{}) : *values[1];
  }
  if (name != "items" && name != "keys" && name != "values")
    return runtime.Fail(fmt::format(
        "the method '{}' of a dict is not supported; supported are get, items, keys and values",
        name));
  Bind(runtime, name, arguments, {});
  if (!runtime.ChargeItems(dict.items.size())) return {};
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    if (name == "items")
      items.push_back(runtime.NewList({key.AsValue(), value}, /*is_tuple=*/true));
    else
      items.push_back(name == "keys" ? key.AsValue() : value);
  }
  return runtime.NewList(std::move(items));
}

}  // namespace

bool IsDictMethod(std::string_view name) {
  static constexpr std::string_view kNames[] = {"get",        "items",   "keys",    "values",
                                                "copy",       "clear",   "pop",     "update",
                                                "setdefault", "popitem", "fromkeys"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

const MacroNode* FindDictMethod(std::string_view name) {
  static const auto nodes = [] {
    std::vector<MacroNode> made;
    for (const char* method : {"get", "items", "keys", "values", "copy", "fromkeys"})
      made.push_back({.name = method, .parameters = {}, .defaults = {}, .body = {}});
    return made;
  }();
  const auto found = std::ranges::find(nodes, name, &MacroNode::name);
  return found == nodes.end() ? nullptr : &*found;
}

Value CallMethod(Runtime& runtime, const Value& object, std::string_view name,
                 const CallArguments& arguments) {
  if (object.is_undefined())
    return runtime.Fail(fmt::format("'{}' is undefined, so it has no '{}'",
                                    std::get<Undefined>(object.storage()).name, name));
  if (object.string() != nullptr) return TextMethod(runtime, object, name, arguments);
  if (object.dict() != nullptr) return DictMethod(runtime, object, name, arguments);
  return runtime.Fail(fmt::format(
      "the method '{}' of a value of type {} is not supported; texts and dicts have methods", name,
      object.TypeName()));
}

}  // namespace inflight::chat_template
