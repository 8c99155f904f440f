// SPDX-License-Identifier: Apache-2.0
// SIGSEGV and SIGABRT print a stack trace on standard error before they end the process as they
// would without it. Signals that something else handles, as sanitizers do, are left to it.
#pragma once

namespace inflight::tool {

void InstallCrashTrace();

}  // namespace inflight::tool
