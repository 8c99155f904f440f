// SPDX-License-Identifier: Apache-2.0
#include "chat_template/order_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "chat_template/text.h"

namespace inflight::chat_template {
namespace {

constexpr size_t kComparison = 16;  // of work, beside the texts

using Keys = std::vector<Value>;  // of one item

bool IsGiven(const Value* value) { return value != nullptr && value->Truthy(); }

size_t WorkOf(const Keys& keys) {
  size_t work = kComparison;
  for (const Value& key : keys)
    if (key.string() != nullptr) work += key.string()->size() / 8;
  return work;
}

// The key as it is compared.
Value KeyOf(Runtime& runtime, std::string_view filter, Value item, bool case_sensitive) {
  if (item.list() != nullptr || item.dict() != nullptr || item.name_space() != nullptr ||
      item.is_macro())
    return runtime.Fail(fmt::format("{}: values of type {} are not supported; name an attribute",
                                    filter, item.TypeName()));
  if (case_sensitive || item.string() == nullptr) return item;
  return runtime.NewText(Lower(*item.string()));
}

// Keys of all items, by the paths of `attribute`; none: the items themselves.
std::vector<Keys> KeysOf(Runtime& runtime, std::string_view filter, const std::vector<Value>& items,
                         const std::vector<std::string>& paths, bool case_sensitive) {
  std::vector<Keys> all;
  for (const Value& item : items) {
    Keys& keys = all.emplace_back();
    if (paths.empty()) keys.push_back(KeyOf(runtime, filter, item, case_sensitive));
    for (const std::string& path : paths)
      keys.push_back(KeyOf(runtime, filter, AttributeOf(runtime, item, path), case_sensitive));
    if (runtime.failed()) return {};
  }
  return all;
}

std::vector<std::string> PathsIn(const Value* attribute, bool may_be_several) {
  if (attribute == nullptr || attribute->is_none()) return {};
  if (!may_be_several) return {attribute->ToText()};
  return Split(attribute->ToText(), ",", -1);
}

// a < b as Python compares lists, where what is equal is passed over, or else single values.
bool IsLess(Runtime& runtime, std::string_view filter, const Keys& a, const Keys& b,
            bool as_lists) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (as_lists && Equal(a[i], b[i])) continue;
    const std::optional<bool> less = Less(a[i], b[i]);
    if (!less)
      runtime.Fail(fmt::format("{}: values of types {} and {} cannot be compared", filter,
                               a[i].TypeName(), b[i].TypeName()));
    return less.value_or(false);
  }
  return false;
}

Value Sorted(Runtime& runtime, std::string_view filter, std::vector<Value> items,
             const std::vector<Keys>& keys, bool as_lists, bool reverse) {
  if (runtime.failed()) return {};
  size_t work = 0;
  for (const Keys& of : keys) work += WorkOf(of);
  if (!runtime.Charge(work * (std::bit_width(items.size()) + 1))) return {};
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return IsLess(runtime, filter, keys[reverse ? b : a], keys[reverse ? a : b], as_lists);
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t index : order) sorted.push_back(std::move(items[index]));
  return runtime.NewList(std::move(sorted));
}

// As min and max of Python go through the items.
Value Extreme(Runtime& runtime, std::string_view filter, const Value& value,
              const CallArguments& arguments, bool is_greatest) {
  const auto values = Bind(runtime, filter, arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> items = Iterate(runtime, value);
  const auto keys = KeysOf(runtime, filter, items, PathsIn(values[1], false), IsGiven(values[0]));
  if (runtime.failed()) return {};
  if (items.empty()) return Value(Undefined{"an item of an empty sequence"});
  size_t found = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const Value& a = keys[is_greatest ? found : i][0];
    const Value& b = keys[is_greatest ? i : found][0];
    const std::optional<bool> less = Less(a, b);
    if (!less)
      return runtime.Fail(fmt::format("{}: values of types {} and {} cannot be compared", filter,
                                      a.TypeName(), b.TypeName()));
    if (*less) found = i;
    if (!runtime.Charge(WorkOf(keys[i]))) return {};
  }
  return items[found];
}

}  // namespace

Value SortItems(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = Iterate(runtime, value);
  const auto keys = KeysOf(runtime, "sort", items, PathsIn(values[2], /*may_be_several=*/true),
                           IsGiven(values[1]));
  return Sorted(runtime, "sort", std::move(items), keys, /*as_lists=*/true, IsGiven(values[0]));
}

Value SortDict(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (runtime.failed()) return {};
  const Dict* dict = value.dict();
  if (dict == nullptr)
    return runtime.Fail(fmt::format("dictsort: needs a dict, got a {}", value.TypeName()));
  const std::string by = values[1] == nullptr ? "key" : values[1]->ToText();
  if (by != "key" && by != "value")
    return runtime.Fail("dictsort: by must be either \"key\" or \"value\"");
  if (!runtime.ChargeItems(2 * dict->items.size())) return {};
  std::vector<Value> pairs;
  std::vector<Keys> keys;
  for (const auto& [name, item] : dict->items) {
    pairs.push_back(runtime.NewList({name.AsValue(), item}, /*is_tuple=*/true));
    keys.push_back(
        {KeyOf(runtime, "dictsort", by == "key" ? name.AsValue() : item, IsGiven(values[0]))});
    if (runtime.failed()) return {};
  }
  return Sorted(runtime, "dictsort", std::move(pairs), keys, /*as_lists=*/false,
                IsGiven(values[2]));
}

Value UniqueItems(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  const auto values = Bind(runtime, "unique", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> items = Iterate(runtime, value);
  const auto keys = KeysOf(runtime, "unique", items, PathsIn(values[1], false), IsGiven(values[0]));
  if (runtime.failed()) return {};
  std::vector<Value> found;
  std::vector<const Value*> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    const Value& key = keys[i][0];
    if (!runtime.Charge(WorkOf(keys[i]) * (seen.size() + 1))) return {};
    if (std::ranges::any_of(seen, [&](const Value* other) { return Equal(*other, key); })) continue;
    seen.push_back(&key);
    found.push_back(items[i]);
  }
  return runtime.NewGenerator(std::move(found));
}

Value LeastItem(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  return Extreme(runtime, "min", value, arguments, /*is_greatest=*/false);
}

Value GreatestItem(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  return Extreme(runtime, "max", value, arguments, /*is_greatest=*/true);
}

}  // namespace inflight::chat_template
