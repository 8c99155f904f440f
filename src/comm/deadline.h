// SPDX-License-Identifier: Apache-2.0
// Until when a rank waits for others.
#pragma once

#include <chrono>

namespace inflight::comm {

using Deadline = std::chrono::steady_clock::time_point;

}  // namespace inflight::comm
