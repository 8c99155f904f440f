// SPDX-License-Identifier: Apache-2.0
// The options of `inflight serve` for the front end of cog, and what cog and cog-triton read from
// the environment (docs/reference/protocol/cog.md, "Variables").
#pragma once

#include "config/schema.h"
#include "serve_options.h"

namespace inflight::tool {

void AddCogOptions(config::Schema<ServeOptions>& schema);

// kInvalidArgument names a variable whose value is wrong.
Status SetFromCogEnvironment(cog::CogOptions& options);

}  // namespace inflight::tool
