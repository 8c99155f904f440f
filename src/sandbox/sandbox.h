// SPDX-License-Identifier: Apache-2.0
// What the process may still do after it has entered its sandbox, for good: open the files that it
// was told of (Landlock), call the system for what a server needs (seccomp), and gain no privilege
// by a program that it starts (no_new_privs), which it cannot do either.
//
// Threads: Enter is called before any other thread is started, since a thread has the sandbox of
// the
//          one that started it.
// Errors:  kFailedPrecondition says what the kernel lacks.
// Sources: Documentation/userspace-api/landlock.rst and seccomp_filter.rst of Linux.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "inflight/status.h"

namespace inflight::sandbox {

// Of a directory all that lies below it, now or later. Names that do not exist are left out.
struct Files {
  std::vector<std::filesystem::path> read;
  std::vector<std::filesystem::path> write;    // directories; files are made and removed there too
  std::vector<std::filesystem::path> sockets;  // directories; Unix sockets are made there
  std::vector<std::filesystem::path> objects;  // read and written, but not made: shared memory
  std::vector<std::filesystem::path> devices;  // read, written, controlled
};

struct Rules {
  Files files;
  bool may_connect = true;        // over TCP; before Landlock 4 (Linux 6.7) nothing keeps it
  bool has_unix_sockets = true;   // and so reaches whoever listens on one
  bool has_socket_pairs = false;  // within the process, also without Unix sockets
  bool must_be_whole = true;      // else what the kernel has is taken
};

struct Entered {
  int landlock = 0;                // its version; 0 where the kernel has none
  bool has_filter = false;         // of system calls
  std::vector<std::string> lacks;  // what was left out, a sentence each
};

Result<Entered> Enter(const Rules& rules);

}  // namespace inflight::sandbox
