// SPDX-License-Identifier: Apache-2.0
// The filter of system calls: what a server has no use for is refused with EPERM. It is a list of
// what is refused, not of what is allowed, because drivers of GPUs and the C library call what
// changes with their versions.
#pragma once

#include "inflight/status.h"

namespace inflight::sandbox {

bool HasSystemCallFilters();

// For this thread and those that it starts; needs no_new_privs.
//   EPERM         programs and processes (execve, fork), other processes' memory, mounts, modules,
//   keys,
//                 BPF, io_uring, userfaultfd, perf events, clocks, users and groups
//   ENOSYS        clone3, whose flags a filter cannot see; the C library then calls clone
//   EAFNOSUPPORT  sockets other than Unix, IPv4, IPv6 and netlink (which name look-ups ask)
// A call of another architecture's numbers ends the process.
Status FilterSystemCalls();

}  // namespace inflight::sandbox
