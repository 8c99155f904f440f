// SPDX-License-Identifier: Apache-2.0
// An executor over an engine, and requests that run through it at once. What fails here ends the
// program with its reason: no test goes on without.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "collecting_sink.h"
#include "executor/executor.h"
#include "executor/local_backend.h"

namespace inflight {

inline std::unique_ptr<Executor> MakeExecutor(const std::shared_ptr<const model::Engine>& engine,
                                              Device& device, const ExecutorOptions& options,
                                              const std::string& force_ops = {},
                                              const executor::DraftWeights& draft = {},
                                              Clock& clock = Clock::System()) {
  auto backend = executor::CreateLocalBackend(engine, device, options, force_ops, draft);
  EXPECT_TRUE(backend.ok()) << backend.status().ToString();
  CHECK(backend.ok());
  auto executor = executor::CreateExecutor(std::move(backend->backend), options, clock);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  CHECK(executor.ok());
  return std::move(*executor);
}

// Of a request that has its logits returned.
struct LogitsSink : CollectingSink {
  void OnResponse(Response response) override {
    for (const LogitsRows* rows : {&response.context_logits, &response.generation_logits})
      logits.insert(logits.end(), rows->values.begin(), rows->values.end());
    CollectingSink::OnResponse(std::move(response));
  }
  std::vector<float> logits;  // of the prompt, then of what was generated
};

template <class Sink = CollectingSink>
std::vector<std::shared_ptr<Sink>> EnqueueAll(Executor& executor,
                                              const std::vector<Request>& requests) {
  std::vector<std::shared_ptr<Sink>> sinks;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<Sink>());
    const auto id = executor.Enqueue(request, sinks.back());
    EXPECT_TRUE(id.ok()) << id.status().ToString();
    CHECK(id.ok());
  }
  return sinks;
}

// Returns when all have ended.
template <class Sink = CollectingSink>
std::vector<std::shared_ptr<Sink>> RunAll(Executor& executor,
                                          const std::vector<Request>& requests) {
  const auto sinks = EnqueueAll<Sink>(executor, requests);
  for (const auto& sink : sinks) sink->Wait();
  return sinks;
}

}  // namespace inflight
