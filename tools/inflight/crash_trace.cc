// SPDX-License-Identifier: Apache-2.0
#include "crash_trace.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <string_view>

namespace inflight::tool {
namespace {

constexpr int kMaxFrames = 64;

void Write(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

// Calls nothing that allocates: the heap may be what is broken. The default action is back when it
// is entered.
void PrintTrace(int signal) {
  void* frames[kMaxFrames];
  Write(signal == SIGSEGV ? "SIGSEGV" : "SIGABRT");
  Write(", stack trace:\n");
  backtrace_symbols_fd(frames, backtrace(frames, kMaxFrames), STDERR_FILENO);
  raise(signal);
}

}  // namespace

void InstallCrashTrace() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs, which it could not do later
  for (const int signal : {SIGSEGV, SIGABRT}) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = PrintTrace;
    action.sa_flags = SA_RESETHAND | SA_NODEFER;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace inflight::tool
