// SPDX-License-Identifier: Apache-2.0
// What a C library newer than 2.28 has and older ones lack, for a program that starts with either
// (scripts/glibc_stubs.py; docs/releasing.md, "An older C library"): what our code, the compiler's
// libraries and archives of the distribution call under the C library's own names. Those need no
// header: the linker takes functions.cc in place of what is not to be had. Here is what these
// functions do where the C library of the system has nothing to call.
#pragma once

#include <pthread.h>
#include <spawn.h>
#include <time.h>

namespace inflight::old_glibc {

// pthread_cond_clockwait by the condition's own clock, CLOCK_REALTIME: a jump of that clock ends
// the wait early or late, and callers look at theirs again.
int WaitByRealTime(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                   const timespec* until);

// posix_spawn_file_actions_addclosefrom_np for the files that are open now.
int AddCloseOfOpenFiles(posix_spawn_file_actions_t* actions, int first);

}  // namespace inflight::old_glibc
