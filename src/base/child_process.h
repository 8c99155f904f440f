// SPDX-License-Identifier: Apache-2.0
// A program that this process starts, and that is there no longer than this process wants it. Its
// standard input is a connection whose other end this process holds: it has an end when this
// process has one, however that comes, and a program that reads it to its end knows. Its standard
// output and error are this process's; no other descriptor is open in it, and of the signals SIGINT
// and SIGTERM alone are blocked, for it to take when it is ready.
//
// Threads: all functions are for any; a thread of its own waits for the program's end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "inflight/status.h"

namespace inflight {

class ChildProcess {
 public:
  // `arguments` begin with the name that the program has for itself. `on_end` is called once, by
  // the thread that waits, with what became of it: "exit status 1", "signal 9 (Killed)".
  // kNotFound, kPermissionDenied, kFailedPrecondition: the system does not start it, with its
  // reason.
  static Result<std::unique_ptr<ChildProcess>> Start(
      const std::filesystem::path& program, const std::vector<std::string>& arguments,
      std::function<void(const std::string& how)> on_end);

  ~ChildProcess();  // kills it where it runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const { return id_; }
  // To its standard input; kUnavailable where that is closed. Of a few kilobytes, which wait for
  // nobody.
  Status Write(std::string_view text);
  // None while it runs.
  std::optional<std::string> how_it_ended() const;
  // Whether it has ended within that time.
  bool WaitUntilEnded(std::chrono::milliseconds patience);

 private:
  ChildProcess(pid_t id, Descriptor input, std::function<void(const std::string& how)> on_end);
  void Wait();

  const pid_t id_;
  const std::function<void(const std::string& how)> on_end_;
  Descriptor input_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<std::string> how_;  // guarded by mutex_; with it the id may be another's
  std::thread thread_;
};

}  // namespace inflight
