// SPDX-License-Identifier: Apache-2.0
// What a pickle may hold (artifact/pickle.h).
//
// Values lie in one array and refer to each other by index, so that a memo entry used a thousand
// times is still one value, containers that hold themselves do no harm, and nothing recurses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace inflight::artifact {

// The globals that may occur.
enum class PickleGlobal : uint8_t {
  kOrderedDict,       // collections.OrderedDict
  kRebuildTensor,     // torch._utils._rebuild_tensor_v2
  kRebuildParameter,  // torch._utils._rebuild_parameter
  kStorageType,       // torch.FloatStorage, ...
};

using PickleIdx = uint32_t;  // position in Pickle::values

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,     // number
    kInt,      // number
    kHugeInt,  // text: the bytes of a number beyond int64, little-endian
    kFloat,    // its value is never needed
    kText,     // text
    kTuple,    // items
    kList,     // items
    kDict,     // items: key, value, key, value, ...; also an OrderedDict
    kGlobal,   // global, and the dtype of a storage type
    kTensor,   // items: the tuple of _rebuild_tensor_v2's arguments; a Parameter is its tensor
    kStorage,  // items: the one persistent id
  };

  Kind kind = Kind::kNone;
  PickleGlobal global = PickleGlobal::kOrderedDict;
  DType dtype = DType::kF32;
  int64_t number = 0;
  std::string_view text;  // in the pickle's bytes
  std::vector<PickleIdx> items;
};

std::string_view PickleKindName(PickleValue::Kind kind);  // "a tensor", "a dict", ...

// For messages: numbers and texts themselves, the kind of others.
std::string ShowPickleValue(const PickleValue& value);

}  // namespace inflight::artifact
