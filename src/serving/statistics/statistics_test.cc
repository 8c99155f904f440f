// SPDX-License-Identifier: Apache-2.0
#include "serving/statistics/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace inflight::serving {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(ModelStatistics, ASuccessAddsItsPhases) {
  ModelStatistics statistics;
  statistics.RequestSucceeded({.received_ns = 100,
                               .compute_start_ns = 110,
                               .compute_input_end_ns = 130,
                               .compute_output_start_ns = 160,
                               .finished_ns = 200},
                              /*batch_size=*/4);
  const StatisticsSnapshot s = statistics.Snapshot();
  EXPECT_EQ(s.success.count, 1U);
  EXPECT_EQ(s.success.ns, 100U);
  EXPECT_EQ(s.queue.ns, 10U);
  EXPECT_EQ(s.compute_input.ns, 20U);
  EXPECT_EQ(s.compute_infer.ns, 30U);
  EXPECT_EQ(s.compute_output.ns, 40U);
  EXPECT_EQ(s.inference_count, 4U);
  EXPECT_EQ(s.execution_count, 1U);
  EXPECT_EQ(s.batches.at(4).compute_infer.count, 1U);
  EXPECT_GT(s.last_inference_ms, 0U);
}

TEST(ModelStatistics, SeveralExecutionsAreCountedTogether) {
  ModelStatistics statistics;
  statistics.RequestsSucceeded({.compute_output_start_ns = 50, .finished_ns = 50}, 3);
  const StatisticsSnapshot s = statistics.Snapshot();
  EXPECT_EQ(s.success.count, 3U);
  EXPECT_EQ(s.inference_count, 3U);
  EXPECT_EQ(s.compute_infer.count, 3U);
  EXPECT_EQ(s.compute_infer.ns, 50U);
}

TEST(ModelStatistics, FailuresHaveTheirReasonAndAllReasonsExist) {
  ModelStatistics statistics;
  EXPECT_EQ(statistics.Snapshot().failures.size(), 4U);
  statistics.RequestFailed(FailureReason::kRejected, 10, 30);
  statistics.RequestCancelled(10, 20);
  const StatisticsSnapshot s = statistics.Snapshot();
  EXPECT_EQ(s.failures.at(FailureReason::kRejected), 1U);
  EXPECT_EQ(s.failures.at(FailureReason::kCanceled), 1U);
  EXPECT_EQ(s.failures.at(FailureReason::kBackend), 0U);
  EXPECT_EQ(s.fail.count, 2U);
  EXPECT_EQ(s.fail.ns, 30U);
  EXPECT_EQ(s.cancel.ns, 10U);
  EXPECT_EQ(s.success.count, 0U);
}

TEST(ModelStatistics, ObservationsFallIntoTheBucketThatContainsThem) {
  ModelStatistics statistics;
  statistics.ObserveTtft(kMs);              // exactly the first bound: le="1"
  statistics.ObserveTtft(3 * kMs);          // (2, 5]
  statistics.ObserveTtft(3'600'000 * kMs);  // beyond all
  const Histogram h = statistics.Snapshot().ttft_ms;
  ASSERT_EQ(h.counts.size(), h.upper_bounds.size() + 1);
  EXPECT_EQ(h.upper_bounds[0], 1.0);
  EXPECT_EQ(h.counts[0], 1U);
  EXPECT_EQ(h.upper_bounds[2], 5.0);
  EXPECT_EQ(h.counts[2], 1U);
  EXPECT_EQ(h.counts.back(), 1U);
  EXPECT_EQ(h.count, std::accumulate(h.counts.begin(), h.counts.end(), uint64_t{0}));
  EXPECT_DOUBLE_EQ(h.sum, 1 + 3 + 3'600'000);
}

