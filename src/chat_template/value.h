// SPDX-License-Identifier: Apache-2.0
// A value of the template language, with Python's meaning of truth, equality, order and text.
//
// Values are immutable and shared, but for namespaces, which `set ns.x = ...` writes, and
// generators, which are used up. Lists and dicts nest at most kMaxNesting deep and never hold a
// namespace, so that no value holds itself.
// Threads: a value that holds neither of the two may be read from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "inflight/status.h"

namespace inflight::chat_template {

constexpr int kMaxNesting = 100;

class Value;
struct MacroNode;

// A macro, or a function or a method, which see no scope.
struct BoundMacro {
  const MacroNode* node;
  uint64_t home = 0;  // number of the scope that it sees; interpreter.h

  bool operator==(const BoundMacro&) const = default;
};

// A name that has no value, or a member that is not there. It is false and empty text; most other
// uses are errors that say `name`.
struct Undefined {
  std::string name;
};
struct None {};
struct List {
  std::vector<Value> items;
  bool is_tuple = false;  // prints as (1, 2)
  int depth = 1;
  // A generator of Python, as filters make them: it is true, has no length and no items by number,
  // and is gone through once; `num_taken` of its items are gone.
  bool is_generator = false;
  mutable size_t num_taken = 0;
};
// Of a dict: a text or an integer.
class Key {
 public:
  Key(std::string text) : text_(std::move(text)) {}
  Key(const char* text) : text_(text) {}
  explicit Key(std::string_view text) : text_(text) {}
  explicit Key(int64_t number) : number_(number) {}

  const std::string* text() const { return number_ ? nullptr : &text_; }
  const std::optional<int64_t>& number() const { return number_; }
  Value AsValue() const;

  bool operator==(const Key&) const = default;

 private:
  std::string text_;
  std::optional<int64_t> number_;
};
using DictItems = std::vector<std::pair<Key, Value>>;
// In the order of insertion.
struct Dict {
  DictItems items;
  int depth = 1;

  const Value* Find(std::string_view key) const;
  const Value* Find(int64_t key) const;
};
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;

  const Value* Find(std::string_view key) const;
  void Set(std::string_view key, Value value);
};

class Value {
 public:
  using Storage = std::variant<Undefined, None, bool, int64_t, double,
                               std::shared_ptr<const std::string>, std::shared_ptr<const List>,
                               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, BoundMacro>;

  Value() = default;
  explicit Value(Undefined undefined) : storage_(std::move(undefined)) {}
  explicit Value(None none) : storage_(none) {}
  explicit Value(bool value) : storage_(value) {}
  explicit Value(int64_t value) : storage_(value) {}
  explicit Value(double value) : storage_(value) {}
  explicit Value(std::string value)
      : storage_(std::make_shared<const std::string>(std::move(value))) {}
  explicit Value(std::shared_ptr<Namespace> value) : storage_(std::move(value)) {}
  explicit Value(BoundMacro value) : storage_(value) {}
  explicit Value(const char*) = delete;  // would be a bool

  // kInvalidArgument where nested too deep or holding a namespace.
  static Result<Value> MakeList(std::vector<Value> items, bool is_tuple = false);
  static Result<Value> MakeGenerator(std::vector<Value> items);
  static Result<Value> MakeDict(DictItems items);
  // A text that the filter `safe` has marked: what is added to it is escaped as HTML.
  static Value MakeSafe(std::string text);

  // A JSON document. kInvalidArgument says what is wrong with it.
  static Result<Value> FromJson(std::string_view json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(storage_); }
  bool is_none() const { return std::holds_alternative<None>(storage_); }
  const BoundMacro* macro() const { return std::get_if<BoundMacro>(&storage_); }
  bool is_macro() const { return macro() != nullptr; }
  const bool* boolean() const { return std::get_if<bool>(&storage_); }
  const std::string* string() const { return Pointee<const std::string>(); }
  bool is_safe() const { return is_safe_; }
  const List* list() const { return Pointee<const List>(); }
  bool is_generator() const { return list() != nullptr && list()->is_generator; }
  const Dict* dict() const { return Pointee<const Dict>(); }
  Namespace* name_space() const { return Pointee<Namespace>(); }
  const Storage& storage() const { return storage_; }

  // Booleans count as 0 and 1, as in Python.
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;

  bool Truthy() const;
  const char* TypeName() const;  // Python's name, for errors: "str", "list", "NoneType"

  // What {{ value }} prints: text as it is, other kinds as Python's str() writes them.
  std::string ToText() const;
  // As Python's repr() writes it: text in quotes.
  std::string Repr() const;

 private:
  template <typename T>
  T* Pointee() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&storage_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Storage storage_;
  bool is_safe_ = false;
};

bool Equal(const Value& a, const Value& b);

// a < b among numbers, texts and lists; nothing where Python raises TypeError.
std::optional<bool> Less(const Value& a, const Value& b);

// Python's json.dumps(value, ensure_ascii=, indent=, separators=, sort_keys=).
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<int64_t> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// kInvalidArgument for undefined values, namespaces and macros.
Result<std::string> ToJson(const Value& value, const JsonStyle& style);

}  // namespace inflight::chat_template
