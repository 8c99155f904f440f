// SPDX-License-Identifier: Apache-2.0
// Landlock by its three system calls: what no rule allows of files is refused with EACCES. The
// kernel's headers of Debian 12 know the first two versions; the numbers here are those of Linux
// 6.15, whose version is the seventh.
#pragma once

#include "sandbox/sandbox.h"

namespace inflight::sandbox {

int LandlockVersion();  // 0 where the kernel has none, or has it turned off

// For this thread and those that it starts; needs no_new_privs.
Status RestrictFiles(const Rules& rules, int version);

}  // namespace inflight::sandbox
