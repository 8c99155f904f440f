// SPDX-License-Identifier: Apache-2.0
// What the server's command line says to this backend: `--backend-config=tensorrtllm,KEY=VALUE`.
#pragma once

#include <string_view>

#include "inflight/open.h"
#include "inflight/status.h"

namespace inflight::triton_backend {

// `json`: of TRITONBACKEND_BackendConfig, {"cmdline": {KEY: VALUE, ...}}. Keys: `device`,
// `dtype` and `threads`, as the options of these names of `inflight serve`. Those that Triton gives
// to every backend are its own; another gets a line in the log. kInvalidArgument names the key.
Result<OpenOptions> ParseBackendOptions(std::string_view json);

}  // namespace inflight::triton_backend
