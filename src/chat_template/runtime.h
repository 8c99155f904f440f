// SPDX-License-Identifier: Apache-2.0
// What one rendering carries through the walk of the tree: its first error, where it is, and what
// work is left. A template comes with a model somebody published: whatever it says, it ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_template/value.h"

namespace inflight::chat_template {

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;  // names point into the tree or `unpacked`
  Value unpacked;                                         // the dict of **dict
};

class Runtime {
 public:
  // A unit is a byte or an element made; a step of the walk counts as several.
  static constexpr int64_t kMaxWork = int64_t{256} << 20;
  static constexpr size_t kStepWork = 16;
  static constexpr size_t kItemWork = 64;  // a list's or dict's item
  static constexpr int kMaxRecursion = 1000;

  explicit Runtime(int64_t now_s) : now_s_(now_s) {}

  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }
  void set_line(int line) { line_ = line; }
  int64_t now_s() const { return now_s_; }

  // The first error counts; returns an undefined value for callers to pass on.
  Value Fail(std::string_view message);
  void FailVerbatim(std::string message);  // raise_exception: the template's own words

  // The value, or its error at this line.
  Value Take(Result<Value> value);
  Value NewList(std::vector<Value> items, bool is_tuple = false);
  Value NewGenerator(std::vector<Value> items);
  Value NewText(std::string text);
  Value NewTextLike(const Value& text, std::string changed);  // `safe` where the text is

  // False, and failed, where `units` more are beyond the bound. Called before they are spent.
  bool Charge(size_t units);
  bool ChargeItems(size_t num_items) { return Charge(kItemWork * num_items); }

  class Recursion {
   public:
    explicit Recursion(Runtime& runtime) : runtime_(runtime) {
      if (++runtime_.recursion_ > kMaxRecursion) runtime_.Fail("nests too deep while rendering");
    }
    ~Recursion() { --runtime_.recursion_; }
    Recursion(const Recursion&) = delete;
    Recursion& operator=(const Recursion&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  const int64_t now_s_;
  int line_ = 0;
  int recursion_ = 0;
  int64_t work_left_ = kMaxWork;
  Status status_;
};

// Arguments by parameter: values[i] belongs to names[i], null where not given. Fails by name on
// what does not fit. Names before `num_required` must be given.
std::vector<const Value*> Bind(Runtime& runtime, std::string_view callee,
                               const CallArguments& arguments, std::vector<std::string_view> names,
                               size_t num_required = 0);

// What `for` goes through: the items of a list, characters of a text, keys of a dict; nothing of
// an undefined value. Fails on other kinds. A generator has no items then.
std::vector<Value> Iterate(Runtime& runtime, const Value& value);

// value.name and value[key] for a text key: undefined where there is none.
Value MemberOf(Runtime& runtime, const Value& value, std::string_view name);

// What an attribute of a filter names, as "a.b.0": members, and items of lists by their number.
Value AttributeOf(Runtime& runtime, Value value, std::string_view path);

// What a list, text or dict contains: `needle in haystack`.
bool Contains(Runtime& runtime, const Value& haystack, const Value& needle);

}  // namespace inflight::chat_template
