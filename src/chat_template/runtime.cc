// SPDX-License-Identifier: Apache-2.0
#include "chat_template/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "chat_template/text.h"

namespace inflight::chat_template {

Value Runtime::Fail(std::string_view message) {
  if (!failed()) status_ = InvalidArgument(fmt::format("line {}: {}", line_, message));
  return {};
}

void Runtime::FailVerbatim(std::string message) {
  if (!failed()) status_ = InvalidArgument(std::move(message));
}

Value Runtime::Take(Result<Value> value) {
  if (!value.ok()) return Fail(value.status().message());
  return *std::move(value);
}

Value Runtime::NewList(std::vector<Value> items, bool is_tuple) {
  return Take(Value::MakeList(std::move(items), is_tuple));
}

Value Runtime::NewGenerator(std::vector<Value> items) {
  return Take(Value::MakeGenerator(std::move(items)));
}

Value Runtime::NewTextLike(const Value& text, std::string changed) {
  if (!text.is_safe()) return NewText(std::move(changed));
  return Charge(changed.size()) ? Value::MakeSafe(std::move(changed)) : Value();
}

Value Runtime::NewText(std::string text) {
  if (!Charge(text.size())) return {};
  return Value(std::move(text));
}

bool Runtime::Charge(size_t units) {
  if (failed()) return false;
  work_left_ -= static_cast<int64_t>(std::min<size_t>(units, size_t{1} << 40));
  if (work_left_ >= 0) return true;
  Fail("the template asks for too much work");
  return false;
}

std::vector<const Value*> Bind(Runtime& runtime, std::string_view callee,
                               const CallArguments& arguments, std::vector<std::string_view> names,
                               size_t num_required) {
  std::vector<const Value*> values(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    runtime.Fail(fmt::format("{}: got {} arguments, takes at most {}", callee,
                             arguments.positional.size(), names.size()));
    return values;
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    const size_t index = static_cast<size_t>(found - names.begin());
    if (found == names.end())
      runtime.Fail(fmt::format("{}: unknown argument '{}'", callee, name));
    else if (values[index] != nullptr)
      runtime.Fail(fmt::format("{}: argument '{}' is given twice", callee, name));
    else
      values[index] = &value;
  }
  for (size_t i = 0; i < num_required; ++i)
    if (values[i] == nullptr)
      runtime.Fail(fmt::format("{}: argument '{}' is missing", callee, names[i]));
  return values;
}

std::vector<Value> Iterate(Runtime& runtime, const Value& value) {
  if (const List* list = value.list()) {
    if (!runtime.ChargeItems(list->items.size())) return {};
    if (!list->is_generator) return list->items;
    const size_t first = std::exchange(list->num_taken, list->items.size());
    return {list->items.begin() + static_cast<std::ptrdiff_t>(first), list->items.end()};
  }
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    if (!runtime.ChargeItems(dict->items.size())) return {};
    for (const auto& [key, item] : dict->items) items.push_back(key.AsValue());
  } else if (const std::string* text = value.string()) {
    if (!runtime.ChargeItems(text->size())) return {};
    const std::vector<size_t> offsets = CharacterOffsets(*text);
    for (size_t i = 0; i + 1 < offsets.size(); ++i)
      items.emplace_back(text->substr(offsets[i], offsets[i + 1] - offsets[i]));
  } else if (!value.is_undefined()) {
    runtime.Fail(fmt::format("a value of type {} is not iterable", value.TypeName()));
  }
  return items;
}

Value MemberOf(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is_undefined())
    return runtime.Fail(fmt::format("'{}' is undefined, so it has no '{}'",
                                    std::get<Undefined>(value.storage()).name, name));
  const Value* found = nullptr;
  if (const Dict* dict = value.dict()) {
    if (!runtime.Charge(dict->items.size() / 8)) return {};
    found = dict->Find(name);
  } else if (const Namespace* space = value.name_space()) {
    found = space->Find(name);
  }
  return found != nullptr ? *found : Value(Undefined{std::string(name)});
}

Value AttributeOf(Runtime& runtime, Value value, std::string_view path) {
  for (const std::string& name : Split(path, ".", -1)) {
    size_t index = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data(), end, index);
    if (value.list() != nullptr && !value.is_generator() && read.ec == std::errc() &&
        read.ptr == end) {
      const std::vector<Value>& items = value.list()->items;
      // The list goes with the value that had it.
      Value item = index < items.size() ? items[index] : Value(Undefined{"item " + name});
      value = std::move(item);
    } else {
      value = MemberOf(runtime, value, name);
    }
  }
  return value;
}

bool Contains(Runtime& runtime, const Value& haystack, const Value& needle) {
  if (const std::string* text = haystack.string()) {
    if (needle.string() == nullptr) {
      runtime.Fail(
          fmt::format("only a text is in a text, not a value of type {}", needle.TypeName()));
      return false;
    }
    return runtime.Charge(text->size() / 8) && text->find(*needle.string()) != std::string::npos;
  }
  if (const List* list = haystack.list(); list != nullptr && list->is_generator) {
    // Up to the first that is equal.
    bool found = false;
    while (!found && list->num_taken < list->items.size() && runtime.ChargeItems(1))
      found = Equal(list->items[list->num_taken++], needle);
    return found;
  }
  if (const List* list = haystack.list()) {
    return runtime.ChargeItems(list->items.size()) &&
           std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& item) { return Equal(item, needle); });
  }
  if (const Dict* dict = haystack.dict()) {
    if (!runtime.Charge(dict->items.size() / 8)) return false;
    if (const auto number = needle.integer()) return dict->Find(*number) != nullptr;
    return needle.string() != nullptr && dict->Find(std::string_view(*needle.string())) != nullptr;
  }
  if (!haystack.is_undefined())
    runtime.Fail(fmt::format("nothing is in a value of type {}", haystack.TypeName()));
  return false;
}

}  // namespace inflight::chat_template
