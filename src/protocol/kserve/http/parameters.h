// SPDX-License-Identifier: Apache-2.0
// Custom request parameters in JSON: scalars that are handed to the model under their names.
#pragma once

#include <string_view>

#include "inflight/status.h"
#include "json/json_reader.h"
#include "serving/core/request.h"

namespace inflight::kserve_http {

// Integers within int64 stay integers, other numbers become doubles. kInvalidArgument for arrays,
// objects and null, and beyond 1024 parameters. Of repeated names the first stays.
Status AddParameter(std::string_view name, const json::Value& value,
                    serving::Parameters& parameters);

}  // namespace inflight::kserve_http
