// SPDX-License-Identifier: Apache-2.0
#include "load_until_signal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <thread>

#include "base/log.h"
#include "base/thread_name.h"
#include "command_line.h"

namespace inflight::tool {
namespace {

constexpr timespec kBetweenSignals = {.tv_sec = 0, .tv_nsec = 10'000'000};
constexpr std::chrono::milliseconds kGrace{800};

Status Load(serving::LoadableServer& server) {
  NameThisThread("load");
  try {
    return server.LoadAtStart();
  } catch (const std::exception& e) {  // such as bad_alloc
    return Caught("loading failed", e);
  }
}

}  // namespace

Status LoadUntilSignal(serving::LoadableServer& server, const sigset_t& signals,
                       const std::function<void()>& tidy_up) {
  std::promise<Status> promise;
  std::future<Status> loaded = promise.get_future();
  std::thread thread([&] { promise.set_value(Load(server)); });
  int signal = 0;
  while (loaded.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    signal = sigtimedwait(&signals, nullptr, &kBetweenSignals);
    if (signal > 0) break;
  }
  if (signal > 0) {
    logging::Info(fmt::format("Signal ({}) received.", signal));
    server.BeginExit();
    if (loaded.wait_for(kGrace) != std::future_status::ready) {
      tidy_up();
      std::fflush(nullptr);
      _exit(Fail(Cancelled("a signal ended the start before the models were loaded")));
    }
  }
  thread.join();
  Status status = loaded.get();
  if (signal > 0 && status.ok())
    return Cancelled("a signal ended the start when the models were loaded");
  return status;
}

}  // namespace inflight::tool
