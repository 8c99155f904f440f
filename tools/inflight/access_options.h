// SPDX-License-Identifier: Apache-2.0
// The options of `inflight serve` that say who may do what: keys, places of administration, and
// what the process itself may reach.
#pragma once

#include "config/schema.h"
#include "serve_options.h"

namespace inflight::tool {

void AddAccessOptions(config::Schema<ServeOptions>& schema);

}  // namespace inflight::tool
