// SPDX-License-Identifier: Apache-2.0
// Counts and times of one model version, as the statistics endpoint and the metrics page show them
// (docs/metrics.md).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "inflight/request.h"
#include "serving/statistics/quantiles.h"

namespace inflight::serving {

// Why a request failed: the label values of nv_inference_request_failure.
enum class FailureReason : uint8_t { kRejected, kCanceled, kBackend, kOther };

struct DurationStat {
  uint64_t count = 0;
  uint64_t ns = 0;
};

struct BatchStat {
  DurationStat compute_input, compute_infer, compute_output;
};

// One request's times, monotonic nanoseconds; all set for successful requests.
struct RequestSpan {
  int64_t received_ns = 0;       // request complete at the front end
  int64_t compute_start_ns = 0;  // left the queue
  int64_t compute_input_end_ns = 0;
  int64_t compute_output_start_ns = 0;
  int64_t finished_ns = 0;
};

// Several requests that were executed together: one execution, whose times are the sum of what its
// requests took one behind the other. Written under the statistics' lock.
struct BatchExecution {
  uint64_t size = 0;  // elements
  bool is_counted = false;
  int64_t counted_until_ns = 0;
};

// A request that succeeded.
struct FinishedRequest {
  int64_t num_prompt_tokens = 0;
  int64_t num_output_tokens = 0;  // of all its sequences
  int64_t latency_ns = 0;         // from its arrival at the front end to its last token
  FinishReason reason = FinishReason::kEndId;  // of its last sequence; stop texts are stop words
};

// Fixed upper bounds, so that Observe neither allocates nor formats.
struct Histogram {
  std::vector<double> upper_bounds;  // ascending; an implicit +Inf follows
  std::vector<uint64_t> counts;      // upper_bounds.size() + 1
  double sum = 0;
  uint64_t count = 0;
};

// What is kept only where it was asked for (--metrics-config) or where it can happen.
struct StatisticsOptions {
  std::vector<double> first_response_ms;  // upper bounds; none = not kept
  std::vector<Quantile> quantiles;        // of latencies; none = not kept
  bool has_cache = false;                 // the model's responses are cached
};

// In microseconds; without quantiles where none are kept.
struct LatencySummaries {
  SummarySnapshot request, queue, compute_input, compute_infer, compute_output, cache_hit,
      cache_miss;
};

struct StatisticsSnapshot {
  uint64_t last_inference_ms = 0;  // epoch
  uint64_t inference_count = 0;    // elements of batches
  uint64_t execution_count = 0;
  DurationStat success, fail, queue, compute_input, compute_infer, compute_output, cancel;
  DurationStat cache_hit, cache_miss;  // look-ups; look-ups and inserts
  bool has_cache = false;
  std::map<uint64_t, BatchStat> batches;  // by batch size
  std::map<FailureReason, uint64_t> failures;
  uint64_t pending_requests = 0;
  // Latencies of streamed text, milliseconds: time to first token, between tokens, in queue; and
  // the executor's step time.
  Histogram ttft_ms, itl_ms, queue_ms, step_ms;
  // Of requests that succeeded: lengths in tokens, milliseconds from arrival to the last token, and
  // why they ended (kEndId, kStopWords, kLength or kCancelled).
  Histogram prompt_tokens, output_tokens, request_ms;
  std::map<FinishReason, uint64_t> finished;
  Histogram first_response_ms;    // no bounds where it is not kept
  std::vector<double> quantiles;  // of the summaries; none where they are not kept
  std::optional<LatencySummaries> summaries;
};

// Step times, which the step loop adds without a lock. One writer; readers may see a step counted
// in one number and not yet in another.
class StepTimes {
 public:
  static constexpr std::array<double, 13> kUpperBoundsMs = {0.5, 1,   2,   5,    10,   20,  50,
                                                            100, 200, 500, 1000, 2000, 5000};
  // Before the first step that is observed; until then, steps are not told apart by their rows.
  void SetMaxRows(int max_rows);
  void Observe(int64_t ns, int num_rows);
  void Reset();
  Histogram Snapshot() const;
  bool counts_rows() const { return !by_rows_.empty(); }
  // Steps as executions of so many rows. Only compute_infer: their parts are not timed.
  std::map<uint64_t, BatchStat> Batches() const;

 private:
  struct Steps {
    std::atomic<uint64_t> count{0}, ns{0};
  };
  std::array<std::atomic<uint64_t>, kUpperBoundsMs.size() + 1> counts_{};
  std::atomic<int64_t> sum_ns_{0};
  std::vector<Steps> by_rows_;  // [max_rows + 1]
};

// Threads: all methods are thread-safe.
class ModelStatistics {
 public:
  ModelStatistics();
  ~ModelStatistics();

  // Both before the first request that counts.
  void Configure(const StatisticsOptions& options);
  void Reset();  // to zero, after a warm-up

  void RequestPending();  // accepted, waits for execution
  void RequestStarted();  // no longer pending
  // Where something else knows how many wait (the executor's queue), it is asked instead.
  void SetPendingSource(std::function<uint64_t()> source);

  // `execution` null: the request was one by itself.
  void RequestSucceeded(const RequestSpan& span, uint64_t batch_size = 1,
                        BatchExecution* execution = nullptr);
  // `num_executions` requests at once, with the sum of their times: the steps of an ensemble that
  // run once per streamed response.
  void RequestsSucceeded(const RequestSpan& total, uint64_t num_executions);
  void RequestFailed(FailureReason reason, int64_t received_ns, int64_t finished_ns);
  void RequestCancelled(int64_t received_ns, int64_t finished_ns,
                        FailureReason reason = FailureReason::kCanceled);
  // A request that the cache answered, and what a look-up in vain cost one that it did not.
  void RequestCached(int64_t received_ns, int64_t lookup_ns, int64_t finished_ns);
  void CacheMissed(int64_t ns);

  // Whether ObserveFirstResponse is of use.
  bool keeps_first_response() const { return keeps_first_response_; }
  void ObserveFirstResponse(int64_t ns);
  void ObserveTtft(int64_t ns);
  void ObserveItl(int64_t ns);
  void ObserveQueue(int64_t ns);
  void ObserveStep(int64_t ns, int num_rows) { step_times_.Observe(ns, num_rows); }  // never waits
  // Batches are then steps, by the rows that shared one, and not requests. Before the first step.
  void CountStepsAsBatches(int max_rows) { step_times_.SetMaxRows(max_rows); }
  void ObserveFinished(const FinishedRequest& request);

  StatisticsSnapshot Snapshot() const;

 private:
  struct Summaries;

  void AddSuccess(const RequestSpan& span, uint64_t num_executions, uint64_t batch_size,
                  BatchExecution* execution = nullptr);

  StatisticsOptions options_;  // constant after Configure
  bool keeps_first_response_ = false;
  mutable std::mutex mutex_;
  StatisticsSnapshot data_;  // without step_ms and summaries
  std::unique_ptr<Summaries> summaries_;
  StepTimes step_times_;
  std::function<uint64_t()> pending_source_;
};

}  // namespace inflight::serving
