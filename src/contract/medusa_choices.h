// SPDX-License-Identifier: Apache-2.0
// The text of the key `medusa_choices`: lists of whole numbers, "{0}, {0, 0}, {1}" or as JSON
// "[[0], [0, 0], [1]]", with or without a list around them all. Whether they are a tree is for the
// executor to say (decoding/draft_tree.h).
#pragma once

#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::contract {

// kInvalidArgument says at which character what was expected.
Result<std::vector<std::vector<int>>> ParseMedusaChoices(std::string_view text);

}  // namespace inflight::contract
