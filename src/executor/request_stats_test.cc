// SPDX-License-Identifier: Apache-2.0
// Requests followed through their stages; the numbers are worked out by hand.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <utility>

#include "executor/request_stats_ring.h"
#include "simulation/loop_harness.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::ExpectedOutput;
using ::inflight::testing::HarnessOptions;
using ::inflight::testing::LoopHarness;
using ::inflight::testing::MakeRequest;
using ::inflight::testing::RecordingSink;
using ::inflight::testing::SmallInfo;
using enum RequestStage;

// 4 rows, 32 tokens a step, 16 blocks of 4 tokens; a step is collected in the turn that launches
// it.
HarnessOptions Recording(int depth = 1) {
  HarnessOptions options;
  options.backend.info = SmallInfo(depth);
  options.request_stats_max_iterations = 1000;
  return options;
}

std::shared_ptr<RecordingSink> NewSink() { return std::make_shared<RecordingSink>(); }

std::vector<RequestStatsPerIteration> Take(LoopHarness& harness) {
  std::vector<RequestStatsPerIteration> records;
  harness.loop.TakeRequestStats(&records);
  return records;
}

const RequestStats* Find(const RequestStatsPerIteration& record, RequestId id, int sequence = 0) {
  for (const RequestStats& stats : record.requests) {
    if (stats.id == id && stats.sequence_index == sequence) return &stats;
  }
  return nullptr;
}

void ExpectEqual(const RequestStats& actual, const RequestStats& expected) {
  EXPECT_EQ(actual.id, expected.id);
  EXPECT_EQ(actual.sequence_index, expected.sequence_index);
  EXPECT_STREQ(RequestStageName(actual.stage), RequestStageName(expected.stage));
  EXPECT_EQ(actual.context_prefill_position, expected.context_prefill_position);
  EXPECT_EQ(actual.num_generated_tokens, expected.num_generated_tokens);
  EXPECT_EQ(actual.avg_num_decoded_tokens_per_iter, expected.avg_num_decoded_tokens_per_iter);
  EXPECT_EQ(actual.scheduled, expected.scheduled);
  EXPECT_EQ(actual.paused, expected.paused);
  EXPECT_EQ(actual.kv_blocks_alloc_total, expected.kv_blocks_alloc_total);
  EXPECT_EQ(actual.kv_blocks_alloc_new, expected.kv_blocks_alloc_new);
  EXPECT_EQ(actual.kv_blocks_reused, expected.kv_blocks_reused);
  EXPECT_EQ(actual.kv_blocks_missed, expected.kv_blocks_missed);
}

struct Counts {
  int64_t fresh = 0, reused = 0, missed = 0;
};

RequestStats Running(RequestId id, RequestStage stage, int position, int num_generated,
                     const Counts& blocks) {
  return {.id = id,
          .stage = stage,
          .context_prefill_position = position,
          .num_generated_tokens = num_generated,
          .avg_num_decoded_tokens_per_iter = num_generated > 0 ? 1.0F : 0.0F,
          .scheduled = true,
          .kv_blocks_alloc_total = blocks.fresh + blocks.reused,
          .kv_blocks_alloc_new = blocks.fresh,
          .kv_blocks_reused = blocks.reused,
          .kv_blocks_missed = blocks.missed};
}

TEST(RequestStatsTest, FollowARequestFromItsPromptToItsEnd) {
  HarnessOptions options = Recording();
  options.backend.info.max_num_tokens = 8;  // 19 tokens of prompt are 8, 8 and 3
  LoopHarness harness(std::move(options));
  const RequestId id = harness.Enqueue(MakeRequest(19, 3), NewSink());
  harness.RunUntilIdle();
  const auto records = Take(harness);
  // Of the prompt's first 18 tokens, 4 full blocks, none was there.
  const std::vector<RequestStats> expected = {
      Running(id, kContextInProgress, 8, 0, {.fresh = 2, .missed = 4}),
      Running(id, kContextInProgress, 16, 0, {.fresh = 4, .missed = 4}),
      Running(id, kGenerationInProgress, 19, 1, {.fresh = 5, .missed = 4}),
      Running(id, kGenerationInProgress, 19, 2, {.fresh = 5, .missed = 4}),  // 20 tokens are fed
      Running(id, kGenerationComplete, 19, 3, {.fresh = 6, .missed = 4}),
  };
  ASSERT_EQ(records.size(), expected.size()) << "nothing is told of an idle loop";
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(records[i].iter, static_cast<int64_t>(i) + 1);
    ASSERT_EQ(records[i].requests.size(), 1U);
    ExpectEqual(records[i].requests[0], expected[i]);
  }
  EXPECT_TRUE(Take(harness).empty()) << "taken once";

  const RequestId again = harness.Enqueue(MakeRequest(19, 1), NewSink());  // 4 blocks are there
  harness.RunUntilIdle();
  const auto reused = Take(harness);
  ASSERT_EQ(reused.size(), 1U);
  ExpectEqual(reused[0].requests.at(0),
              Running(again, kGenerationComplete, 19, 1, {.fresh = 1, .reused = 4}));
}

