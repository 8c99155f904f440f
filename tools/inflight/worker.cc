// SPDX-License-Identifier: Apache-2.0
// inflight worker: a rank of one model, started by a server in orchestrator mode
// (loader/orchestrator.h). Its order is the first line of standard input, where the server holds
// the other end; the arguments are for people who look at processes.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <thread>

#include "base/crash_trace.h"
#include "base/log_settings.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "command_line.h"
#include "commands.h"
#include "launched_rank.h"
#include "loader/rank_order.h"

namespace inflight::tool {
namespace {

// Byte by byte: what comes behind it is not for this.
std::string FirstLine() {
  std::string line;
  char byte = 0;
  while (true) {
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1 || byte == '\n') return line;
    line += byte;
  }
}

// Whatever this process does: without its server it is nothing.
void EndWithTheServer() {
  NameThisThread("server-watch");
  char byte = 0;
  ssize_t got = 0;
  do got = read(STDIN_FILENO, &byte, 1);
  while (got > 0 || (got < 0 && errno == EINTR));
  _exit(1);
}

Status SetLog(const logging::Settings& log) {
  logging::SetEnabled(logging::Level::kInfo, log.info);
  logging::SetEnabled(logging::Level::kWarning, log.warning);
  logging::SetEnabled(logging::Level::kError, log.error);
  logging::SetVerboseLevel(log.verbose_level);
  logging::SetFormat(log.format);
  logging::SetConsole(logging::Console::kBoth);
  return log.file.empty() ? Status::Ok() : logging::SetFile(log.file);
}

Status Work() {
  const auto order = ParseRankOrder(FirstLine());
  if (!order.ok())
    return order.status().WithPrefix(
        "inflight worker is for servers in orchestrator mode, which start it");
  RETURN_IF_ERROR(SetLog(order->log));
  const sigset_t signals = BlockStopSignals();
  std::thread(EndWithTheServer).detach();
  ASSIGN_OR_RETURN(const auto processes, JoinAsOrdered(*order));
  const OpenOptions open = {.device = order->device, .num_threads = order->num_threads};
  return processes->Follow(open, AskedToStop(signals));
}

}  // namespace

int WorkerMain(Args) {
  InstallCrashTrace();
  const Status done = Work();
  return done.ok() ? 0 : Fail(done);
}

}  // namespace inflight::tool
