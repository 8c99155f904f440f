// SPDX-License-Identifier: Apache-2.0
// From the options of `inflight serve` to the files that its sandbox leaves it (--sandbox).
#pragma once

#include "serve_options.h"

namespace inflight::tool {

// Enters the sandbox that the options ask for, and says in the log what is in force. Before any
// thread is started. A process that `is_ranked` connects to the other ranks.
Status EnterSandbox(const ServeOptions& options, bool is_ranked);

}  // namespace inflight::tool