TEST(RequestStatsTest, TellQueuedRequestsAndThoseThatAreCancelledThere) {
  LoopHarness harness(Recording());
  for (uint64_t i = 1; i <= 6; ++i) harness.Enqueue(MakeRequest(3, 9, 10 * i), NewSink());
  harness.Step();
  const auto first = Take(harness);
  ASSERT_EQ(first.size(), 1U);
  ASSERT_EQ(first[0].requests.size(), 6U);
  for (RequestId id = 1; id <= 4; ++id) {
    ExpectEqual(first[0].requests[id - 1], Running(id, kGenerationInProgress, 3, 1, {.fresh = 1}));
  }
  ExpectEqual(first[0].requests[4], {.id = 5});
  ExpectEqual(first[0].requests[5], {.id = 6});

  harness.inbox.Cancel(6);
  harness.RunUntilIdle();
  const auto rest = Take(harness);
  ASSERT_EQ(rest.size(), 8U + 9U) << "four of 9 tokens, of which one was told, then the fifth";
  ExpectEqual(rest[0].requests.at(5), {.id = 6, .stage = kGenerationComplete});
  for (size_t i = 1; i < rest.size(); ++i) EXPECT_EQ(Find(rest[i], 6), nullptr) << i;
  ASSERT_NE(Find(rest[7], 5), nullptr);
  EXPECT_EQ(Find(rest[7], 5)->stage, kQueued) << "the four end in this iteration";
  EXPECT_EQ(Find(rest[7], 4)->stage, kGenerationComplete);
  ASSERT_EQ(rest[8].requests.size(), 1U);
  ExpectEqual(rest[8].requests[0], Running(5, kGenerationInProgress, 3, 1, {.fresh = 1}));
}

TEST(RequestStatsTest, TellOnceOfWhoEndsAfterTheLastStep) {
  LoopHarness harness(Recording());
  const RequestId id = harness.Enqueue(MakeRequest(3, 9), NewSink());
  for (int i = 0; i < 3; ++i) harness.Step();
  EXPECT_EQ(Take(harness).size(), 3U);
  harness.inbox.Cancel(id);
  harness.RunUntilIdle();
  const auto records = Take(harness);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].iter, 3);
  ASSERT_EQ(records[0].requests.size(), 1U);
  RequestStats expected = Running(id, kGenerationComplete, 3, 3, {.fresh = 2});
  expected.scheduled = false;
  ExpectEqual(records[0].requests[0], expected);
}

