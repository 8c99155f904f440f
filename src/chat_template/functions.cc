// SPDX-License-Identifier: Apache-2.0
// Functions that every template sees: Jinja's, and those that transformers adds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "chat_template/builtins.h"
#include "chat_template/syntax.h"

namespace inflight::chat_template {
namespace {

Value Range(Runtime& runtime, const CallArguments& arguments) {
  const auto values = Bind(runtime, "range", arguments, {"start", "stop", "step"}, 1);
  if (runtime.failed()) return {};
  std::array<int64_t, 3> bounds = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (values[i] == nullptr) continue;
    const auto whole = values[i]->integer();
    if (!whole)
      return runtime.Fail(
          fmt::format("range: needs integers, got a value of type {}", values[i]->TypeName()));
    bounds[i] = *whole;
  }
  if (values[1] == nullptr) bounds = {0, bounds[0], 1};
  const auto [start, stop, step] = bounds;
  if (step == 0) return runtime.Fail("range: step must not be 0");
  constexpr int64_t kMaxItems = 100000;  // as Jinja's sandbox
  const bool up = step > 0;
  std::vector<Value> items;
  for (int64_t at = start; up ? at < stop : at > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxItems)
      return runtime.Fail(fmt::format("range: has more than {} items", kMaxItems));
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  if (!runtime.ChargeItems(items.size())) return {};
  return runtime.NewList(std::move(items));
}

// namespace(name=value ...) and namespace(dict)
Value MakeNamespace(Runtime& runtime, const CallArguments& arguments) {
  auto space = std::make_shared<Namespace>();
  for (const Value& value : arguments.positional) {
    if (value.dict() == nullptr || arguments.positional.size() > 1)
      return runtime.Fail("namespace: takes names with values, or one dict");
    for (const auto& [key, item] : value.dict()->items) {
      if (key.text() != nullptr)
        space->items.emplace_back(*key.text(), item);  // others are no names
    }
  }
  for (const auto& [name, value] : arguments.named) {
    if (value.name_space() != nullptr)
      return runtime.Fail("a namespace cannot hold another namespace");
    space->Set(name, value);
  }
  return Value(std::move(space));
}

Value MakeDict(Runtime& runtime, const CallArguments& arguments) {
  DictItems items;
  for (const Value& value : arguments.positional) {
    if (value.dict() == nullptr || arguments.positional.size() > 1)
      return runtime.Fail("dict: takes names with values, or one dict");
    items = value.dict()->items;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find_if(items.begin(), items.end(),
                                    [&](const auto& item) { return item.first == Key(name); });
    if (found != items.end())
      found->second = value;
    else
      items.emplace_back(name, value);
  }
  return runtime.Take(Value::MakeDict(std::move(items)));
}

Value RaiseException(Runtime& runtime, const CallArguments& arguments) {
  const auto values = Bind(runtime, "raise_exception", arguments, {"message"}, 1);
  if (!runtime.failed()) runtime.FailVerbatim(values[0]->ToText());
  return {};
}

Value StrftimeNow(Runtime& runtime, const CallArguments& arguments) {
  const auto values = Bind(runtime, "strftime_now", arguments, {"format"}, 1);
  if (runtime.failed()) return {};
  const std::string* format = values[0]->string();
  if (format == nullptr || format->size() > 1000)
    return runtime.Fail("strftime_now: needs a text of at most 1000 bytes");
  const std::time_t now = runtime.now_s();
  std::tm parts{};
  localtime_r(&now, &parts);
  std::string text(16384, '\0');
  // The space keeps an empty result apart from one that does not fit.
  const size_t size = std::strftime(text.data(), text.size(), (*format + " ").c_str(), &parts);
  if (size == 0) return runtime.Fail("strftime_now: the result is too long");
  text.resize(size - 1);
  return runtime.NewText(std::move(text));
}

struct Function {
  std::string_view name;
  Value (*call)(Runtime&, const CallArguments&);
};
constexpr Function kFunctions[] = {{"range", Range},
                                   {"namespace", MakeNamespace},
                                   {"dict", MakeDict},
                                   {"raise_exception", RaiseException},
                                   {"strftime_now", StrftimeNow}};

}  // namespace

// A function is a value that `is defined` and can be called: an empty macro of its name.
const MacroNode* FindFunction(std::string_view name) {
  static const auto nodes = [] {
    std::vector<MacroNode> made;
    for (const Function& function : kFunctions)
      made.push_back(
          {.name = std::string(function.name), .parameters = {}, .defaults = {}, .body = {}});
    return made;
  }();
  for (const MacroNode& node : nodes)
    if (node.name == name) return &node;
  return nullptr;
}

Value CallFunction(Runtime& runtime, std::string_view name, const CallArguments& arguments) {
  for (const Function& function : kFunctions)
    if (function.name == name) return function.call(runtime, arguments);
  return runtime.Fail(fmt::format("unknown function '{}'", name));
}

}  // namespace inflight::chat_template
