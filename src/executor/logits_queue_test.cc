// SPDX-License-Identifier: Apache-2.0
#include "executor/logits_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Rows of one logit each.
LogitsRows Rows(std::vector<float> values) {
  return {static_cast<int>(values.size()), 1, std::move(values)};
}

std::shared_ptr<RowLogits> Of(std::vector<float> context, std::vector<float> generation) {
  return std::make_shared<RowLogits>(
      RowLogits{.context = Rows(std::move(context)), .generation = Rows(std::move(generation))});
}

std::unique_ptr<LogitsQueue> ForTwoSequences() {
  Request request;
  request.input_ids = {1, 2, 3};
  request.output = {.return_context_logits = true, .return_generation_logits = true};
  request.sampling.num_return_sequences = 2;
  return LogitsQueue::MakeFor(request);
}

Response Take(LogitsQueue& queue, int sequence_index, int num_tokens) {
  Response response;
  queue.Take(sequence_index, num_tokens, &response);
  return response;
}

TEST(LogitsQueueTest, ARequestWithoutLogitsHasNone) {
  EXPECT_EQ(LogitsQueue::MakeFor({}), nullptr);
}

TEST(LogitsQueueTest, ChunksOfAPromptAreStitchedAndTakenOnce) {
  const auto queue = ForTwoSequences();
  queue->Push(0, Of({1, 2}, {}), 0);
  EXPECT_THAT(Take(*queue, 0, 0).context_logits.values, IsEmpty()) << "not whole yet";
  queue->Push(0, Of({3}, {7}), 1);
  const Response first = Take(*queue, 0, 1);
  EXPECT_EQ(first.context_logits.num_rows, 3);
  EXPECT_THAT(first.context_logits.values, ElementsAre(1, 2, 3));
  EXPECT_THAT(first.generation_logits.values, ElementsAre(7));
  EXPECT_THAT(Take(*queue, 0, 0).context_logits.values, IsEmpty());
}

TEST(LogitsQueueTest, AResponseTakesTheRowsOfItsTokensAndLeavesLaterSteps) {
  const auto queue = ForTwoSequences();
  for (const float logit : {1.0F, 2.0F, 3.0F}) queue->Push(0, Of({}, {logit}), 1);
  queue->Push(1, Of({}, {9}), 1);
  EXPECT_THAT(Take(*queue, 0, 1).generation_logits.values, ElementsAre(1));
  EXPECT_THAT(Take(*queue, 1, 1).generation_logits.values, ElementsAre(9));
  const Response rest = Take(*queue, 0, 2);
  EXPECT_EQ(rest.generation_logits.num_rows, 2);
  EXPECT_THAT(rest.generation_logits.values, ElementsAre(2, 3));
}

TEST(LogitsQueueTest, TheRowOfAnEndIdIsDropped) {
  const auto queue = ForTwoSequences();
  queue->Push(0, Of({}, {1}), 1);
  queue->Push(0, Of({}, {2}), 0);
  EXPECT_THAT(Take(*queue, 0, 1).generation_logits.values, ElementsAre(1));
}

TEST(LogitsQueueTest, TopLogProbsComeInThePortionsOfTheirTokens) {
  Request request;
  request.input_ids = {1};
  request.output.num_top_log_probs = 2;
  const auto queue = LogitsQueue::MakeFor(request);
  const auto push = [&queue](TokenId id, int num_tokens) {
    auto row = std::make_shared<RowLogits>();
    row->top_log_probs = {{id, -1}, {id + 1, -2}};
    queue->Push(0, row, num_tokens);
  };
  const auto ids = [&queue](int num_tokens) {
    std::vector<TokenId> ids;
    for (const TopLogProb& entry : Take(*queue, 0, num_tokens).top_log_probs) {
      ids.push_back(entry.id);
    }
    return ids;
  };
  for (const TokenId id : {10, 20, 30}) push(id, 1);
  push(40, 0);  // an end id
  EXPECT_THAT(ids(1), ElementsAre(10, 11));
  EXPECT_THAT(ids(2), ElementsAre(20, 21, 30, 31));
  EXPECT_THAT(ids(0), IsEmpty());
}

}  // namespace
}  // namespace inflight::executor
