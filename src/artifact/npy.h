// SPDX-License-Identifier: Apache-2.0
// Files of numpy.save that hold one array of numbers.
//
//   "\x93NUMPY" | u8 major, u8 minor | u16 (version 1) or u32 (2, 3) header bytes | header | data
//   header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//
// Format: numpy/numpy/doc/neps/nep-0001-npy-format.rst.
#pragma once

#include <span>
#include <string_view>

#include "artifact/stored_tensor.h"
#include "inflight/status.h"

namespace inflight::artifact {

// The array of a file's bytes, little-endian float16, float32 or float64 in C order, of at most
// four dimensions; its name is empty. `file` is for messages; truncation is kDataLoss, the rest
// kInvalidArgument.
Result<StoredTensor> ParseNpy(std::span<const std::byte> bytes, std::string_view file);

}  // namespace inflight::artifact