// Two requests of 7 + 18 tokens over 8 blocks. With 16 tokens each they hold all; the second one is
// paused in step 11, when the first begins its 5th block, and loses two of its 4 published blocks
// to the first one's 5th and 6th. The first ends in step 18; then the second reads again the 17
// tokens that it knows, 8 of which are reused.
TEST(RequestStatsTest, TellOfAPauseAndWhatTheResumeTookAnew) {
  HarnessOptions options = Recording();
  options.backend.info.kv_groups[0].num_blocks = 8;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  LoopHarness harness(std::move(options));
  const RequestId first = harness.Enqueue(MakeRequest(7, 18, 20), NewSink());
  const RequestId second = harness.Enqueue(MakeRequest(7, 18, 60), NewSink());
  harness.RunUntilIdle();
  const auto records = Take(harness);
  ASSERT_EQ(records.size(), 26U);
  ExpectEqual(*Find(records[9], second),
              Running(second, kGenerationInProgress, 7, 10, {.fresh = 4, .missed = 1}));
  RequestStats paused = Running(second, kContextInProgress, 0, 10, {.fresh = 4, .missed = 1});
  paused.scheduled = false;
  paused.paused = true;
  for (size_t i = 10; i < 18; ++i) {
    SCOPED_TRACE(i);
    ExpectEqual(*Find(records[i], second), paused);
  }
  ExpectEqual(*Find(records[17], first),
              Running(first, kGenerationComplete, 7, 18, {.fresh = 6, .missed = 1}));
  // Of the first 16 of 17 tokens, two blocks of four are missed, beside the prompt's.
  ExpectEqual(*Find(records[18], second), Running(second, kGenerationInProgress, 17, 11,
                                                  {.fresh = 4 + 3, .reused = 2, .missed = 1 + 2}));
  ExpectEqual(*Find(records[25], second), Running(second, kGenerationComplete, 17, 18,
                                                  {.fresh = 4 + 4, .reused = 2, .missed = 1 + 2}));
}

TEST(RequestStatsTest, TellSequencesOfARequestApart) {
  LoopHarness harness(Recording());
  Request request = MakeRequest(5, 12);
  request.end_ids = {ExpectedOutput(request, 97).ids[3]};  // the first sequence ends early
  const auto num_tokens = [&request](int index) {
    Request alone = request;
    alone.sampling.seed = *request.sampling.seed + static_cast<uint64_t>(index);
    return static_cast<int>(ExpectedOutput(alone, 97).ids.size());
  };
  ASSERT_LE(num_tokens(0), 3) << "the end id is not returned";
  ASSERT_NE(num_tokens(0), num_tokens(1));
  request.sampling.num_return_sequences = 2;
  const RequestId id = harness.Enqueue(request, NewSink());
  harness.RunUntilIdle();
  std::map<int, RequestStats> ended;
  for (const RequestStatsPerIteration& record : Take(harness)) {
    for (const RequestStats& stats : record.requests) {
      EXPECT_EQ(stats.id, id);
      EXPECT_FALSE(ended.contains(stats.sequence_index)) << "told once";
      if (stats.stage == kGenerationComplete) ended[stats.sequence_index] = stats;
    }
  }
  ASSERT_EQ(ended.size(), 2U);
  for (const auto& [index, stats] : ended) {
    EXPECT_EQ(stats.num_generated_tokens, num_tokens(index));
    EXPECT_EQ(stats.avg_num_decoded_tokens_per_iter, 1.0F) << "the step of the end id is none";
  }
}

TEST(RequestStatsTest, BeamsOfASearchAreOne) {
  HarnessOptions options = Recording();
  options.backend.info.max_beam_width = 2;
  LoopHarness harness(std::move(options));
  Request request = MakeRequest(5, 6);
  request.sampling.beam_width = 2;
  const RequestId id = harness.Enqueue(request, NewSink());
  harness.RunUntilIdle();
  const size_t num_steps = ExpectedOutput(request, 97).beams.at(0).output_ids.size();
  const auto records = Take(harness);
  ASSERT_EQ(records.size(), num_steps);
  for (size_t i = 0; i < num_steps; ++i) {
    ASSERT_EQ(records[i].requests.size(), 1U);
    const RequestStats& stats = records[i].requests[0];
    EXPECT_EQ(stats.id, id);
    EXPECT_EQ(stats.num_generated_tokens, static_cast<int>(i) + 1);
    EXPECT_EQ(stats.avg_num_decoded_tokens_per_iter, 1.0F);
    EXPECT_EQ(stats.stage, i + 1 < num_steps ? kGenerationInProgress : kGenerationComplete);
    EXPECT_TRUE(stats.scheduled);
  }
  EXPECT_EQ(records.back().requests[0].kv_blocks_alloc_new,
            harness.loop.stats().kv_blocks_alloc_new);
  EXPECT_EQ(harness.loop.stats().rows_decoded, static_cast<int64_t>(num_steps));
  EXPECT_EQ(harness.loop.stats().tokens_decoded, static_cast<int64_t>(num_steps));
}

