// SPDX-License-Identifier: Apache-2.0
// Flags of `chat` and of `run --prompt` that fill a field of a request.
#pragma once

#include <string_view>

#include "config/schema.h"

namespace inflight::tool {

// The values of the field, as its row in parameters/parameters.h has them.
config::Constraint BoundsOf(std::string_view field);

}  // namespace inflight::tool
