// SPDX-License-Identifier: Apache-2.0
#include "serving/statistics/statistics.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace inflight::serving {
namespace {

constexpr double kNsPerMs = 1e6;

Histogram Buckets(std::vector<double> upper_bounds) {
  Histogram histogram;
  histogram.counts.assign(upper_bounds.size() + 1, 0);
  histogram.upper_bounds = std::move(upper_bounds);
  return histogram;
}

template <typename Bounds>
size_t BucketOf(const Bounds& upper_bounds, double value) {
  const auto bound = std::lower_bound(upper_bounds.begin(), upper_bounds.end(), value);
  return static_cast<size_t>(bound - upper_bounds.begin());
}

double Milliseconds(int64_t ns) { return static_cast<double>(std::max<int64_t>(ns, 0)) / kNsPerMs; }

void Observe(Histogram& histogram, double value) {
  ++histogram.counts[BucketOf(histogram.upper_bounds, value)];
  histogram.sum += value;
  ++histogram.count;
}

uint64_t Elapsed(int64_t from_ns, int64_t to_ns) {
  return static_cast<uint64_t>(std::max<int64_t>(to_ns - from_ns, 0));
}

void Add(DurationStat& stat, uint64_t count, uint64_t ns) {
  stat.count += count;
  stat.ns += ns;
}

uint64_t EpochMs() {
  using namespace std::chrono;
  return static_cast<uint64_t>(
      duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count());
}

StatisticsSnapshot Zero(const StatisticsOptions& options) {
  StatisticsSnapshot zero;
  const std::vector<double> latency = {1,   2,    5,    10,   20,    50,    100,  200,
                                       500, 1000, 2000, 5000, 10000, 30000, 60000};
  zero.ttft_ms = Buckets(latency);
  zero.queue_ms = Buckets(latency);
  zero.request_ms = Buckets(latency);
  zero.itl_ms = Buckets({StepTimes::kUpperBoundsMs.begin(), StepTimes::kUpperBoundsMs.end()});
  const std::vector<double> lengths = {10, 50, 100, 500, 1000};  // the TensorRT-LLM back-end's
  zero.prompt_tokens = Buckets(lengths);
  zero.output_tokens = Buckets(lengths);
  for (const auto reason : {FailureReason::kRejected, FailureReason::kCanceled,
                            FailureReason::kBackend, FailureReason::kOther}) {
    zero.failures[reason] = 0;
  }
  for (const auto reason : {FinishReason::kEndId, FinishReason::kStopWords, FinishReason::kLength,
                            FinishReason::kCancelled}) {
    zero.finished[reason] = 0;
  }
  zero.has_cache = options.has_cache;
  if (!options.first_response_ms.empty()) {
    zero.first_response_ms = Buckets(options.first_response_ms);
  }
  for (const Quantile& target : options.quantiles) zero.quantiles.push_back(target.quantile);
  return zero;
}

double Microseconds(uint64_t ns) { return static_cast<double>(ns) / 1000; }

}  // namespace

struct ModelStatistics::Summaries {
  explicit Summaries(const std::vector<Quantile>& targets)
      : request(targets),
        queue(targets),
        compute_input(targets),
        compute_infer(targets),
        compute_output(targets),
        cache_hit(targets),
        cache_miss(targets) {}

  LatencySummaries Snapshot(int64_t now_ns) {
    return {.request = request.Snapshot(now_ns),
            .queue = queue.Snapshot(now_ns),
            .compute_input = compute_input.Snapshot(now_ns),
            .compute_infer = compute_infer.Snapshot(now_ns),
            .compute_output = compute_output.Snapshot(now_ns),
            .cache_hit = cache_hit.Snapshot(now_ns),
            .cache_miss = cache_miss.Snapshot(now_ns)};
  }

  WindowSummary request, queue, compute_input, compute_infer, compute_output, cache_hit, cache_miss;
};

ModelStatistics::ModelStatistics() : data_(Zero({})) {}
ModelStatistics::~ModelStatistics() = default;

void ModelStatistics::Configure(const StatisticsOptions& options) {
  {
    std::lock_guard lock(mutex_);
    options_ = options;
    keeps_first_response_ = !options.first_response_ms.empty();
  }
  Reset();
}

void ModelStatistics::Reset() {
  std::lock_guard lock(mutex_);
  data_ = Zero(options_);
  step_times_.Reset();
  summaries_ =
      options_.quantiles.empty() ? nullptr : std::make_unique<Summaries>(options_.quantiles);
}

