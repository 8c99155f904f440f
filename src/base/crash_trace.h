// SPDX-License-Identifier: Apache-2.0
// SIGSEGV, SIGABRT and SIGBUS print a stack trace on standard error before they end the process as
// they would without it; SIGBUS in a mapped file that was cut short names the file, and the process
// ends with status 1. Signals that something else handles, as sanitizers do, are left to it.
#pragma once

namespace inflight {

void InstallCrashTrace();

}  // namespace inflight
