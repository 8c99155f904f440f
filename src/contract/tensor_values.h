// SPDX-License-Identifier: Apache-2.0
// Reads numbers out of tensors whose bytes may lie at any address. Unsigned integers are accepted
// for signed ones of the same size, as old clients send them.
#pragma once

#include <cstdint>
#include <vector>

#include "contract/tensor.h"

namespace inflight::contract {

// Scalars have exactly one element, whatever the rank: [1], [1,1]. kInvalidArgument "Invalid size
// for tensor NAME" otherwise, and for other datatypes.
Result<int32_t> ReadInt32(const Tensor& tensor);
Result<uint64_t> ReadUint64(const Tensor& tensor);
Result<float> ReadFloat(const Tensor& tensor);
Result<bool> ReadBool(const Tensor& tensor);  // BOOL or INT32

Result<std::vector<int32_t>> ReadInt32s(const Tensor& tensor);
Result<std::vector<uint64_t>> ReadUint64s(const Tensor& tensor);
Result<std::vector<float>> ReadFloats(const Tensor& tensor);

}  // namespace inflight::contract
