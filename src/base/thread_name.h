// SPDX-License-Identifier: Apache-2.0
// Names of threads, as debuggers and /proc show them. docs/architecture.md lists them; a test
// compares a running server's with that table.
#pragma once

#include <string_view>

namespace inflight {

// Names the calling thread; the system keeps 15 bytes.
void NameThisThread(std::string_view name);

}  // namespace inflight
