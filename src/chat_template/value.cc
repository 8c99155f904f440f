// SPDX-License-Identifier: Apache-2.0
#include "chat_template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "chat_template/text.h"

namespace inflight::chat_template {
namespace {

template <typename Items, typename IsKey>
const Value* FindKey(const Items& items, IsKey is_key) {
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const auto& item) { return is_key(item.first); });
  return found == items.end() ? nullptr : &found->second;
}

// Python prints a float with the shortest digits that read back equal and always shows that it is
// one.
std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Depth of the container that would hold `value`, or nothing where it may not.
std::optional<int> DepthAbove(const Value& value) {
  if (value.name_space() != nullptr) return std::nullopt;
  if (const List* list = value.list()) return list->depth + 1;
  if (const Dict* dict = value.dict()) return dict->depth + 1;
  return 1;
}

Result<int> CheckedDepth(const Value& value, int depth) {
  const std::optional<int> above = DepthAbove(value);
  if (!above) return InvalidArgument("a list or dict cannot hold a namespace");
  if (*above > kMaxNesting)
    return InvalidArgument(fmt::format("lists and dicts nest deeper than {}", kMaxNesting));
  return std::max(depth, *above);
}

}  // namespace

Value Key::AsValue() const { return number_ ? Value(*number_) : Value(text_); }

const Value* Dict::Find(std::string_view key) const {
  return FindKey(items,
                 [&](const Key& one) { return one.text() != nullptr && *one.text() == key; });
}
const Value* Dict::Find(int64_t key) const {
  return FindKey(items, [&](const Key& one) { return one.number() == key; });
}
const Value* Namespace::Find(std::string_view key) const {
  return FindKey(items, [&](const std::string& one) { return one == key; });
}

void Namespace::Set(std::string_view key, Value value) {
  if (const Value* old = Find(key))
    *const_cast<Value*>(old) = std::move(value);
  else
    items.emplace_back(key, std::move(value));
}

Result<Value> Value::MakeList(std::vector<Value> items, bool is_tuple) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(list->depth, CheckedDepth(item, list->depth));
  }
  list->items = std::move(items);
  list->is_tuple = is_tuple;
  Value value;
  value.storage_ = std::shared_ptr<const List>(std::move(list));
  return value;
}

Result<Value> Value::MakeGenerator(std::vector<Value> items) {
  ASSIGN_OR_RETURN(Value value, MakeList(std::move(items)));
  auto list = std::make_shared<List>(*value.list());
  list->is_generator = true;
  value.storage_ = std::shared_ptr<const List>(std::move(list));
  return value;
}

Value Value::MakeSafe(std::string text) {
  Value value(std::move(text));
  value.is_safe_ = true;
  return value;
}

Result<Value> Value::MakeDict(DictItems items) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, item] : items) {
    ASSIGN_OR_RETURN(dict->depth, CheckedDepth(item, dict->depth));
  }
  dict->items = std::move(items);
  Value value;
  value.storage_ = std::shared_ptr<const Dict>(std::move(dict));
  return value;
}

std::optional<int64_t> Value::integer() const {
  if (const bool* flag = boolean()) return *flag ? 1 : 0;
  if (const auto* number = std::get_if<int64_t>(&storage_)) return *number;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* number = std::get_if<double>(&storage_)) return *number;
  if (const auto whole = integer()) return static_cast<double>(*whole);
  return std::nullopt;
}

bool Value::Truthy() const {
  if (is_undefined() || is_none()) return false;
  if (const auto value = number()) return *value != 0;
  if (const std::string* text = string()) return !text->empty();
  if (const List* items = list()) return items->is_generator || !items->items.empty();
  if (const Dict* items = dict()) return !items->items.empty();
  return true;
}

