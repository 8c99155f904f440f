// SPDX-License-Identifier: Apache-2.0
// What is said where memory has run out: a text so short that it takes none itself.
#pragma once

#include "inflight/status.h"

namespace inflight {

inline Status NoMemoryLeft() { return OutOfMemory("no memory left"); }

}  // namespace inflight
