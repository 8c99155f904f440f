// SPDX-License-Identifier: Apache-2.0
// The filter of system calls: what a server has no use for is refused with EPERM. It is a list of
// what is refused, not of what is allowed, because drivers of GPUs and the C library call what
// changes with their versions.
#pragma once

#include "sandbox/sandbox.h"

namespace inflight::sandbox {

bool HasSystemCallFilters();

// For this thread and those that it starts; needs no_new_privs.
// clang-format off
//   EPERM            programs and processes (execve, fork); memory, signals, limits and queues of other processes;
//                    owners and modes of files by name; keys of a terminal (TIOCSTI); connecting by sending
//                    (MSG_FASTOPEN); mounts, modules, keys, BPF, io_uring, userfaultfd, perf events, clocks, users
//                    and groups
//   ENOSYS           clone3, whose flags a filter cannot see; the C library then calls clone
//   EAFNOSUPPORT     sockets other than IPv4, IPv6, netlink and, where the rules have them, Unix
//   EPROTONOSUPPORT  of these others than TCP, UDP and routes, which look-ups of names ask
// clang-format on
// A call of another architecture's numbers ends the process.
Status FilterSystemCalls(const Rules& rules);

}  // namespace inflight::sandbox
