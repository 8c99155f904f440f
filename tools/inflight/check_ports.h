// SPDX-License-Identifier: Apache-2.0
// What can be wrong with the ports of `serve`, told before models are loaded.
#pragma once

#include "inflight/status.h"
#include "serve_options.h"

namespace inflight::tool {

// kInvalidArgument: two front ends have one address and port, or a pattern of headers to pass on is
// none, or what is asked of a shadow cannot be had.
Status CheckPorts(const ServeOptions& options);

}  // namespace inflight::tool
