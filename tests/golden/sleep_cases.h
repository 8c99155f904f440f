// SPDX-License-Identifier: Apache-2.0
// What the tests of sleep share: the demo model, opened so that it can sleep, and requests to it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "loader/loader.h"
#include "run_requests.h"

namespace inflight::golden {

inline OpenOptions SleepingOptions(const std::string& device) {
  OpenOptions options{.device = device, .owner = "demo/1"};
  options.executor.enable_sleep = true;
  options.executor.deterministic = true;  // a pause changes nothing, to the bit
  options.executor.max_kv_tokens = 4096;
  options.executor.block_size = 16;
  return options;
}

inline loader::Loaded OpenDemo(const OpenOptions& options) {
  auto loaded = loader::Load(INFLIGHT_DEMO_MODEL, options);
  EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
  CHECK(loaded.ok());
  return *std::move(loaded);
}

// Greedy and sampled ones, half of them streamed; `num_tokens` each.
inline std::vector<Request> RequestsToSleepOver(int count, int num_tokens, int vocab_size) {
  std::mt19937 random(5);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    for (int t = 0; t < 20 + 3 * (i % 8); ++t)
      request.input_ids.push_back(
          static_cast<TokenId>(random() % static_cast<unsigned>(vocab_size)));
    request.max_tokens = num_tokens;
    request.streaming = i % 2 == 0;
    if (i % 3 == 1) {
      request.sampling.top_k = 20;
      request.sampling.temperature = 0.9F;
      request.sampling.seed = static_cast<uint64_t>(i);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

using SleepSinks = std::vector<std::shared_ptr<CollectingSink>>;

inline void ExpectSameAnswers(const SleepSinks& actual, const SleepSinks& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(actual[i]->last.status.ok()) << actual[i]->last.status.ToString();
    EXPECT_EQ(actual[i]->ids, expected[i]->ids) << "request " << i;
  }
}

}  // namespace inflight::golden