const char* Value::TypeName() const {
  struct {
    const char* operator()(const Undefined&) const { return "undefined"; }
    const char* operator()(None) const { return "NoneType"; }
    const char* operator()(bool) const { return "bool"; }
    const char* operator()(int64_t) const { return "int"; }
    const char* operator()(double) const { return "float"; }
    const char* operator()(const std::shared_ptr<const std::string>&) const { return "str"; }
    const char* operator()(const std::shared_ptr<const List>& list) const {
      return list->is_generator ? "generator" : (list->is_tuple ? "tuple" : "list");
    }
    const char* operator()(const std::shared_ptr<const Dict>&) const { return "dict"; }
    const char* operator()(const std::shared_ptr<Namespace>&) const { return "namespace"; }
    const char* operator()(const BoundMacro&) const { return "macro"; }
  } name;
  return std::visit(name, storage_);
}

std::string Value::ToText() const {
  if (const std::string* text = string()) return *text;
  return Repr();
}

std::string Value::Repr() const {
  if (is_undefined()) return "";
  if (is_none()) return "None";
  if (const bool* flag = boolean()) return *flag ? "True" : "False";
  if (const auto whole = integer()) return fmt::format("{}", *whole);
  if (const auto value = number()) return FloatText(*value);
  if (const std::string* text = string())
    return is_safe_ ? "Markup(" + QuotedText(*text) + ")" : QuotedText(*text);
  if (const List* items = list(); items != nullptr && !items->is_generator) {
    std::string out(1, items->is_tuple ? '(' : '[');
    for (size_t i = 0; i < items->items.size(); ++i)
      out += (i > 0 ? ", " : "") +
             (items->items[i].is_undefined() ? "Undefined" : items->items[i].Repr());
    if (items->is_tuple && items->items.size() == 1) out += ',';
    return out + (items->is_tuple ? ')' : ']');
  }
  if (const Dict* items = dict()) {
    std::string out = "{";
    for (size_t i = 0; i < items->items.size(); ++i) {
      const auto& [key, value] = items->items[i];
      out += (i > 0 ? ", " : "") + key.AsValue().Repr() + ": " +
             (value.is_undefined() ? "Undefined" : value.Repr());
    }
    return out + "}";
  }
  return fmt::format("<{}>", TypeName());
}

bool Equal(const Value& a, const Value& b) {
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x == *y;
  if (const auto x = a.number(), y = b.number(); x && y) return *x == *y;
  if (a.storage().index() != b.storage().index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (const std::string* text = a.string()) return *text == *b.string();
  if (const List* x = a.list()) {
    const List* y = b.list();
    if (x->is_generator || y->is_generator) return x == y;
    return x->is_tuple == y->is_tuple &&
           std::equal(x->items.begin(), x->items.end(), y->items.begin(), y->items.end(), Equal);
  }
  if (const Dict* x = a.dict()) {
    const Dict* y = b.dict();
    if (x->items.size() != y->items.size()) return false;
    return std::all_of(x->items.begin(), x->items.end(), [&](const auto& item) {
      const Value* other = item.first.number() ? y->Find(*item.first.number())
                                               : y->Find(std::string_view(*item.first.text()));
      return other != nullptr && Equal(item.second, *other);
    });
  }
  if (a.name_space() != nullptr) return a.name_space() == b.name_space();
  return *a.macro() == *b.macro();
}

std::optional<bool> Less(const Value& a, const Value& b) {
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x < *y;
  if (const auto x = a.number(), y = b.number(); x && y) return *x < *y;
  // UTF-8 sorts as its code points do.
  if (a.string() != nullptr && b.string() != nullptr) return *a.string() < *b.string();
  const List* x = a.list();
  const List* y = b.list();
  if (x == nullptr || y == nullptr || x->is_tuple != y->is_tuple) return std::nullopt;
  if (x->is_generator || y->is_generator) return std::nullopt;
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i)
    if (!Equal(x->items[i], y->items[i])) return Less(x->items[i], y->items[i]);
  return x->items.size() < y->items.size();
}

}  // namespace inflight::chat_template
