// SPDX-License-Identifier: Apache-2.0
// Takes the iterations of one executor as they come, logs each at verbose level as two lines of
// JSON, the back-end's and the executor's, and keeps the newest for the gauges and the statistics
// endpoint. Request statistics, where the executor keeps them, are logged behind them, a line each.
//
// The log and the gauges show the same records: whoever asks for the newest first gets everything
// logged that happened before. Records for which the thread finds no memory stay with the executor
// until the next look, or are lost where they had been taken.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "inflight/executor.h"
#include "serving/statistics/iteration_metrics.h"

namespace inflight::serving {

struct IterationReporterOptions {
  int period_ms = 100;  // stats_check_period_ms; 0 = only when asked, without a thread
  // False where the executor keeps no records (iter_stats_max_iterations 0): then nothing is
  // logged, and the newest iteration is what the executor says when asked.
  bool has_records = true;
  bool has_request_records = false;  // the same of request_stats_max_iterations
};

class IterationReporter {
 public:
  IterationReporter(std::shared_ptr<Executor> executor, const IterationProfile& profile,
                    const IterationReporterOptions& options, Clock& clock);
  ~IterationReporter();

  const IterationProfile& profile() const { return profile_; }

  struct Newest {
    Iteration iteration;
    std::shared_ptr<const RequestStatsPerIteration> requests;  // null before the first record
  };
  // Takes what is new, then returns the newest. Any thread but the step loop's.
  Newest Check();

 private:
  void Run(int period_ms);
  void Report(const ExecutorStats& record);   // under mutex_
  void Keep(const ExecutorStats& stats);      // under mutex_
  void KeepMemory(const ExecutorStats& now);  // under mutex_
  void ReportRequests();                      // under mutex_

  const std::shared_ptr<Executor> executor_;
  const IterationProfile profile_;
  const bool has_records_;
  const bool has_request_records_;
  Clock& clock_;

  std::mutex mutex_;
  std::vector<ExecutorStats> records_;                     // reused
  std::vector<RequestStatsPerIteration> request_records_;  // reused
  Iteration newest_;
  std::shared_ptr<const RequestStatsPerIteration> newest_requests_;
  bool is_stopping_ = false;
  std::condition_variable stop_;
  std::thread thread_;
};

}  // namespace inflight::serving
