// SPDX-License-Identifier: Apache-2.0
// From the tracing flags of `inflight serve` to what the server is told.
#pragma once

#include "serve_options.h"

namespace inflight::tool {

// Errors: kInvalidArgument, for the command line.
Result<serving::TraceOptions> MakeTraceOptions(const ServeOptions& options);

}  // namespace inflight::tool