void ModelStatistics::RequestPending() {
  std::lock_guard lock(mutex_);
  ++data_.pending_requests;
}

void ModelStatistics::RequestStarted() {
  std::lock_guard lock(mutex_);
  if (data_.pending_requests > 0) --data_.pending_requests;
}

void ModelStatistics::SetPendingSource(std::function<uint64_t()> source) {
  std::lock_guard lock(mutex_);
  pending_source_ = std::move(source);
}

void ModelStatistics::RequestSucceeded(const RequestSpan& span, uint64_t batch_size,
                                       BatchExecution* execution) {
  AddSuccess(span, 1, batch_size, execution);
}

void ModelStatistics::RequestsSucceeded(const RequestSpan& total, uint64_t num_executions) {
  AddSuccess(total, num_executions, 1);
}

void ModelStatistics::AddSuccess(const RequestSpan& span, uint64_t num_executions,
                                 uint64_t batch_size, BatchExecution* execution) {
  const uint64_t queue = Elapsed(span.received_ns, span.compute_start_ns);
  const uint64_t input = Elapsed(span.compute_start_ns, span.compute_input_end_ns);
  const uint64_t infer = Elapsed(span.compute_input_end_ns, span.compute_output_start_ns);
  const uint64_t output = Elapsed(span.compute_output_start_ns, span.finished_ns);
  const uint64_t now_ms = EpochMs();

  std::lock_guard lock(mutex_);
  const uint64_t n = num_executions;
  data_.last_inference_ms = now_ms;
  data_.inference_count += n * batch_size;
  Add(data_.success, n, Elapsed(span.received_ns, span.finished_ns));
  Add(data_.queue, n, queue);
  Add(data_.compute_input, n, input);
  Add(data_.compute_infer, n, infer);
  Add(data_.compute_output, n, output);
  BatchStat& batch = data_.batches[execution == nullptr ? batch_size : execution->size];
  if (execution == nullptr) {
    data_.execution_count += n;
    Add(batch.compute_input, n, input);
    Add(batch.compute_infer, n, infer);
    Add(batch.compute_output, n, output);
  } else {
    const uint64_t first = execution->is_counted ? 0 : 1;
    const int64_t from_ns = std::max(execution->counted_until_ns, span.compute_input_end_ns);
    data_.execution_count += first;
    Add(batch.compute_input, first, first * input);
    Add(batch.compute_infer, first, Elapsed(from_ns, span.compute_output_start_ns));
    Add(batch.compute_output, first, output);
    execution->is_counted = true;
    execution->counted_until_ns = std::max(execution->counted_until_ns, span.finished_ns);
  }
  if (summaries_ == nullptr) return;
  // Of several executions the mean: their sum is all that is known.
  const auto each = [n](uint64_t ns) { return Microseconds(ns) / static_cast<double>(n); };
  for (uint64_t i = 0; i < n; ++i) {
    const int64_t at_ns = Clock::System().NowNs();
    summaries_->request.Observe(each(Elapsed(span.received_ns, span.finished_ns)), at_ns);
    summaries_->queue.Observe(each(queue), at_ns);
    summaries_->compute_input.Observe(each(input), at_ns);
    summaries_->compute_infer.Observe(each(infer), at_ns);
    summaries_->compute_output.Observe(each(output), at_ns);
  }
}

void ModelStatistics::RequestCached(int64_t received_ns, int64_t lookup_ns, int64_t finished_ns) {
  const uint64_t now_ms = EpochMs();
  std::lock_guard lock(mutex_);
  data_.last_inference_ms = now_ms;
  Add(data_.success, 1, Elapsed(received_ns, finished_ns));
  Add(data_.queue, 1, 0);
  Add(data_.cache_hit, 1, Elapsed(0, lookup_ns));
  if (summaries_ == nullptr) return;
  const int64_t at_ns = Clock::System().NowNs();
  summaries_->queue.Observe(0, at_ns);
  summaries_->cache_hit.Observe(Microseconds(Elapsed(0, lookup_ns)), at_ns);
}

void ModelStatistics::CacheMissed(int64_t ns) {
  std::lock_guard lock(mutex_);
  Add(data_.cache_miss, 1, Elapsed(0, ns));
  if (summaries_ == nullptr) return;
  summaries_->cache_miss.Observe(Microseconds(Elapsed(0, ns)), Clock::System().NowNs());
}

void ModelStatistics::ObserveFirstResponse(int64_t ns) {
  std::lock_guard lock(mutex_);
  if (keeps_first_response_) Observe(data_.first_response_ms, Milliseconds(ns));
}

