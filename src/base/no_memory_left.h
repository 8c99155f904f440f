// SPDX-License-Identifier: Apache-2.0
// What is said where memory has run out: a short text, which takes as little as may be.
#pragma once

#include "inflight/status.h"

namespace inflight {

inline Status NoMemoryLeft() { return OutOfMemory("no memory left"); }

}  // namespace inflight