TEST(ModelStatistics, StepsAndLengthsAreHistogramsToo) {
  ModelStatistics statistics;
  statistics.ObserveStep(kMs / 2, /*num_rows=*/1);  // exactly the first bound
  statistics.ObserveStep(3 * kMs, /*num_rows=*/1);
  statistics.ObserveFinished({.num_prompt_tokens = 10, .num_output_tokens = 1001});
  const StatisticsSnapshot s = statistics.Snapshot();
  EXPECT_EQ(s.step_ms.counts[0], 1U);
  EXPECT_EQ(s.step_ms.counts[3], 1U);  // (2, 5]
  EXPECT_EQ(s.step_ms.count, 2U);
  EXPECT_DOUBLE_EQ(s.step_ms.sum, 3.5);
  EXPECT_EQ(s.prompt_tokens.counts[0], 1U);
  EXPECT_EQ(s.output_tokens.counts.back(), 1U);
  EXPECT_DOUBLE_EQ(s.output_tokens.sum, 1001);
}

TEST(ModelStatistics, FinishedRequestsHaveALatencyAndAReason) {
  ModelStatistics statistics;
  for (const auto& [latency_ns, reason] : std::initializer_list<std::pair<int64_t, FinishReason>>{
           {kMs, FinishReason::kLength},  // exactly the first bound
           {3 * kMs, FinishReason::kStopWords},
           {3'600'000 * kMs, FinishReason::kLength}}) {
    statistics.ObserveFinished({.latency_ns = latency_ns, .reason = reason});
  }
  const StatisticsSnapshot s = statistics.Snapshot();
  EXPECT_EQ(s.request_ms.counts[0], 1U);
  EXPECT_EQ(s.request_ms.counts[2], 1U);  // (2, 5]
  EXPECT_EQ(s.request_ms.counts.back(), 1U);
  EXPECT_DOUBLE_EQ(s.request_ms.sum, 1 + 3 + 3'600'000);
  const std::map<FinishReason, uint64_t> expected = {{FinishReason::kEndId, 0},
                                                     {FinishReason::kStopWords, 1},
                                                     {FinishReason::kLength, 2},
                                                     {FinishReason::kCancelled, 0}};
  EXPECT_EQ(s.finished, expected);
}

TEST(ModelStatistics, BatchesAreStepsWhereThoseAreCounted) {
  ModelStatistics statistics;
  statistics.CountStepsAsBatches(/*max_rows=*/4);
  statistics.RequestSucceeded({.compute_output_start_ns = 50, .finished_ns = 50});
  EXPECT_TRUE(statistics.Snapshot().batches.empty()) << "no step yet";
  statistics.ObserveStep(10, /*num_rows=*/1);
  statistics.ObserveStep(20, /*num_rows=*/4);
  statistics.ObserveStep(30, /*num_rows=*/4);
  const StatisticsSnapshot s = statistics.Snapshot();
  ASSERT_EQ(s.batches.size(), 2U);
  EXPECT_EQ(s.batches.at(1).compute_infer.count, 1U);
  EXPECT_EQ(s.batches.at(4).compute_infer.count, 2U);
  EXPECT_EQ(s.batches.at(4).compute_infer.ns, 50U);
  EXPECT_EQ(s.batches.at(4).compute_input.count, 0U);
  EXPECT_EQ(s.execution_count, 1U) << "of requests";
  statistics.Reset();
  EXPECT_TRUE(statistics.Snapshot().batches.empty());
  EXPECT_EQ(statistics.Snapshot().step_ms.count, 0U);
}

TEST(ModelStatistics, PendingIsCountedOrAskedFor) {
  ModelStatistics statistics;
  statistics.RequestPending();
  statistics.RequestPending();
  statistics.RequestStarted();
  EXPECT_EQ(statistics.Snapshot().pending_requests, 1U);
  statistics.SetPendingSource([] { return uint64_t{7}; });
  EXPECT_EQ(statistics.Snapshot().pending_requests, 7U);
}

}  // namespace
}  // namespace inflight::serving
