// SPDX-License-Identifier: Apache-2.0
// Information of several lines in the log.
#pragma once

#include <string_view>

#include "base/log.h"

namespace inflight::logging {

// The lines follow that of `message` as they are but for control characters.
void Table(std::string_view message, std::string_view lines, Where where = Where::current());

}  // namespace inflight::logging