TEST(RequestStatsTest, RowsOfSeveralTokensRaiseTheAverage) {
  HarnessOptions options = Recording();
  options.backend.info.max_tokens_per_row = 3;
  options.backend.info.makes_drafts = true;
  LoopHarness harness(std::move(options));
  Request request = MakeRequest(3, 25);
  request.streaming = true;  // a response for each step with tokens
  const auto sink = NewSink();
  harness.Enqueue(request, sink);
  harness.RunUntilIdle();
  const auto records = Take(harness);
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(harness.loop.stats().rows_decoded, static_cast<int64_t>(sink->responses.size()));
  EXPECT_EQ(harness.loop.stats().tokens_decoded, 25);
  const float average = 25.0F / static_cast<float>(sink->responses.size());
  ASSERT_GT(average, 1.0F);
  EXPECT_EQ(records.back().requests.at(0).avg_num_decoded_tokens_per_iter, average);
}

TEST(RequestStatsTest, RequestsThatFailEndToo) {
  HarnessOptions options = Recording();
  options.backend.fail_setup_of_seed = 30;
  options.backend.fail_launch_of_step = 3;
  LoopHarness harness(std::move(options));
  const RequestId running = harness.Enqueue(MakeRequest(3, 9, 10), NewSink());
  const RequestId refused = harness.Enqueue(MakeRequest(3, 9, 30), NewSink());
  harness.RunUntilIdle();
  const auto records = Take(harness);
  ASSERT_EQ(records.size(), 3U);
  ASSERT_EQ(records[0].requests.size(), 2U);
  EXPECT_EQ(Find(records[0], refused)->stage, kGenerationComplete);
  EXPECT_FALSE(Find(records[0], refused)->scheduled);
  EXPECT_EQ(Find(records[0], refused)->num_generated_tokens, 0);
  ASSERT_EQ(records[1].requests.size(), 1U);
  ASSERT_EQ(records[2].requests.size(), 1U) << "no step was collected, but the device is lost";
  EXPECT_EQ(records[2].iter, 2);
  EXPECT_EQ(Find(records[2], running)->stage, kGenerationComplete);
  EXPECT_EQ(Find(records[2], running)->num_generated_tokens, 2);
}

TEST(RequestStatsTest, NoneAreKeptUnlessAsked) {
  HarnessOptions options = Recording();
  options.request_stats_max_iterations = 0;
  LoopHarness harness(std::move(options));
  harness.Enqueue(MakeRequest(3, 9), NewSink());
  harness.RunUntilIdle();
  EXPECT_TRUE(Take(harness).empty());
}

TEST(RequestStatsTest, ALateReaderFindsTheNewest) {
  HarnessOptions options = Recording();
  options.request_stats_max_iterations = 2;
  LoopHarness harness(std::move(options));
  harness.Enqueue(MakeRequest(3, 9), NewSink());
  harness.RunUntilIdle();
  const auto records = Take(harness);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].iter, 8);
  EXPECT_EQ(records[1].iter, 9);
}

// --- whatever happens ---

using Clients = std::vector<std::pair<Request, std::shared_ptr<RecordingSink>>>;

// What records say of the sequences of clients, whose requests are numbered from 1.
class CrowdRecords {
 public:
  explicit CrowdRecords(const Clients& clients) : clients_(clients) {}

  void Add(const RequestStatsPerIteration& record) {
    for (const RequestStats& stats : record.requests) {
      SCOPED_TRACE(::testing::Message() << "request " << stats.id << " iter " << record.iter);
      const auto [place, is_new] = seen_.try_emplace({stats.id, stats.sequence_index});
      const RequestStats last = std::exchange(place->second, stats);
      num_queued += stats.stage == kQueued ? 1 : 0;
      num_pauses += stats.paused && !last.paused ? 1 : 0;
      EXPECT_TRUE(is_new || last.stage != kGenerationComplete) << "heard of after its end";
      // A search that begins again may find room in the very step.
      const bool has_beams = clients_[stats.id - 1].first.sampling.beam_width > 1;
      EXPECT_TRUE(stats.stage >= last.stage || stats.paused || has_beams);
      EXPECT_GE(stats.kv_blocks_alloc_new, last.kv_blocks_alloc_new);
      if (stats.stage != kGenerationComplete) continue;
      sum.fresh += stats.kv_blocks_alloc_new;
      sum.reused += stats.kv_blocks_reused;
      sum.missed += stats.kv_blocks_missed;
      EXPECT_FALSE(stats.paused);
    }
  }

