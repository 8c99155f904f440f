// SPDX-License-Identifier: Apache-2.0
// In steady state a step on a GPU takes no memory, of the host or of the GPU, and waits for nothing
// in the CUDA runtime.
#include <cuda_runtime_api.h>

#include <string>

#include "counted_loop.h"
#include "inflight/bad_texts.h"
#include "requests.h"
#include "tiny_models.h"

namespace inflight::gpu {
namespace {

class SteadyStateTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) engine_ = RandomEngine(TinyLlama(), TinyLimits(), device());
    std::vector<std::string> texts;
    for (int id = 0; id < 512; ++id) texts.push_back("t" + std::to_string(id));
    tokens_ = MakeTokenTexts(texts);
  }

  std::shared_ptr<const BadTexts> Bad(int seed) const {
    std::vector<std::string> bad;
    for (int i = 0; i < 40; ++i)
      bad.push_back("t" + std::to_string(400 + i) + "t" + std::to_string(seed));
    return Must(MakeBadTexts(bad, tokens_));
  }

  // Of one of eight kinds.
  Request Make(int kind, int max_tokens) const {
    Request request = RandomRequest(20 + kind, max_tokens, 512, static_cast<unsigned>(7 + kind));
    request.streaming = true;
    SamplingParams& sampling = request.sampling;
    if (kind % 2 == 1) sampling = {.temperature = 0.8F, .top_p = 0.9F};
    if (kind == 3) sampling.top_k = 40;
    sampling.seed = static_cast<uint64_t>(kind);
    if (kind >= 2) sampling.repetition_penalty = 1.1F;
    if (kind == 4) sampling.frequency_penalty = 0.3F;
    if (kind == 5) sampling.no_repeat_ngram_size = 3;
    if (kind == 5) request.bad_words = {{5}, {7, 8}};
    if (kind >= 6) request.bad_texts = Bad(kind);
    if (kind == 7) request.embedding_bias = std::make_shared<std::vector<float>>(512, 0.5F);
    request.end_ids = {511};
    request.stop_words = {{3, 4, 5, 6}};
    sampling.min_tokens = max_tokens;
    return request;
  }

  std::shared_ptr<const model::Engine> engine_;
  std::shared_ptr<const TokenTexts> tokens_;
};

TEST_F(SteadyStateTest, TheCountersCount) {
  const CountedCalls before = counted_calls;
  const int64_t allocations_before = testing::num_allocations;
  const auto made = std::make_unique<Request>();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_GT(testing::num_allocations, allocations_before);
  EXPECT_EQ(counted_calls.num_runtime_calls, before.num_runtime_calls + 1);
  EXPECT_STREQ(counted_calls.last_runtime_call, "cudaDeviceSynchronize");
}

TEST_F(SteadyStateTest, DecodingTakesNoMemoryAndWaitsForNothing) {
  for (const bool is_greedy : {true, false}) {
    CountedLoop loop(engine_, device());
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (int i = 0; i < 24; ++i)
      sinks.push_back(loop.Enqueue(Make(is_greedy ? i % 4 / 2 * 2 : i % 8, 450)));
    loop.Steps(60);
    ASSERT_EQ(loop.stats().num_generation_requests, 24);
    loop.TakeAllocations();
    loop.TakeRuntimeCalls();
    loop.Steps(300);  // several new blocks for each sequence
    EXPECT_EQ(loop.TakeAllocations(), 0);
    EXPECT_EQ(loop.TakeRuntimeCalls(), 0) << "the last was " << counted_calls.last_runtime_call;
    EXPECT_EQ(loop.stats().num_generation_requests, 24) << "it was steady throughout";
    for (const auto& sink : sinks) EXPECT_GT(sink->ids.size(), 300U);
  }
}

// Requests come and go: they bring work for the host, but none that the GPU's memory or a wait is
// needed for, once each kind of step and as many bad texts have been seen.
TEST_F(SteadyStateTest, ArrivalsTakeNothingOfTheGpuAndWaitForNothing) {
  CountedLoop loop(engine_, device());
  int num_ended = 0;
  const auto run = [&](int first) {
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (int i = 0; i < 40; ++i) {
      Request request = Make((first + i) % 8, 5 + i % 7);
      if (request.bad_texts != nullptr) request.bad_texts = Bad(first + i);
      sinks.push_back(loop.Enqueue(std::move(request)));
      loop.Step();
    }
    while (loop.Step()) {
    }
    for (const auto& sink : sinks)
      num_ended += sink->last.status.ok() && sink->last.is_final ? 1 : 0;
  };
  for (int i = 0; i < 8; ++i) run(i);
  loop.TakeRuntimeCalls();
  for (int i = 0; i < 5; ++i) run(100 * i);
  EXPECT_EQ(loop.TakeRuntimeCalls(), 0) << "the last was " << counted_calls.last_runtime_call;
  EXPECT_EQ(num_ended, 13 * 40);
}

}  // namespace
}  // namespace inflight::gpu
