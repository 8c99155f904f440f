// SPDX-License-Identifier: Apache-2.0
// A batched request and its rows: tensors [B, ...] <-> B times tensors [1, ...].
#pragma once

#include <span>
#include <vector>

#include "contract/tensor.h"

namespace inflight::contract {

// The inputs of each row, [1, ...] each. They share the bytes of `inputs`.
// kInvalidArgument names a tensor that has another number of rows than `num_rows`.
Result<std::vector<std::vector<Tensor>>> SplitRows(std::span<const Tensor> inputs, int num_rows);

// One tensor for each name that any row has, in the order of their first appearance: the rows one
// below the other. What is shorter than the longest row is padded at its end, integers with -1 and
// floats with 0; a row without the tensor is padding only.
std::vector<Tensor> JoinRows(std::span<const std::vector<Tensor>> rows);

}  // namespace inflight::contract
