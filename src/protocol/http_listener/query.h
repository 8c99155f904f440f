// SPDX-License-Identifier: Apache-2.0
// The query of a request's target: "/sleep?level=1&mode=keep".
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::http_listener {

// Its names and values, decoded, in turn; a status that is not OK ends the walk and is returned.
Status ForEachInQuery(
    std::string_view target,
    const std::function<Status(const std::string& name, const std::string& value)>& visit);

}  // namespace inflight::http_listener
