// SPDX-License-Identifier: Apache-2.0
// A step loop over a fake backend, driven by the test's own thread and a clock that it sets.
#pragma once

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "executor/inbox.h"
#include "executor/step_loop.h"
#include "executor/streams.h"
#include "executor/validation.h"
#include "simulation/fake_backend.h"

namespace inflight::testing {

// Keeps what a request was answered.
struct RecordingSink : ResponseSink {
  void OnResponse(Response response) override {
    if (response.is_final) ++num_final;
    ids.insert(ids.end(), response.output_ids.begin(), response.output_ids.end());
    log_probs.insert(log_probs.end(), response.output_log_probs.begin(),
                     response.output_log_probs.end());
    if (!response.beams.empty()) beams = response.beams;
    responses.push_back(std::move(response));
  }
  bool is_done() const { return num_final > 0; }
  const Response& last() const { return responses.back(); }

  int num_final = 0;
  std::vector<TokenId> ids;
  std::vector<float> log_probs;
  std::vector<Beam> beams;  // the newest
  std::vector<Response> responses;
};

// Another token in front for each seed, so that no two share a block.
inline Request MakeRequest(int prompt_len, int max_tokens, uint64_t seed = 1) {
  Request request;
  request.input_ids.resize(static_cast<size_t>(prompt_len));
  std::iota(request.input_ids.begin(), request.input_ids.end(), static_cast<TokenId>(seed));
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  return request;
}

struct HarnessOptions {
  FakeBackendOptions backend;
  bool enable_prefix_reuse = true;
  bool enable_chunked_prefill = true;
  SchedulerPolicy scheduler_policy = SchedulerPolicy::kGuaranteedNoEvict;
  ChunkingPolicy chunking_policy = ChunkingPolicy::kFirstComeFirstServed;
  int64_t step_time_goal_ns = 0;
  int64_t max_queue_delay_ns = 0;
  int max_queue_size = 64;
  int iter_stats_max_iterations = 64;
  int request_stats_max_iterations = 0;
  executor::LateInputSource* late_inputs = nullptr;
  executor::RestGate* rest = nullptr;
};

struct LoopHarness {
  explicit LoopHarness(HarnessOptions options)
      : backend(WithClock(std::move(options.backend), &clock)),
        limits(executor::LimitsOf(backend.info())),
        inbox(options.max_queue_size),
        streams(/*num_threads=*/0),
        loop({.limits = limits,
              .enable_prefix_reuse = options.enable_prefix_reuse,
              .enable_chunked_prefill = options.enable_chunked_prefill,
              .scheduler_policy = options.scheduler_policy,
              .chunking_policy = options.chunking_policy,
              .step_time_goal_ns = options.step_time_goal_ns,
              .max_queue_delay_ns = options.max_queue_delay_ns,
              .iter_stats_max_iterations = options.iter_stats_max_iterations,
              .request_stats_max_iterations = options.request_stats_max_iterations,
              .late_inputs = options.late_inputs,
              .rest = options.rest},
             backend, inbox, streams, clock) {}

  ~LoopHarness() {  // end what a failed test left behind
    inbox.CancelAllAt(0);
    RunUntilIdle();
  }

  // 0 when the queue is full.
  RequestId Enqueue(Request request, std::shared_ptr<ResponseSink> sink) {
    bool was_shortened = false;
    if (!executor::ValidateRequest(limits, &request, &was_shortened).ok()) return 0;
    auto made =
        executor::MakeActiveRequest(next_id, std::move(request), std::move(sink), clock.NowNs());
    streams.Open();
    if (inbox.Push(std::move(made))) return next_id++;
    streams.Close();
    return 0;
  }

  bool Step() {
    const bool progressed = loop.Step();
    streams.Pump();
    return progressed;
  }

  void RunUntilIdle() {
    while (Step()) {
    }
  }

  ManualClock clock;
  FakeBackend backend;
  ExecutorLimits limits;
  executor::Inbox inbox;
  executor::StreamHub streams;
  executor::StepLoop loop;
  RequestId next_id = 1;

 private:
  static FakeBackendOptions WithClock(FakeBackendOptions options, ManualClock* clock) {
    options.clock = clock;
    return options;
  }
};

}  // namespace inflight::testing
