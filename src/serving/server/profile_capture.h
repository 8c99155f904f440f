// SPDX-License-Identifier: Apache-2.0
// Captures where the step loops' time goes, for a while and one capture at a time
// (docs/reference/protocol/http.md, "Profiles").
//
// Memory: all that a capture may take, turns and their text, is charged before it begins; turns
// that find no room are counted.
// Threads: all methods are thread-safe, and none blocks; captures wait on a thread of their own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory_account.h"
#include "base/worker_pool.h"
#include "inflight/step_profile.h"
#include "serving/core/request.h"
#include "serving/statistics/step_profile_json.h"

namespace inflight::serving {

inline constexpr int64_t kMaxProfileMs = 60'000;

struct ProfileRequest {
  int64_t duration_ms = 1000;  // [1, kMaxProfileMs]
  std::string model = {};      // empty: all that have a step loop
  std::shared_ptr<AccountShare> memory = {};
  std::shared_ptr<CancelToken> cancel = std::make_shared<CancelToken>();  // never null
};

// JSON, with what it is charged with.
using ProfileText = std::shared_ptr<const std::string>;
// Called once, from any thread.
using ProfileHandler = std::function<void(Result<ProfileText>)>;

// A step loop to look at. Its model may go meanwhile: what was kept of it stays.
struct ProfiledLoop {
  LoopProfile facts;
  std::shared_ptr<StepProfiler> profiler;  // never null
};

class ProfileCapture {
 public:
  static constexpr size_t kMaxTurns = 16'384;  // of all step loops together
  static constexpr size_t kMinTurns = 256;     // with less there is no capture

  ~ProfileCapture() { Stop(); }

  // `loops` are some. kResourceExhausted: another capture runs, or memory is missing; kUnavailable
  // after Stop.
  void Start(ProfileRequest request, std::vector<ProfiledLoop> loops, ProfileHandler handler);

  // The server ends: so does the capture that runs, with what it has.
  void Stop();

 private:
  struct Job {
    ProfileRequest request;
    std::vector<ProfiledLoop> loops;
    ProfileHandler handler;
  };

  Status Post(const std::shared_ptr<Job>& job);
  void Run(const Job& job);
  Result<ProfileText> Take(const Job& job);
  void Wait(const ProfileRequest& request);

  std::mutex mutex_;  // of what is below
  std::condition_variable wake_;
  bool is_stopped_ = false;
  bool is_running_ = false;
  int64_t runs_until_ns_ = 0;
  std::unique_ptr<WorkerPool> thread_;  // from the first capture on; last: uses the above
};

}  // namespace inflight::serving
