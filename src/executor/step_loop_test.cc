// SPDX-License-Identifier: Apache-2.0
// The step loop turn by turn.
#include "executor/step_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "executor/step_loop_fixture.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::ExpectedOutput;
using ::inflight::testing::HarnessOptions;
using ::inflight::testing::LoopHarness;
using ::inflight::testing::MakeRequest;
using ::inflight::testing::RecordingSink;

INSTANTIATE_TEST_SUITE_P(Depths, StepLoopTest, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return "Depth" + std::to_string(info.param); });

TEST_P(StepLoopTest, LengthKnownInAdvanceWastesNoRow) {
  LoopHarness harness(Small());
  const Request request = MakeRequest(5, 6);
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(request, sink);
  harness.RunUntilIdle();
  ExpectWhole(harness, request, *sink);
  EXPECT_EQ(sink->last().finish_reason, FinishReason::kLength);
  EXPECT_EQ(harness.backend.num_launched(), 6);
  EXPECT_EQ(harness.backend.num_wasted_rows(), 0);
}

TEST_P(StepLoopTest, RowsInFlightOfAnEndedSequenceAreDiscarded) {
  LoopHarness harness(Small());
  Request request = MakeRequest(5, 20);
  const auto free_running = ExpectedOutput(request, 97);
  request.end_ids = {free_running.ids[3]};
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(request, sink);
  harness.RunUntilIdle();
  ExpectWhole(harness, request, *sink);
  EXPECT_EQ(sink->last().finish_reason, FinishReason::kEndId);
  EXPECT_LE(sink->ids.size(), 3u) << "the end id is not returned";
  EXPECT_EQ(harness.backend.num_wasted_rows(), depth() - 1);
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
}

TEST_P(StepLoopTest, StopWordsEndAndAreReturned) {
  LoopHarness harness(Small());
  Request request = MakeRequest(5, 20);
  const auto free_running = ExpectedOutput(request, 97);
  request.stop_words = {{free_running.ids[2], free_running.ids[3]}};
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(request, sink);
  harness.RunUntilIdle();
  ExpectWhole(harness, request, *sink);
  EXPECT_EQ(sink->last().finish_reason, FinishReason::kStopWords);
  EXPECT_EQ(sink->ids.back(), free_running.ids[3]);
}

TEST_P(StepLoopTest, StreamingEqualsNonStreaming) {
  LoopHarness harness(Small());
  Request request = MakeRequest(5, 9);
  request.output.return_log_probs = true;
  auto whole = std::make_shared<RecordingSink>();
  harness.Enqueue(request, whole);
  request.streaming = true;
  auto streamed = std::make_shared<RecordingSink>();
  harness.Enqueue(request, streamed);
  harness.RunUntilIdle();
  ExpectWhole(harness, request, *whole);
  ExpectWhole(harness, request, *streamed);
  EXPECT_EQ(whole->responses.size(), 1u);
  EXPECT_EQ(streamed->responses.size(), 9u);
  for (const Response& response : streamed->responses) EXPECT_EQ(response.output_ids.size(), 1u);
  const auto expected = ExpectedOutput(request, 97);
  EXPECT_EQ(whole->log_probs, expected.log_probs);
  EXPECT_EQ(streamed->log_probs, expected.log_probs);
  EXPECT_EQ(whole->last().cum_log_prob, expected.cum_log_prob);
  EXPECT_EQ(streamed->last().cum_log_prob, expected.cum_log_prob);
  EXPECT_EQ(streamed->responses[0].cum_log_prob, expected.log_probs[0]);
}

TEST_P(StepLoopTest, StreamThatEndsWithItsEndIdGetsAnEmptyFinalResponse) {
  LoopHarness harness(Small());
  Request request = MakeRequest(5, 20);
  request.streaming = true;
  request.end_ids = {ExpectedOutput(request, 97).ids[0]};
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(request, sink);
  harness.RunUntilIdle();
  ASSERT_EQ(sink->responses.size(), 1u);
  EXPECT_TRUE(sink->last().is_final);
  EXPECT_TRUE(sink->last().output_ids.empty());
  EXPECT_EQ(sink->last().finish_reason, FinishReason::kEndId);
}

