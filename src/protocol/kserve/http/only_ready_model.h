// SPDX-License-Identifier: Apache-2.0
// Which model hosting platforms mean that name none.
#pragma once

#include <string>

#include "inflight/status.h"
#include "serving/server/server.h"

namespace inflight::kserve_http {

// kNotFound says how many models are ready, where that is not one.
Result<std::string> OnlyReadyModel(const serving::Server& server);

}  // namespace inflight::kserve_http
