// SPDX-License-Identifier: Apache-2.0
// JSON files of request data.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/tensors/tensor_data.h"

namespace inflight::bench {

// The items under "data", without batch dimension, inputs in the model's order; lists of lists are
// read one after the other.
Result<std::vector<Payload>> ReadDataFile(
    const std::string& text, const std::vector<ServedTensor>& inputs,
    const std::map<std::string, std::vector<int64_t>>& shapes);

}  // namespace inflight::bench
