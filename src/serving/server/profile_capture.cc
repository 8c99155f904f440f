// SPDX-License-Identifier: Apache-2.0
#include "serving/server/profile_capture.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/status_macros.h"

namespace inflight::serving {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

int64_t EpochMsNow() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

// As many turns as the client's memory has room for.
Result<size_t> ChargeTurns(size_t frame_bytes, MemoryCharge& charge) {
  constexpr size_t kTurnBytes = sizeof(TurnProfile) + kMaxTurnJsonBytes;
  Status status;
  for (size_t turns = ProfileCapture::kMaxTurns; turns >= ProfileCapture::kMinTurns; turns /= 2) {
    status = charge.Resize(frame_bytes + turns * kTurnBytes);
    if (status.ok()) return turns;
  }
  return status;
}

}  // namespace

void ProfileCapture::Start(ProfileRequest request, std::vector<ProfiledLoop> loops,
                           ProfileHandler handler) {
  const auto job = std::make_shared<Job>(
      Job{.request = std::move(request), .loops = std::move(loops), .handler = std::move(handler)});
  if (const Status status = Post(job); !status.ok()) job->handler(status);
}

Status ProfileCapture::Post(const std::shared_ptr<Job>& job) {
  const int64_t now_ns = Clock::System().NowNs();
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return Unavailable("Server is stopping, cannot take a profile");
  if (is_running_) {
    const int64_t left_s = std::max<int64_t>(runs_until_ns_ - now_ns, 0) / (1000 * kNsPerMs) + 1;
    return ResourceExhausted(
               "another profile is being taken, and a server takes one at a time; ask again in " +
               std::to_string(left_s) + " s")
        .WithReason(Reason::kOverLimit)
        .WithRetryAfter(left_s);
  }
  if (thread_ == nullptr) thread_ = std::make_unique<WorkerPool>(1, "profile");
  thread_->Post([this, job] { Run(*job); });
  is_running_ = true;
  runs_until_ns_ = now_ns + job->request.duration_ms * kNsPerMs;
  return Status::Ok();
}

void ProfileCapture::Stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  wake_.notify_all();
}

void ProfileCapture::Run(const Job& job) {
  Result<ProfileText> text = Internal("no profile was taken");
  try {
    text = Take(job);
  } catch (const std::exception& e) {  // such as bad_alloc
    text = Caught("the profile failed", e);
  }
  for (const ProfiledLoop& loop : job.loops) loop.profiler->End();
  {  // first: a client that is answered may ask again at once
    const std::lock_guard lock(mutex_);
    is_running_ = false;
  }
  job.handler(std::move(text));
}

Result<ProfileText> ProfileCapture::Take(const Job& job) {
  ProfileTrace trace;
  for (const ProfiledLoop& loop : job.loops) trace.loops.push_back(loop.facts);
  MemoryCharge charge(job.request.memory);
  ASSIGN_OR_RETURN(const size_t max_turns, ChargeTurns(MaxFrameJsonBytes(trace), charge));
  trace.begin_epoch_ms = EpochMsNow();
  trace.begin_ns = Clock::System().NowNs();
  const size_t max_turns_of_each = std::max<size_t>(max_turns / job.loops.size(), 1);
  for (const ProfiledLoop& loop : job.loops)
    loop.profiler->Begin(trace.begin_ns, max_turns_of_each);
  Wait(job.request);
  for (size_t i = 0; i < job.loops.size(); ++i) trace.loops[i].steps = job.loops[i].profiler->End();
  trace.end_ns = Clock::System().NowNs();
  trace.is_whole = trace.end_ns - trace.begin_ns >= job.request.duration_ms * kNsPerMs;
  if (job.request.cancel->cancelled()) return Cancelled("the client has gone");
  std::string text = ProfileJson(trace);
  RETURN_IF_ERROR(charge.Resize(text.size()));  // what it has beyond its size was never touched
  return ProfileText(Charged(std::move(text), std::move(charge)));
}

// Until its time is over, its client has gone, or the server ends.
void ProfileCapture::Wait(const ProfileRequest& request) {
  request.cancel->SetListener([this] {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  });
  {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::milliseconds(request.duration_ms),
                   [&] { return is_stopped_ || request.cancel->cancelled(); });
  }
  request.cancel->SetListener(nullptr);
}

}  // namespace inflight::serving
