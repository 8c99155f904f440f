// SPDX-License-Identifier: Apache-2.0
// Beam search through the executor against transformers (make_beam_golden.py): sequences and
// scores, many searches of several widths in one step with greedy and sampled rows, also where
// memory is so short that searches are paused.
#include <gtest/gtest.h>

#include <numeric>

#include "beam_cases.h"
#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "run_requests.h"

namespace inflight::golden {
namespace {

Request Greedy(const Expected& expected) {
  Request request;
  request.input_ids = expected.prompt;
  request.max_tokens = 40;
  return request;
}

class BeamGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Executor> Start(const ExecutorOptions& options) {
    auto engine =
        builder::Open(DataDir() / GetParam(), *device_, {.dtype = DType::kF32, .limits = {}});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return MakeExecutor(*engine, *device_, options);
  }

  // All cases at once, a greedy and a sampled request after each third.
  ExecutorStats RunAll(const ExecutorOptions& options) {
    const auto executor = Start(options);
    const std::vector<BeamCase> cases = ReadBeamCases(GetParam());
    EXPECT_GE(cases.size(), 30u);
    const std::vector<Expected> references = ReadReference(DataDir() / GetParam());
    std::vector<std::shared_ptr<CollectingSink>> beams, greedy, sampled;
    const auto enqueue = [&](const Request& request,
                             std::vector<std::shared_ptr<CollectingSink>>* sinks) {
      sinks->push_back(std::make_shared<CollectingSink>());
      const auto id = executor->Enqueue(request, sinks->back());
      ASSERT_TRUE(id.ok()) << id.status().ToString();
    };
    for (size_t i = 0; i < cases.size(); ++i) {
      enqueue(cases[i].request, &beams);
      if (i % 3 != 0) continue;
      Request request = Greedy(references[0]);
      enqueue(request, &greedy);
      request.sampling = {.temperature = 0.9F, .top_k = 20, .seed = 5};
      enqueue(request, &sampled);
    }
    for (const auto* sinks : {&beams, &greedy, &sampled}) {
      for (const auto& sink : *sinks) sink->Wait();
    }
    for (size_t i = 0; i < cases.size(); ++i) Check(cases[i], *beams[i], i);
    for (const auto& sink : greedy) {
      const auto& ids = references[0].greedy;
      EXPECT_EQ(sink->ids, std::vector<TokenId>(ids.begin(), ids.begin() + 40));
    }
    for (const auto& sink : sampled) EXPECT_EQ(sink->ids, sampled[0]->ids) << "of one seed";
    executor->Shutdown(0);
    return executor->stats();
  }

  static void Check(const BeamCase& c, const CollectingSink& sink, size_t index) {
    const std::string where = "case " + std::to_string(index);
    const Response& response = sink.last;
    ASSERT_TRUE(response.status.ok()) << response.status.ToString();
    ASSERT_EQ(response.beams.size(), c.sequences.size()) << where;
    EXPECT_TRUE(response.output_ids.empty());
    if (!c.request.streaming) {
      EXPECT_EQ(sink.num_responses, 1);
    }
    for (size_t b = 0; b < c.sequences.size(); ++b) {
      const Beam& beam = response.beams[b];
      ASSERT_EQ(beam.output_ids, c.sequences[b]) << where << ", beam " << b;
      EXPECT_NEAR(beam.score, c.scores[b], kTolerance) << where << ", beam " << b;
      const bool has_end = beam.finish_reason == FinishReason::kEndId;
      EXPECT_EQ(has_end, std::ssize(beam.output_ids) < c.request.max_tokens) << where;
      const auto len = static_cast<float>(beam.output_ids.size() + (has_end ? 1 : 0));
      EXPECT_NEAR(beam.cum_log_prob, c.scores[b] * len, kTolerance * len) << where;
      ASSERT_EQ(beam.output_log_probs.size(), beam.output_ids.size());
      const float sum =
          std::accumulate(beam.output_log_probs.begin(), beam.output_log_probs.end(), 0.0F);
      if (has_end) {
        EXPECT_LT(beam.cum_log_prob, sum) << "the end's own is in the sum alone";
      } else {
        EXPECT_NEAR(beam.cum_log_prob, sum, kTolerance * len);
      }
    }
  }

  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

TEST_P(BeamGoldenTest, SequencesAndScoresEqualTransformers) {
  for (const bool reuse : {true, false}) {
    const ExecutorOptions options{.max_batch_size = 48,
                                  .max_kv_tokens = 16384,
                                  .block_size = reuse ? kBlockSize : 32,
                                  .enable_prefix_reuse = reuse};
    const ExecutorStats stats = RunAll(options);
    EXPECT_EQ(stats.num_pauses, 0);
    EXPECT_EQ(stats.kv_blocks_used, 0);
  }
}

TEST_P(BeamGoldenTest, PausedSearchesBeginAgainAndFindTheSame) {
  const ExecutorOptions options{.max_batch_size = 48,
                                .max_kv_tokens = 1024,
                                .block_size = kBlockSize,
                                .scheduler_policy = SchedulerPolicy::kMaxUtilization};
  const ExecutorStats stats = RunAll(options);
  EXPECT_GT(stats.num_pauses, 0);
  EXPECT_EQ(stats.kv_blocks_used, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, BeamGoldenTest,
                         testing::Values("llama_gqa2", "llama_gqa4", "llama_head64", "gpt2_tied"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace inflight::golden
