// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/batch_rules.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>

namespace inflight::serving {
namespace {

constexpr int64_t kUs = 1000;

class BatchRulesTest : public ::testing::Test {
 protected:
  void Rules(const std::string& text) {
    ::inference::ModelConfig config;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
    rules_ = BatchRulesOf(config);
    builder_.emplace(rules_);
  }
  BatchBuilder::Answer Offer(std::vector<int64_t> shape, int64_t queued_ns = 0,
                             uint64_t sequence = 0, const char* input = "IN") {
    Request request;
    request.sequence_id = sequence;
    request.inputs.push_back({.name = input, .shape = std::move(shape)});
    requests_.push_back(std::move(request));
    return builder_->Offer(requests_.back(), queued_ns);
  }
  // Requests that would be executed at `now_ns`; 0: none yet.
  size_t Ready(int64_t now_ns = 0) const { return builder_->NumReady(now_ns).value_or(0); }

  static constexpr auto kTaken = BatchBuilder::Answer::kTaken;
  static constexpr auto kSkipped = BatchBuilder::Answer::kSkipped;
  static constexpr auto kFull = BatchBuilder::Answer::kFull;

  BatchRules rules_;
  std::optional<BatchBuilder> builder_;
  std::deque<Request> requests_;
};

TEST_F(BatchRulesTest, WithoutABatcherEachRequestIsByItself) {
  Rules("max_batch_size: 8");
  EXPECT_EQ(Offer({1, 2}), kTaken);
  EXPECT_EQ(Offer({1, 2}), kFull);
  EXPECT_EQ(Ready(), 1U);
}

TEST_F(BatchRulesTest, WithoutDelayWhatWaitsIsTaken) {
  Rules("max_batch_size: 8 dynamic_batching { }");
  EXPECT_EQ(Offer({2, 5}), kTaken);
  EXPECT_EQ(Offer({3, 5}), kTaken);
  EXPECT_EQ(Ready(), 2U);
  EXPECT_EQ(Offer({4, 5}), kFull);  // a request is not split: 5 + 4 > 8
  EXPECT_EQ(Offer({1, 5}), kFull);  // nor overtaken
  EXPECT_EQ(Ready(), 2U);
}

TEST_F(BatchRulesTest, TheLargestPreferredSizeThatIsReachedGoesAtOnce) {
  Rules(
      "max_batch_size: 8 dynamic_batching { preferred_batch_size: [2, 4] "
      "max_queue_delay_microseconds: 100 }");
  Offer({1, 1});
  EXPECT_EQ(Ready(99 * kUs), 0U);
  EXPECT_EQ(Ready(100 * kUs), 1U);
  Offer({1, 1}, 50 * kUs);
  EXPECT_EQ(Ready(), 2U);
  Offer({1, 1});
  EXPECT_EQ(Ready(), 2U);
  Offer({1, 1});
  Offer({1, 1});
  EXPECT_EQ(Ready(), 4U);
}

TEST_F(BatchRulesTest, AWarmUpWaitsForNothing) {
  Rules("max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100 }");
  Request request;
  request.is_warm_up = true;
  EXPECT_EQ(builder_->Offer(request, 0), kTaken);
  EXPECT_EQ(Ready(), 1U);
}

TEST_F(BatchRulesTest, OtherSizesWaitForTheDelayOfTheOldest) {
  Rules(
      "max_batch_size: 8 dynamic_batching { preferred_batch_size: 7 "
      "max_queue_delay_microseconds: 100 }");
  EXPECT_EQ(builder_->NumReady(0), 0U) << "nothing was offered: there is nothing to wait with";
  Offer({3, 1}, 30 * kUs);
  Offer({2, 1}, 10 * kUs);
  EXPECT_EQ(Ready(109 * kUs), 0U);
  EXPECT_EQ(builder_->wait_until_ns(), 110 * kUs);
  EXPECT_EQ(Ready(110 * kUs), 2U);
}

TEST_F(BatchRulesTest, WhatCannotGrowGoesAtOnce) {
  const char kText[] =
      "max_batch_size: 4 input { name: 'IN' } dynamic_batching { preferred_batch_size: 2 "
      "max_queue_delay_microseconds: 100 }";
  Rules(kText);
  Offer({1, 5});
  EXPECT_EQ(Ready(), 0U);
  EXPECT_EQ(Offer({1, 6}), kFull);  // another shape
  EXPECT_EQ(Ready(), 1U);
  Rules(kText);
  Offer({1, 5});
  EXPECT_EQ(Offer({1, 5}, 0, 0, "OTHER"), kFull);  // another set of optional inputs
  EXPECT_EQ(Ready(), 1U);
}

TEST_F(BatchRulesTest, WhatIsBeyondAllPreferredSizesGoesAtOnce) {
  const char kText[] =
      "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 "
      "max_queue_delay_microseconds: 100 }";
  Rules(kText);
  Offer({5, 1});  // by itself larger than the largest
  EXPECT_EQ(Ready(), 1U);
  Rules(kText);
  Offer({3, 1});
  EXPECT_EQ(Ready(), 0U);
  EXPECT_EQ(Offer({2, 1}), kTaken);  // fits, and carries the batch beyond: the first need not wait
  EXPECT_EQ(Ready(), 1U);
}

TEST_F(BatchRulesTest, AfterTheDelayAllThatFitsGoes) {
  Rules(
      "max_batch_size: 8 dynamic_batching { preferred_batch_size: [2, 6] "
      "max_queue_delay_microseconds: 100 }");
  for (int i = 0; i < 3; ++i) Offer({1, 1});
  EXPECT_EQ(Ready(99 * kUs), 2U);
  EXPECT_EQ(Ready(100 * kUs), 3U);
}

TEST_F(BatchRulesTest, RaggedInputsMayDiffer) {
  Rules("max_batch_size: 4 input { name: 'IN' allow_ragged_batch: true } dynamic_batching { }");
  EXPECT_EQ(Offer({1, 5}), kTaken);
  EXPECT_EQ(Offer({1, 6}), kTaken);
  EXPECT_EQ(Offer({1, 6, 1}), kFull);
}

TEST_F(BatchRulesTest, ModelsWithoutABatchDimensionTakeOneRequest) {
  Rules("dynamic_batching { max_queue_delay_microseconds: 100 }");
  EXPECT_EQ(Offer({7}), kTaken);
  EXPECT_EQ(Ready(), 1U);
  EXPECT_EQ(Offer({7}), kFull);
}

TEST_F(BatchRulesTest, ABatchHasOneRequestOfASequence) {
  Rules("max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 } }");
  EXPECT_EQ(Offer({1, 1}, 0, 7), kTaken);
  EXPECT_EQ(Offer({1, 1}, 0, 7), kSkipped);
  EXPECT_EQ(Offer({1, 1}, 0, 8), kTaken);
  EXPECT_EQ(Offer({1, 1}, 0, 7), kSkipped);
  EXPECT_EQ(Ready(), 2U);
}

TEST_F(BatchRulesTest, SlotsWaitUntilEnoughAreInUse) {
  Rules(
      "max_batch_size: 4 sequence_batching { direct { minimum_slot_utilization: 0.6 "
      "max_queue_delay_microseconds: 100 } }");
  Offer({1, 1}, 0, 1);
  Offer({1, 1}, 0, 2);
  EXPECT_EQ(Ready(99 * kUs), 0U);
  EXPECT_EQ(Ready(100 * kUs), 2U);
  Offer({1, 1}, 0, 3);
  EXPECT_EQ(Ready(), 3U);
  Rules("max_batch_size: 4 sequence_batching { direct { max_queue_delay_microseconds: 100 } }");
  Offer({1, 1}, 0, 1);
  EXPECT_EQ(Ready(), 1U);  // no share is asked for
}

}  // namespace
}  // namespace inflight::serving
