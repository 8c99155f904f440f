// SPDX-License-Identifier: Apache-2.0
// The demo model answers requests with drafts and without. On a CPU, and in cuda_golden_test on a
// GPU.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "even_clock.h"
#include "executor/local_backend.h"
#include "run_requests.h"
#include "speculation_cases.h"
#include "tensor/device.h"

namespace inflight::golden {

struct SpeculationTest : testing::Test {
  void SetUp() override;

  Sinks Run(const ExecutorOptions& with, const std::vector<Request>& requests);

  // All at once, or one after another.
  void ExpectSame(const ExecutorOptions& with, const std::vector<Request>& requests,
                  const Sinks& expected, bool alone = false);

  // What the host draws on a GPU has log-probs of another sum.
  void ExpectSameLogProbs(const RowsSink& actual, const RowsSink& expected) const;

  struct Proposer {
    std::string name;
    DraftSource source = DraftSource::kNone;
    executor::DraftWeights draft{};
    std::shared_ptr<const model::Engine> engine = nullptr;  // null: the test's
  };
  // All that propose on the device; those that have a model of their own, with heads, last.
  void FindProposers(std::vector<Proposer>* proposers) const;

  bool has_even_clock = true;  // a machine that is busy makes no draft too dear
  std::shared_ptr<Device> device = Device::Cpu();
  std::shared_ptr<const model::Engine> engine;
  executor::DraftWeights draft;  // what proposes beside the model, if anything does
  ExecutorOptions options;
  ExecutorStats stats;
};

}  // namespace inflight::golden
