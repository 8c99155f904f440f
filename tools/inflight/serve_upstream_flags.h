// SPDX-License-Identifier: Apache-2.0
// Flags of tritonserver that have no place in our options: each has no effect here or is refused,
// with the reason.
#pragma once

#include "config/schema.h"
#include "serve_options.h"

namespace inflight::tool {

void AddUpstreamServeFlags(config::Schema<ServeOptions>& schema);

}  // namespace inflight::tool
