// SPDX-License-Identifier: Apache-2.0
// The shapes that --shape names: what config.json of published models says of them.
#pragma once

#include <string>
#include <vector>

#include "inflight/status.h"
#include "model/config.h"

namespace inflight::tool {

// "" (none), then every shape.
std::vector<std::string> ShapeNames();

// The shape of that name, one of ShapeNames but "", in float32.
Result<model::ModelConfig> ShapeByName(const std::string& name);

}  // namespace inflight::tool