  void ExpectAllHaveEnded() const {
    for (RequestId id = 1; id <= clients_.size(); ++id) {
      const auto& [request, sink] = clients_[id - 1];
      for (int i = 0; i < NumSequences(request); ++i) {
        const auto found = seen_.find({id, i});
        ASSERT_NE(found, seen_.end()) << id;
        EXPECT_EQ(found->second.stage, kGenerationComplete) << id;
      }
      const bool is_one = NumSequences(request) == 1 && request.sampling.beam_width == 1;
      if (!is_one) continue;
      const auto num_ids = static_cast<int>(sink->ids.size());
      EXPECT_EQ(seen_.at({id, 0}).num_generated_tokens, num_ids) << id;
    }
  }

  Counts sum;
  int64_t num_pauses = 0;
  int num_queued = 0;

 private:
  const Clients& clients_;
  std::map<std::pair<RequestId, int>, RequestStats> seen_;  // the newest of each
};

// `below(n)` is random, in [0, n).
Request RandomRequest(const std::function<int(int)>& below) {
  const int prompt_len = 1 + below(14);
  const int max_tokens = 1 + below(18);
  Request request = MakeRequest(prompt_len, max_tokens, static_cast<uint64_t>(below(20)));
  if (below(5) == 0) {
    request.sampling.beam_width = 2;
  } else if (below(4) == 0) {
    request.sampling.num_return_sequences = 2;
  }
  return request;
}

class RequestStatsCrowdTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Depths, RequestStatsCrowdTest, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return "Depth" + std::to_string(info.param); });

// Pauses, cancels, several sequences, beams and shared prompts: each sequence ends once and is then
// heard of no more, only a pause takes a stage back, and the blocks of all add up.
TEST_P(RequestStatsCrowdTest, EverySequenceEndsOnceAndBlocksAddUp) {
  constexpr int kNumRequests = 150;
  HarnessOptions options = Recording(GetParam());
  options.backend.info.max_beam_width = 2;
  options.backend.info.max_num_tokens = 12;
  options.backend.ready_seed = 7;
  options.max_queue_size = kNumRequests;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  LoopHarness harness(std::move(options));
  std::mt19937 random(static_cast<uint32_t>(GetParam()));
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<uint32_t>(n));
  };

  Clients clients;
  CrowdRecords records(clients);
  int num_done = 0;
  while (num_done < kNumRequests) {
    if (std::ssize(clients) < kNumRequests && below(3) == 0) {
      const Request request = RandomRequest(below);
      clients.emplace_back(request, NewSink());
      ASSERT_NE(harness.Enqueue(request, clients.back().second), 0U);
    }
    if (below(12) == 0 && !clients.empty()) {
      harness.inbox.Cancel(static_cast<RequestId>(1 + below(static_cast<int>(clients.size()))));
    }
    harness.Step();
    for (const RequestStatsPerIteration& record : Take(harness)) records.Add(record);
    num_done = 0;
    for (const auto& [request, sink] : clients) num_done += sink->is_done() ? 1 : 0;
  }
  harness.RunUntilIdle();
  for (const RequestStatsPerIteration& record : Take(harness)) records.Add(record);

  ASSERT_EQ(std::ssize(clients), kNumRequests);
  records.ExpectAllHaveEnded();
  const ExecutorStats stats = harness.loop.stats();
  EXPECT_EQ(records.sum.fresh, stats.kv_blocks_alloc_new);
  EXPECT_EQ(records.sum.reused, stats.kv_blocks_reused);
  EXPECT_EQ(records.sum.missed, stats.kv_blocks_missed);
  EXPECT_GT(records.sum.reused, 0);
  EXPECT_GT(records.num_pauses, 0);
  EXPECT_GT(records.num_queued, 0);
  EXPECT_GT(stats.requests_cancelled, 0);
  EXPECT_EQ(harness.backend.violation(), "");
}

}  // namespace
}  // namespace inflight::executor
