// SPDX-License-Identifier: Apache-2.0
// Filters, tests, methods and functions that templates may use. Their meaning is Jinja's and
// Python's; those not listed are refused by name.
#pragma once

#include <string>
#include <string_view>

#include "chat_template/runtime.h"

namespace inflight::chat_template {

// filters.cc
bool HasFilter(std::string_view name);
std::string FilterNames();  // "capitalize, count, ...", for messages
Value ApplyFilter(Runtime& runtime, std::string_view name, const Value& operand,
                  const CallArguments& arguments);

// predicates.cc
bool HasTest(std::string_view name);
std::string TestNames();
bool TestTakesArgument(std::string_view name);
bool ApplyTest(Runtime& runtime, std::string_view name, const Value& operand,
               const CallArguments& arguments);

// methods.cc
Value CallMethod(Runtime& runtime, const Value& object, std::string_view name,
                 const CallArguments& arguments);
bool IsDictMethod(std::string_view name);
// What dict['items'] is where no key is 'items': a value without members, which is no macro's.
const MacroNode* FindDictMethod(std::string_view name);

// functions.cc: null where there is no such function.
const MacroNode* FindFunction(std::string_view name);
Value CallFunction(Runtime& runtime, std::string_view name, const CallArguments& arguments);

}  // namespace inflight::chat_template
