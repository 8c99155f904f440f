// SPDX-License-Identifier: Apache-2.0
// A step loop over a GPU, turned by the test's own thread, whose calls are counted.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "collecting_sink.h"
#include "counted_calls.h"
#include "executor/inbox.h"
#include "executor/local_backend.h"
#include "executor/step_loop.h"
#include "executor/streams.h"
#include "executor/validation.h"
#include "gpu_test.h"
#include "simulation/heap.h"

namespace inflight::gpu {

class CountedLoop {
 public:
  explicit CountedLoop(const std::shared_ptr<const model::Engine>& engine, Device& device)
      : backend_(Must(executor::CreateLocalBackend(engine, device, Options())).backend),
        limits_(executor::LimitsOf(backend_->info())),
        inbox_(64),
        streams_(/*num_threads=*/0),
        loop_({.limits = limits_, .iter_stats_max_iterations = 16}, *backend_, inbox_, streams_,
              Clock::System()) {}
  ~CountedLoop() {
    inbox_.CancelAllAt(0);
    while (Step()) {
    }
  }

  std::shared_ptr<CollectingSink> Enqueue(Request request) {
    auto sink = std::make_shared<CollectingSink>();
    bool was_shortened = false;
    Must(executor::ValidateRequest(limits_, &request, &was_shortened));
    streams_.Open();
    EXPECT_TRUE(inbox_.Push(executor::MakeActiveRequest(next_id_++, std::move(request), sink,
                                                        Clock::System().NowNs())));
    return sink;
  }

  // Responses are built afterwards, where the thread of the streams would build them.
  bool Step() {
    const CountedCalls& calls = counted_calls;
    const int64_t allocations = testing::num_allocations;
    const int64_t runtime_calls = calls.num_runtime_calls;
    const bool progressed = loop_.Step();
    allocations_ += testing::num_allocations - allocations;
    runtime_calls_ += calls.num_runtime_calls - runtime_calls;
    streams_.Pump();
    return progressed;
  }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) Step();
  }

  // Since the call before.
  int64_t TakeAllocations() { return std::exchange(allocations_, 0); }
  int64_t TakeRuntimeCalls() { return std::exchange(runtime_calls_, 0); }
  ExecutorStats stats() const { return loop_.stats(); }

 private:
  static ExecutorOptions Options() {
    ExecutorOptions options;
    options.block_size = 16;
    options.max_kv_tokens = 16384;
    return options;
  }

  std::unique_ptr<executor::Backend> backend_;
  ExecutorLimits limits_;
  executor::Inbox inbox_;
  executor::StreamHub streams_;
  executor::StepLoop loop_;
  RequestId next_id_ = 1;
  int64_t allocations_ = 0;
  int64_t runtime_calls_ = 0;
};

}  // namespace inflight::gpu
