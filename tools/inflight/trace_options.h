// SPDX-License-Identifier: Apache-2.0
// The tracing flags of `inflight serve`, and from them to what the server is told.
#pragma once

#include "serve_options.h"

namespace inflight::tool {

void AddTracing(config::Schema<ServeOptions>& schema);

// Errors: kInvalidArgument, for the command line.
Result<serving::TraceOptions> MakeTraceOptions(const ServeOptions& options);

}  // namespace inflight::tool
