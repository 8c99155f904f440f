// SPDX-License-Identifier: Apache-2.0
// What the library logs: lines on standard error, one per event.
#pragma once

#include <cstdint>

namespace inflight {

enum class LogLevel : uint8_t {
  kVerbose,  // for debugging
  kInfo,     // what is loaded, chosen and planned
  kWarning,  // what a user may not expect
  kError,    // what stopped working
};

// The least level that is printed, of the whole process; kInfo at start. Thread-safe.
void SetLogLevel(LogLevel level);

}  // namespace inflight