// Six of the one wait when the other's two come: these are served after those that run, by turns.
TEST_P(StepLoopTest, ManyRequestsOfOneClientDoNotHoldUpAnother) {
  HarnessOptions options = Small();
  const int num_slots = options.backend.info.max_batch_size;
  LoopHarness harness(std::move(options));
  std::vector<std::pair<char, std::shared_ptr<RecordingSink>>> sinks;
  const auto enqueue = [&](char name, uint64_t client) {
    Request request = MakeRequest(5, 6, static_cast<int>(sinks.size()));
    request.client_id = client;
    sinks.emplace_back(name, std::make_shared<RecordingSink>());
    harness.Enqueue(request, sinks.back().second);
  };
  for (int i = 0; i < num_slots; ++i) enqueue('r', 1);
  harness.Step();
  for (int i = 0; i < 2 * num_slots; ++i) enqueue('a', 1);
  enqueue('b', 2);
  enqueue('b', 2);
  harness.RunUntilIdle();
  std::vector<std::pair<int64_t, char>> started;
  for (const auto& [name, sink] : sinks)
    started.emplace_back(sink->last().times.first_scheduled_ns, name);
  std::stable_sort(started.begin(), started.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  int num_before = 0;  // of the waiting crowd, that began before the last of the other client
  for (size_t i = 0, seen = 0; i < started.size() && seen < 2; ++i) {
    num_before += started[i].second == 'a' ? 1 : 0;
    seen += started[i].second == 'b' ? 1 : 0;
  }
  EXPECT_LE(num_before, num_slots);
  EXPECT_EQ(harness.backend.violation(), "");
}

// The crowd's last passes its others by its priority: the newcomer does not come after all of them.
TEST_P(StepLoopTest, ARequestThatPassesItsOwnPutsNoNewcomerBehindThem) {
  HarnessOptions options = Small();
  const int num_slots = options.backend.info.max_batch_size;
  LoopHarness harness(std::move(options));
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  const auto enqueue = [&](uint64_t client, float priority = 0.5F) {
    Request request = MakeRequest(5, 6, static_cast<int>(sinks.size()));
    request.client_id = client;
    request.priority = priority;
    sinks.push_back(std::make_shared<RecordingSink>());
    harness.Enqueue(request, sinks.back());
    return sinks.back();
  };
  for (int i = 0; i < 8 * num_slots; ++i) enqueue(1);
  harness.Step();
  const auto early = enqueue(1, 0.75F);
  while (early->responses.empty()) harness.Step();
  const auto newcomer = enqueue(2);
  harness.RunUntilIdle();
  const int64_t started_ns = newcomer->last().times.first_scheduled_ns;
  const auto began_later = [&](const auto& sink) {
    return sink->last().times.first_scheduled_ns > started_ns;
  };
  EXPECT_GT(std::count_if(sinks.begin(), sinks.end(), began_later), 4 * num_slots);
}

TEST_P(StepLoopTest, CancelledSequenceLeavesTheNextPlan) {
  HarnessOptions options = Small();
  std::vector<int> rows_of_step;
  options.backend.on_launch = [&](const StepPlan& plan) { rows_of_step.push_back(plan.num_rows); };
  LoopHarness harness(std::move(options));
  auto a = std::make_shared<RecordingSink>();
  auto b = std::make_shared<RecordingSink>();
  const RequestId cancelled = harness.Enqueue(MakeRequest(5, 20, 1), a);
  const Request other = MakeRequest(5, 20, 2);
  harness.Enqueue(other, b);
  for (int i = 0; i < 5; ++i) harness.Step();
  ASSERT_EQ(rows_of_step.back(), 2);
  const size_t num_plans = rows_of_step.size();
  harness.inbox.Cancel(cancelled);
  harness.Step();
  EXPECT_EQ(a->num_final, 1) << "answered at once, whatever is in flight";
  EXPECT_EQ(a->last().finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(a->last().status, Status::Ok());
  ASSERT_GT(rows_of_step.size(), num_plans);
  EXPECT_EQ(rows_of_step[num_plans], 1);
  harness.RunUntilIdle();
  ExpectWhole(harness, other, *b);
  EXPECT_EQ(a->num_final, 1);
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
}

TEST_P(StepLoopTest, CancelKeepsWhatANonStreamingRequestHad) {
  LoopHarness harness(Small());
  const Request request = MakeRequest(5, 20);
  auto sink = std::make_shared<RecordingSink>();
  const RequestId id = harness.Enqueue(request, sink);
  for (int i = 0; i < 6; ++i) harness.Step();
  harness.inbox.Cancel(id);
  harness.inbox.Cancel(id);
  harness.inbox.Cancel(12345);  // unknown
  harness.RunUntilIdle();
  harness.inbox.Cancel(id);  // finished
  harness.RunUntilIdle();
  EXPECT_EQ(sink->num_final, 1);
  const auto expected = ExpectedOutput(request, 97);
  EXPECT_GE(sink->ids.size(), 1u);
  EXPECT_LT(sink->ids.size(), 20u);
  EXPECT_TRUE(std::equal(sink->ids.begin(), sink->ids.end(), expected.ids.begin()));
}

TEST_P(StepLoopTest, QueuedRequestIsCancelledAtOnce) {
  LoopHarness harness(Small());
  std::vector<std::shared_ptr<RecordingSink>> running;
  for (uint64_t i = 1; i <= 4; ++i) {
    running.push_back(std::make_shared<RecordingSink>());
    harness.Enqueue(MakeRequest(3, 9, i), running.back());
  }
  harness.Step();
  auto waiting = std::make_shared<RecordingSink>();
  const RequestId id = harness.Enqueue(MakeRequest(3, 9, 5), waiting);
  harness.Step();
  EXPECT_EQ(harness.loop.stats().num_queued_requests, 1);
  harness.inbox.Cancel(id);
  harness.Step();
  EXPECT_TRUE(waiting->is_done());
  EXPECT_EQ(waiting->last().finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(waiting->last().times.first_scheduled_ns, 0);
  EXPECT_EQ(harness.loop.stats().num_queued_requests, 0);
  harness.RunUntilIdle();
  EXPECT_EQ(harness.loop.stats().requests_cancelled, 1);
  EXPECT_EQ(harness.loop.stats().requests_completed, 4);
}

TEST_P(StepLoopTest, DeadlineEndsRunningAndWaitingRequestsWithoutTokens) {
  HarnessOptions options = Small();
  options.backend.info.max_batch_size = 1;
  LoopHarness harness(std::move(options));  // a step takes 1 ms
  Request request = MakeRequest(5, 20);
  request.timeout_ms = 6;
  auto running = std::make_shared<RecordingSink>();
  harness.Enqueue(request, running);
  auto waiting = std::make_shared<RecordingSink>();
  harness.Enqueue(request, waiting);
  request.streaming = true;
  request.timeout_ms.reset();
  auto after = std::make_shared<RecordingSink>();
  harness.Enqueue(request, after);
  harness.RunUntilIdle();
  for (const auto& sink : {running, waiting}) {
    EXPECT_EQ(sink->num_final, 1);
    EXPECT_EQ(sink->last().finish_reason, FinishReason::kTimedOut);
    EXPECT_EQ(sink->last().status, Status::Ok());
    EXPECT_TRUE(sink->ids.empty());
  }
  EXPECT_GT(running->last().times.first_token_ns, 0);
  ExpectWhole(harness, request, *after);
  EXPECT_EQ(harness.loop.stats().requests_timed_out, 2);
}

TEST_P(StepLoopTest, QueueTimeoutEndsOnlyWhatStillWaits) {
  HarnessOptions options = Small();
  options.backend.info.max_batch_size = 1;
  LoopHarness harness(std::move(options));  // a step takes 1 ms
  Request request = MakeRequest(5, 20);
  request.queue_timeout_us = 6'000;
  auto running = std::make_shared<RecordingSink>();
  harness.Enqueue(request, running);
  auto waiting = std::make_shared<RecordingSink>();
  harness.Enqueue(request, waiting);
  request.timeout_ms = 8;  // goes on to hold once the queue is left
  request.queue_timeout_us = 100'000;
  auto late = std::make_shared<RecordingSink>();
  harness.Enqueue(request, late);
  harness.RunUntilIdle();
  ExpectWhole(harness, MakeRequest(5, 20), *running);
  for (const auto& sink : {waiting, late}) {
    EXPECT_EQ(sink->num_final, 1);
    EXPECT_EQ(sink->last().finish_reason, FinishReason::kTimedOut);
    EXPECT_EQ(sink->last().times.first_scheduled_ns, 0);
  }
  EXPECT_EQ(harness.loop.stats().requests_timed_out, 2);
  EXPECT_EQ(harness.loop.next_turn_ns(), kNever);  // no deadline is left behind
}

TEST_P(StepLoopTest, WhatAStreamSentBeforeItsDeadlineStaysSent) {
  LoopHarness harness(Small());
  Request request = MakeRequest(5, 20);
  request.streaming = true;
  request.timeout_ms = 8;
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(request, sink);
  harness.RunUntilIdle();
  EXPECT_EQ(sink->last().finish_reason, FinishReason::kTimedOut);
  EXPECT_TRUE(sink->last().output_ids.empty());
  EXPECT_FALSE(sink->ids.empty());
}

// One request, several sequences: each has its own slot and its own end.
class SequencesSink : public ResponseSink {
 public:
  void OnResponse(Response response) override {
    num_final += response.is_final ? 1 : 0;
    std::vector<TokenId>& ids = ids_of[response.sequence_index];
    ids.insert(ids.end(), response.output_ids.begin(), response.output_ids.end());
    last = response.finish_reason;
  }
  int num_final = 0;
  FinishReason last = FinishReason::kNotFinished;
  std::map<int, std::vector<TokenId>> ids_of;
};

TEST_P(StepLoopTest, EachSequenceOfARequestYieldsItsOwnAndTheRequestEndsOnce) {
  LoopHarness harness(Small());
  std::vector<std::pair<Request, std::shared_ptr<SequencesSink>>> clients;
  for (uint64_t i = 0; i < 6; ++i) {
    Request request = MakeRequest(5, 12, 15 * i);
    request.streaming = true;
    request.end_ids = {ExpectedOutput(request, 97).ids[i]};  // the first sequence ends early
    auto sink = std::make_shared<SequencesSink>();
    clients.emplace_back(request, sink);
    request.sampling.num_return_sequences = 3;
    ASSERT_NE(harness.Enqueue(request, sink), 0u);
  }
  for (int i = 0; i < 7; ++i) harness.Step();
  harness.inbox.Cancel(2);
  harness.RunUntilIdle();
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto& [request, sink] = clients[i];
    EXPECT_EQ(sink->num_final, 1);
    EXPECT_EQ(sink->last == FinishReason::kCancelled, i == 1);
    if (i == 1) continue;
    ASSERT_EQ(sink->ids_of.size(), 3u);
    for (const auto& [index, ids] : sink->ids_of) {
      Request alone = request;
      alone.sampling.seed = *request.sampling.seed + static_cast<uint64_t>(index);
      EXPECT_EQ(ids, ExpectedOutput(alone, 97).ids) << "request " << i << " sequence " << index;
    }
  }
  EXPECT_EQ(harness.loop.stats().requests_completed, 5);
  EXPECT_EQ(harness.loop.stats().requests_cancelled, 1);
  EXPECT_EQ(harness.loop.stats().num_active_requests, 0);
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
  EXPECT_EQ(harness.backend.violation(), "");
}

TEST_P(StepLoopTest, ARowMayYieldSeveralTokens) {
  HarnessOptions options = Small();
  options.backend.info.max_tokens_per_row = 3;
  options.backend.info.makes_drafts = true;
  LoopHarness harness(std::move(options));
  std::vector<std::pair<Request, std::shared_ptr<RecordingSink>>> clients;
  int64_t num_tokens = 0;
  for (uint64_t i = 1; i <= 9; ++i) {
    Request request = MakeRequest(3, 25, i);
    request.streaming = true;
    if (i % 3 == 0) request.end_ids = {ExpectedOutput(request, 97).ids[i]};
    num_tokens += static_cast<int64_t>(ExpectedOutput(request, 97).ids.size());
    clients.emplace_back(request, std::make_shared<RecordingSink>());
    harness.Enqueue(request, clients.back().second);
  }
  harness.RunUntilIdle();
  int64_t num_responses = 0;
  for (const auto& [request, sink] : clients) {
    ExpectWhole(harness, request, *sink);
    num_responses += static_cast<int64_t>(sink->responses.size());
  }
  EXPECT_LT(num_responses, num_tokens * 3 / 4) << "some rows yielded more than one";
}

TEST_P(StepLoopTest, SlotsAreReusedOnlyAfterTheLastStepThatHoldsThem) {
  // One row, and as many slots as the depth asks for: the fake device refuses a slot set up early.
  HarnessOptions options = Small();
  options.backend.info.max_batch_size = 1;
  options.backend.info.max_slots = depth();
  LoopHarness harness(std::move(options));
  std::vector<std::pair<Request, std::shared_ptr<RecordingSink>>> clients;
  for (uint64_t i = 1; i <= 12; ++i) {
    Request request = MakeRequest(3, 12, i);
    request.end_ids = {ExpectedOutput(request, 97).ids[i % 5]};
    clients.emplace_back(request, std::make_shared<RecordingSink>());
    harness.Enqueue(request, clients.back().second);
  }
  harness.RunUntilIdle();
  for (const auto& [request, sink] : clients) ExpectWhole(harness, request, *sink);
}

TEST_P(StepLoopTest, BlocksOfACancelledSequenceServeOthersOnlyAfterRetire) {
  HarnessOptions options = Small();
  options.backend.info.kv_groups[0].num_blocks = 6;
  LoopHarness harness(std::move(options));
  auto a = std::make_shared<RecordingSink>();
  auto b = std::make_shared<RecordingSink>();
  const RequestId id = harness.Enqueue(MakeRequest(8, 16, 1), a);  // 6 blocks
  const Request next = MakeRequest(8, 16, 50);
  harness.Enqueue(next, b);
  for (int i = 0; i < 4; ++i) harness.Step();
  harness.inbox.Cancel(id);
  harness.RunUntilIdle();
  ExpectWhole(harness, next, *b);
}

TEST_P(StepLoopTest, SecondTurnOfAConversationReusesGeneratedBlocks) {
  LoopHarness harness(Small());
  Request request = MakeRequest(6, 7);
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(request, sink);
  harness.RunUntilIdle();
  EXPECT_EQ(sink->last().num_cached_tokens, 0);
  Request second = request;  // prompt, answer, and a new question
  second.input_ids.insert(second.input_ids.end(), sink->ids.begin(), sink->ids.end());
  second.input_ids.push_back(5);
  auto again = std::make_shared<RecordingSink>();
  harness.Enqueue(second, again);
  harness.RunUntilIdle();
  ExpectWhole(harness, second, *again);
  EXPECT_EQ(again->last().num_cached_tokens, 12) << "13 tokens, of which the last was never fed";
  const ExecutorStats stats = harness.loop.stats();
  EXPECT_EQ(stats.prompt_tokens, 6 + 14);
  EXPECT_EQ(stats.prompt_tokens_cached, 12);
  EXPECT_EQ(stats.tokens_generated, 14);
}

// ---- Queue delay ----

TEST_P(StepLoopTest, RequestsThatArriveWithinTheDelayStartTogether) {
  HarnessOptions options = Small();
  options.max_queue_delay_ns = 5'000'000;
  std::vector<int> rows_of_step;
  options.backend.on_launch = [&](const StepPlan& plan) { rows_of_step.push_back(plan.num_rows); };
  LoopHarness harness(std::move(options));
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(3, 9, 1), sink);
  harness.Step();
  EXPECT_FALSE(harness.Step()) << "nothing to do until the delay is over";
  EXPECT_EQ(harness.loop.next_turn_ns(), harness.clock.NowNs() + 5'000'000);
  harness.clock.AdvanceNs(2'000'000);
  harness.Enqueue(MakeRequest(3, 9, 30), sink);
  harness.Step();
  EXPECT_THAT(rows_of_step, ::testing::IsEmpty());
  harness.clock.AdvanceNs(3'000'000);
  harness.Step();
  EXPECT_THAT(rows_of_step, ::testing::ElementsAre(2));
  for (uint64_t i = 2; i <= 3; ++i) harness.Enqueue(MakeRequest(3, 9, 30 * i), sink);
  harness.Step();
  EXPECT_EQ(rows_of_step.back(), 4) << "as many wait as can join: they need not wait longer";
  harness.RunUntilIdle();
  EXPECT_EQ(sink->num_final, 4);
  EXPECT_EQ(harness.loop.next_turn_ns(), kNever);
}

// Allows even tokens only.
class EvenTokens : public LateInputSource {
 public:
  bool Wants(const Sequence& sequence) const override { return sequence.seed == 2; }
  void Fill(Sequence& sequence, std::span<const TokenId>, LateInputs* inputs) override {
    known_lengths.push_back(sequence.known.size());
    inputs->masks.push_back({.slot = sequence.slot, .allowed_bits = bits_});
  }
  std::vector<size_t> known_lengths;

 private:
  std::vector<uint32_t> bits_ = std::vector<uint32_t>(4, 0x55555555u);
};

TEST_P(StepLoopTest, LateInputsAreMadeFromAllEarlierTokens) {
  EvenTokens even;
  HarnessOptions options = Small();
  options.late_inputs = &even;
  LoopHarness harness(std::move(options));
  const Request plain = MakeRequest(3, 8, 1);
  auto unmasked = std::make_shared<RecordingSink>();
  auto masked = std::make_shared<RecordingSink>();
  harness.Enqueue(plain, unmasked);
  harness.Enqueue(MakeRequest(3, 8, 2), masked);
  harness.RunUntilIdle();
  ExpectWhole(harness, plain, *unmasked);
  EXPECT_EQ(harness.backend.violation(), "");
  EXPECT_EQ(masked->ids.size(), 8u);
  for (const TokenId id : masked->ids) EXPECT_EQ(id % 2, 0);
  EXPECT_THAT(even.known_lengths, ::testing::ElementsAre(3, 4, 5, 6, 7, 8, 9, 10));
}

TEST_P(StepLoopTest, StatsCountWhatHappened) {
  HarnessOptions options = Small();
  options.backend.idle_ns = 7'000;
  LoopHarness harness(std::move(options));
  auto a = std::make_shared<RecordingSink>();
  auto b = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(9, 4, 1), a);
  harness.Enqueue(MakeRequest(3, 4, 2), b);
  harness.Step();
  EXPECT_EQ(harness.loop.stats().num_active_requests, 2);
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 3 + 1);
  harness.RunUntilIdle();
  const ExecutorStats stats = harness.loop.stats();
  EXPECT_EQ(stats.num_steps, 4);
  EXPECT_EQ(stats.max_active_requests, 4);
  EXPECT_EQ(stats.num_active_requests, 0);
  EXPECT_EQ(stats.num_scheduled_requests, 2);
  EXPECT_EQ(stats.num_generation_requests, 2);
  EXPECT_EQ(stats.num_context_requests, 0);
  EXPECT_EQ(stats.num_context_tokens, 0);
  EXPECT_EQ(stats.micro_batch_id, (4 - 1) % depth()) << "steps take the places in turn";
  EXPECT_EQ(stats.num_paused_requests, 0);
  EXPECT_EQ(stats.num_pauses, 0);
  EXPECT_EQ(stats.kv_blocks_max, 16);
  EXPECT_EQ(stats.kv_blocks_free, 16);
  EXPECT_EQ(stats.prompt_tokens, 12);
  EXPECT_EQ(stats.tokens_generated, 8);
  EXPECT_EQ(stats.rows_decoded, 8);
  EXPECT_EQ(stats.tokens_decoded, 8);
  EXPECT_EQ(stats.requests_started, 2);
  EXPECT_EQ(stats.queue_ns, a->last().times.first_scheduled_ns - a->last().times.enqueued_ns +
                                b->last().times.first_scheduled_ns - b->last().times.enqueued_ns);
  EXPECT_EQ(stats.requests_completed, 2);
  EXPECT_GT(stats.last_step_ns, 0);
  EXPECT_EQ(stats.last_idle_ns, 7'000);
  const RequestTimes& times = a->last().times;
  EXPECT_GT(times.first_scheduled_ns, 0);
  EXPECT_GT(times.first_token_ns, times.first_scheduled_ns);
  EXPECT_EQ(times.last_token_ns - times.first_token_ns, 3'000'000);
}

