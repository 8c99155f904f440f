// SPDX-License-Identifier: Apache-2.0
#include "serving/statistics/iteration_reporter.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"
#include "serving/statistics/iteration_stats_json.h"
#include "serving/statistics/request_stats_json.h"

namespace inflight::serving {
namespace {

// Those who read the log of 0.10 and before take the record from its first brace to the end of the
// line, as JSON; later ones undo the quotes of the log.
constexpr int kLastRawRelease = 10;

int64_t NumEnded(const ExecutorStats& stats) {
  return stats.requests_completed + stats.requests_cancelled + stats.requests_failed +
         stats.requests_timed_out;
}

int64_t EpochUs(int64_t monotonic_ns, int64_t monotonic_now_ns) {
  using namespace std::chrono;
  const auto now = system_clock::now().time_since_epoch();
  return duration_cast<microseconds>(now - nanoseconds(monotonic_now_ns - monotonic_ns)).count();
}

}  // namespace

IterationReporter::IterationReporter(std::shared_ptr<Executor> executor,
                                     const IterationProfile& profile,
                                     const IterationReporterOptions& options, Clock& clock)
    : executor_(std::move(executor)),
      profile_(profile),
      has_records_(options.has_records),
      has_request_records_(options.has_request_records),
      clock_(clock) {
  newest_.stats = executor_->stats();  // bounds and memory are known before the first iteration
  newest_.block_size = executor_->limits().block_size;
  newest_.max_batch_size = executor_->limits().max_batch_size;
  newest_.max_num_tokens = executor_->limits().max_num_tokens;
  if (options.period_ms > 0 && (has_records_ || has_request_records_)) {
    thread_ = std::thread([this, period_ms = options.period_ms] { Run(period_ms); });
  }
}

IterationReporter::~IterationReporter() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void IterationReporter::Run(int period_ms) {
  NameThisThread("inflight-stats");
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    stop_.wait_for(lock, std::chrono::milliseconds(period_ms));
    lock.unlock();
    RunTurn("inflight-stats", [this] { Check(); });
    lock.lock();
  }
}

IterationReporter::Newest IterationReporter::Check() {
  const std::lock_guard lock(mutex_);
  if (has_records_) {
    records_.clear();
    executor_->TakeIterationStats(&records_);
    for (const ExecutorStats& record : records_) Report(record);
    KeepMemory(executor_->stats());
  } else {
    ExecutorStats stats = executor_->stats();
    if (stats.num_active_requests == 0) {
      stats.num_scheduled_requests = stats.num_context_requests = 0;
      stats.num_generation_requests = stats.num_context_tokens = 0;
      stats.last_step_ns = 0;
    }
    Keep(stats);
  }
  if (has_request_records_) ReportRequests();
  return {newest_, newest_requests_};
}

// What sleeping gives back is in no record: no step runs.
void IterationReporter::KeepMemory(const ExecutorStats& now) {
  newest_.stats.cpu_memory_bytes = now.cpu_memory_bytes;
  newest_.stats.gpu_memory_bytes = now.gpu_memory_bytes;
  newest_.stats.pinned_memory_bytes = now.pinned_memory_bytes;
}

void IterationReporter::Report(const ExecutorStats& record) {
  Keep(record);
  if (logging::Enabled(logging::Level::kVerbose)) {
    const std::string json = IterationJson(newest_, profile_);
    if (profile_.release <= kLastRawRelease)
      logging::Record(logging::Level::kVerbose, json);
    else
      logging::Verbose(json);
    logging::Verbose(IterationStatsJson(newest_, profile_));
  }
}

void IterationReporter::ReportRequests() {
  request_records_.clear();
  executor_->TakeRequestStats(&request_records_);
  if (request_records_.empty()) return;
  if (logging::Enabled(logging::Level::kVerbose)) {
    for (const RequestStatsPerIteration& record : request_records_) {
      logging::Verbose(RequestStatsJson(record));
    }
  }
  newest_requests_ =
      std::make_shared<const RequestStatsPerIteration>(std::move(request_records_.back()));
}

void IterationReporter::Keep(const ExecutorStats& stats) {
  const ExecutorStats& before = newest_.stats;
  newest_.num_terminated = NumEnded(stats) - NumEnded(before);
  newest_.num_new_active = stats.requests_started - before.requests_started;
  newest_.new_active_queue_ns = stats.queue_ns - before.queue_ns;
  newest_.rows_decoded = stats.rows_decoded - before.rows_decoded;
  newest_.tokens_decoded = stats.tokens_decoded - before.tokens_decoded;
  newest_.stats = stats;
  newest_.timestamp_us = stats.num_steps == 0 ? 0 : EpochUs(stats.heartbeat_ns, clock_.NowNs());
}

}  // namespace inflight::serving
