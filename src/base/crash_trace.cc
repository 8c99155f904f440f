// SPDX-License-Identifier: Apache-2.0
#include "base/crash_trace.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

#include "base/mapped_places.h"

namespace inflight {
namespace {

constexpr int kMaxFrames = 64;

void Tell(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

// Calls nothing that allocates: the heap may be what is broken.
void PrintTrace(int signal) {
  ::signal(signal, SIG_DFL);
  void* frames[kMaxFrames];
  Tell(signal == SIGSEGV ? "SIGSEGV" : signal == SIGBUS ? "SIGBUS" : "SIGABRT");
  Tell(", stack trace:\n");
  backtrace_symbols_fd(frames, backtrace(frames, kMaxFrames), STDERR_FILENO);
  raise(signal);
}

// A mapping was read behind the end of its file. Other threads may read it as well: no work can be
// ended in order, and they wait here for the end.
void TellWhichFile(int signal, siginfo_t* info, void*) {
  const char* const path = MappedPathAt(info->si_addr);
  if (path == nullptr) return PrintTrace(signal);
  static std::atomic_flag is_told;
  while (is_told.test_and_set()) pause();
  Tell("inflight: ");
  Tell(path);
  Tell(
      ": was cut short while its weights were in use, which ends the process; put new files in the "
      "place of old ones by renaming, and start again\n");
  _exit(1);
}

}  // namespace

void InstallCrashTrace() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs, which it could not do later
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS}) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_flags = SA_NODEFER;
    if (signal == SIGBUS) {
      action.sa_sigaction = TellWhichFile;
      action.sa_flags |= SA_SIGINFO;
    } else {
      action.sa_handler = PrintTrace;
      action.sa_flags |= SA_RESETHAND;
    }
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace inflight
