// SPDX-License-Identifier: Apache-2.0
#include "artifact/pickle_value.h"

#include "artifact/printable.h"

namespace inflight::artifact {
namespace {

using Kind = PickleValue::Kind;

}  // namespace

std::string_view PickleKindName(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
    case Kind::kHugeInt:
      return "a whole number";
    case Kind::kFloat:
      return "a float";
    case Kind::kText:
      return "a text";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dict";
    case Kind::kGlobal:
      return "a global";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kStorage:
      return "a storage";
  }
  return "";
}

std::string ShowPickleValue(const PickleValue& value) {
  switch (value.kind) {
    case Kind::kInt:
      return std::to_string(value.number);
    case Kind::kHugeInt:
      return "a whole number beyond 64 bits";
    case Kind::kText:
      return Printable(value.text);
    default:
      return std::string(PickleKindName(value.kind));
  }
}

}  // namespace inflight::artifact
