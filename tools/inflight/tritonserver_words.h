// SPDX-License-Identifier: Apache-2.0
// What tritonserver 2.51 says of a command line that it does not take, for scripts that look for
// these words. Our own line, which says what the flag needs, stands behind them.
#pragma once

#include <string>

#include "commands.h"
#include "config/schema.h"
#include "serve_options.h"

namespace inflight::tool {

// Of the first fault; "" where it has none, or one of which tritonserver says nothing.
std::string TritonserverWords(Args args, const config::Schema<ServeOptions>& schema);

}  // namespace inflight::tool