void ModelStatistics::RequestFailed(FailureReason reason, int64_t received_ns,
                                    int64_t finished_ns) {
  const uint64_t now_ms = EpochMs();
  std::lock_guard lock(mutex_);
  data_.last_inference_ms = now_ms;
  Add(data_.fail, 1, Elapsed(received_ns, finished_ns));
  ++data_.failures[reason];
}

void ModelStatistics::RequestCancelled(int64_t received_ns, int64_t finished_ns,
                                       FailureReason reason) {
  const uint64_t now_ms = EpochMs();
  std::lock_guard lock(mutex_);
  data_.last_inference_ms = now_ms;
  Add(data_.cancel, 1, Elapsed(received_ns, finished_ns));
  Add(data_.fail, 1, Elapsed(received_ns, finished_ns));
  ++data_.failures[reason];
}

void ModelStatistics::ObserveTtft(int64_t ns) {
  std::lock_guard lock(mutex_);
  Observe(data_.ttft_ms, Milliseconds(ns));
}

void ModelStatistics::ObserveItl(int64_t ns) {
  std::lock_guard lock(mutex_);
  Observe(data_.itl_ms, Milliseconds(ns));
}

void ModelStatistics::ObserveQueue(int64_t ns) {
  std::lock_guard lock(mutex_);
  Observe(data_.queue_ms, Milliseconds(ns));
}

void ModelStatistics::ObserveFinished(const FinishedRequest& request) {
  std::lock_guard lock(mutex_);
  Observe(data_.prompt_tokens, static_cast<double>(request.num_prompt_tokens));
  Observe(data_.output_tokens, static_cast<double>(request.num_output_tokens));
  Observe(data_.request_ms, Milliseconds(request.latency_ns));
  ++data_.finished[request.reason];
}

void StepTimes::Reset() {
  for (auto& count : counts_) count.store(0, std::memory_order_relaxed);
  sum_ns_.store(0, std::memory_order_relaxed);
  for (Steps& steps : by_rows_) {
    steps.count.store(0, std::memory_order_relaxed);
    steps.ns.store(0, std::memory_order_relaxed);
  }
}

void StepTimes::SetMaxRows(int max_rows) {
  by_rows_ = std::vector<Steps>(static_cast<size_t>(max_rows) + 1);
}

void StepTimes::Observe(int64_t ns, int num_rows) {
  ns = std::max<int64_t>(ns, 0);
  counts_[BucketOf(kUpperBoundsMs, Milliseconds(ns))].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  if (by_rows_.empty()) return;
  Steps& steps = by_rows_[std::min(static_cast<size_t>(num_rows), by_rows_.size() - 1)];
  steps.count.fetch_add(1, std::memory_order_relaxed);
  steps.ns.fetch_add(static_cast<uint64_t>(ns), std::memory_order_relaxed);
}

std::map<uint64_t, BatchStat> StepTimes::Batches() const {
  std::map<uint64_t, BatchStat> batches;
  for (size_t num_rows = 0; num_rows < by_rows_.size(); ++num_rows) {
    const uint64_t count = by_rows_[num_rows].count.load(std::memory_order_relaxed);
    if (count == 0) continue;
    const uint64_t ns = by_rows_[num_rows].ns.load(std::memory_order_relaxed);
    batches[num_rows].compute_infer = {.count = count, .ns = ns};
  }
  return batches;
}

Histogram StepTimes::Snapshot() const {
  Histogram histogram;
  histogram.upper_bounds.assign(kUpperBoundsMs.begin(), kUpperBoundsMs.end());
  histogram.sum = Milliseconds(sum_ns_.load(std::memory_order_relaxed));
  for (const auto& count : counts_) {
    histogram.counts.push_back(count.load(std::memory_order_relaxed));
    histogram.count += histogram.counts.back();
  }
  return histogram;
}

StatisticsSnapshot ModelStatistics::Snapshot() const {
  std::function<uint64_t()> pending_source;
  StatisticsSnapshot snapshot;
  {
    std::lock_guard lock(mutex_);
    snapshot = data_;
    if (summaries_ != nullptr) snapshot.summaries = summaries_->Snapshot(Clock::System().NowNs());
    pending_source = pending_source_;
  }
  snapshot.step_ms = step_times_.Snapshot();
  if (step_times_.counts_rows()) snapshot.batches = step_times_.Batches();
  if (pending_source) snapshot.pending_requests = pending_source();
  return snapshot;
}

}  // namespace inflight::serving
