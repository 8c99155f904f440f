// SPDX-License-Identifier: Apache-2.0
// Request statistics as they stand in the log: members as in docs/metrics.md, named as
// TensorRT-LLM's JSON names them.
#include "serving/statistics/request_stats_json.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "serving/statistics/iteration_reporter.h"
#include "serving/testing/fake_executor.h"

namespace inflight::serving {
namespace {

TEST(RequestStatsJson, HasTheMembersOfTheExecutorsJson) {
  const RequestStatsPerIteration record = {
      .iter = 7,
      .requests = {{.id = 12,
                    .sequence_index = 1,
                    .stage = RequestStage::kGenerationInProgress,
                    .context_prefill_position = 19,
                    .num_generated_tokens = 6,
                    .avg_num_decoded_tokens_per_iter = 1.5F,
                    .scheduled = true,
                    .kv_blocks_alloc_total = 4,
                    .kv_blocks_alloc_new = 3,
                    .kv_blocks_reused = 1,
                    .kv_blocks_missed = 3},
                   {.id = 13, .stage = RequestStage::kContextInProgress, .paused = true}}};
  EXPECT_EQ(RequestStatsJson(record),
            R"({"iter":7,"requestStats":[)"
            R"({"allocNewBlocksPerRequest":3,"allocTotalBlocksPerRequest":4,)"
            R"("avgNumDecodedTokensPerIter":1.5,"contextPrefillPosition":19,)"
            R"("disServingStats":null,"id":12,"kvCacheHitRatePerRequest":0.25,)"
            R"("missedBlocksPerRequest":3,"numGeneratedTokens":6,"paused":false,)"
            R"("reusedBlocksPerRequest":1,"scheduled":true,"sequenceIndex":1,)"
            R"("stage":"GENERATION_IN_PROGRESS"},)"
            R"({"allocNewBlocksPerRequest":0,"allocTotalBlocksPerRequest":0,)"
            R"("avgNumDecodedTokensPerIter":0.0,"contextPrefillPosition":0,)"
            R"("disServingStats":null,"id":13,"kvCacheHitRatePerRequest":0.0,)"
            R"("missedBlocksPerRequest":0,"numGeneratedTokens":0,"paused":true,)"
            R"("reusedBlocksPerRequest":0,"scheduled":false,"sequenceIndex":0,)"
            R"("stage":"CONTEXT_IN_PROGRESS"}]})");
}

TEST(RequestStatsJson, NamesEveryStage) {
  using enum RequestStage;
  EXPECT_STREQ(RequestStageName(kQueued), "QUEUED");
  EXPECT_STREQ(RequestStageName(kEncoderInProgress), "ENCODER_IN_PROGRESS");
  EXPECT_STREQ(RequestStageName(kContextInProgress), "CONTEXT_IN_PROGRESS");
  EXPECT_STREQ(RequestStageName(kGenerationInProgress), "GENERATION_IN_PROGRESS");
  EXPECT_STREQ(RequestStageName(kGenerationComplete), "GENERATION_COMPLETE");
}

class RequestRecordsTest : public ::testing::Test {
 protected:
  ~RequestRecordsTest() override { logging::SetLevel(logging::Level::kInfo); }

  // What a check logs of one record; the record is taken whatever is logged.
  std::string Logged(bool has_request_records, logging::Level level) {
    executor->request_stats = {{.iter = 3, .requests = {{.id = 5}}}};
    IterationReporter reporter(
        executor, {},
        {.period_ms = 0, .has_records = false, .has_request_records = has_request_records},
        Clock::System());
    logging::SetLevel(level);
    testing::internal::CaptureStderr();
    newest = reporter.Check().requests;
    return testing::internal::GetCapturedStderr();
  }

  std::shared_ptr<const RequestStatsPerIteration> newest;
  const std::shared_ptr<FakeExecutor> executor = std::make_shared<FakeExecutor>();
};

TEST_F(RequestRecordsTest, AreLoggedAtVerboseLevel) {
  const std::string log = Logged(true, logging::Level::kVerbose);
  EXPECT_NE(log.find(R"("{\"iter\":3,\"requestStats\":[{)"), std::string::npos) << log;
  EXPECT_TRUE(executor->request_stats.empty());
}

TEST_F(RequestRecordsTest, AreNotLoggedAtOtherLevelsAndTheNewestIsKept) {
  EXPECT_EQ(Logged(true, logging::Level::kInfo), "");
  EXPECT_TRUE(executor->request_stats.empty());
  ASSERT_NE(newest, nullptr);
  EXPECT_EQ(newest->iter, 3);
}

TEST_F(RequestRecordsTest, AreNotAskedForWhereNoneAreKept) {
  EXPECT_EQ(Logged(false, logging::Level::kVerbose), "");
  EXPECT_EQ(executor->request_stats.size(), 1U);
}

}  // namespace
}  // namespace inflight::serving
