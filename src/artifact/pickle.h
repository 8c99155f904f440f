// SPDX-License-Identifier: Apache-2.0
// A pickle read as data: numbers, texts, containers, and calls and storages that are described and
// never made. Nothing is imported, called or constructed; there is no code that could.
//
// Format: https://docs.python.org/3/library/pickletools.html, protocols 2 to 5. Only the opcodes
// and globals that torch.save needs for a dict of tensors are read; every other one is an error
// that names it. An opcode makes at most one value: memory is linear in the file.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "artifact/pickle_value.h"
#include "inflight/status.h"

namespace inflight::artifact {

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
