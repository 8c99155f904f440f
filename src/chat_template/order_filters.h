// SPDX-License-Identifier: Apache-2.0
// Jinja's filters that compare items: sort, dictsort, unique, min and max.
//
// Keys of items, which `attribute` names, are texts, numbers, booleans, none and undefined values;
// others are refused by name. Texts are compared without their case, unless `case_sensitive` says
// otherwise. What Python does not compare (TypeError) fails.
#pragma once

#include "chat_template/runtime.h"

namespace inflight::chat_template {

// `attribute` may be several, "a,b.c".
Value SortItems(Runtime& runtime, const Value& value, const CallArguments& arguments);
// (key, value) of a dict, `by` the one or the other.
Value SortDict(Runtime& runtime, const Value& value, const CallArguments& arguments);
// The first items of equal ones.
Value UniqueItems(Runtime& runtime, const Value& value, const CallArguments& arguments);
// The first of the least or greatest items; undefined where there are none.
Value LeastItem(Runtime& runtime, const Value& value, const CallArguments& arguments);
Value GreatestItem(Runtime& runtime, const Value& value, const CallArguments& arguments);

}  // namespace inflight::chat_template
