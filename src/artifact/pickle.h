// SPDX-License-Identifier: Apache-2.0
// A pickle read as data: numbers, texts, containers, and calls and storages that are described and
// never made. Nothing is imported, called or constructed; there is no code that could.
//
// Format: https://docs.python.org/3/library/pickletools.html, protocols 2 to 5. Only the opcodes
// and globals that torch.save needs for a dict of tensors are read; every other one is an error
// that names it.
//
// Values lie in one array and refer to each other by index, so that a memo entry used a thousand
// times is still one value, containers that hold themselves do no harm, and nothing recurses. An
// opcode makes at most one value: memory is linear in the file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"
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

struct Pickle {
  std::vector<PickleValue> values;
  PickleIdx root = 0;
  size_t num_bytes = 0;  // up to and with STOP; what follows is not looked at

  const PickleValue& operator[](PickleIdx idx) const { return values[idx]; }
};

// Reads the pickle at the beginning of `bytes`. Errors name the byte and the opcode or global that
// was refused: truncation is kDataLoss, what other pickles may hold kUnimplemented, the rest
// kInvalidArgument.
Result<Pickle> ReadPickle(std::span<const std::byte> bytes);

}  // namespace inflight::artifact