TEST_P(StepLoopTest, ARequestThatComesDuringATurnIsNotScheduledBeforeItCame) {
  LoopHarness harness(Small());
  const auto sink = std::make_shared<RecordingSink>();
  const int64_t during_the_turn_ns = harness.clock.NowNs() + 700;
  harness.streams.Open();
  ASSERT_TRUE(harness.inbox.Push(
      executor::MakeActiveRequest(1, MakeRequest(3, 2, 1), sink, during_the_turn_ns)));
  harness.RunUntilIdle();
  const RequestTimes& times = sink->last().times;
  EXPECT_EQ(times.enqueued_ns, during_the_turn_ns);
  EXPECT_EQ(times.first_scheduled_ns, during_the_turn_ns);
}

TEST_P(StepLoopTest, StepGoalCutsAPromptIntoChunksOfItsMeasuredCost) {
  HarnessOptions options = Small();
  options.backend.info.max_num_tokens = 64;
  options.backend.info.max_seq_len = 64;
  options.backend.info.max_input_len = 60;
  options.backend.step_ns = 0;
  options.backend.prefill_token_ns = 1'000'000;
  options.step_time_goal_ns = 16'000'000;
  std::vector<int> tokens_of_step;
  options.backend.on_launch = [&](const StepPlan& p) { tokens_of_step.push_back(p.num_tokens); };
  LoopHarness harness(std::move(options));
  auto first = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(4, 1, 1), first);
  harness.RunUntilIdle();
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(40, 1, 30), sink);
  harness.RunUntilIdle();
  EXPECT_THAT(tokens_of_step, ::testing::ElementsAre(4, 16, 16, 8));
}

}  // namespace
}  // namespace inflight::executor
