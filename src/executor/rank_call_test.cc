// SPDX-License-Identifier: Apache-2.0
// Calls between ranks on GPUs: what is told as bytes is done with the same arguments, and what is
// damaged, lost or cut short is noticed.
#include "executor/rank_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda_rank_processes.h"
#include "executor/remote_ranks.h"
#include "inflight/bad_texts.h"
#include "inflight/prompt_table.h"

namespace inflight::executor {
namespace {

using Kind = RankCall::Kind;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// Keeps what it was called with.
struct Heard {
  std::vector<std::string> calls;
  SlotSetup setup;
  Request request;
  std::vector<TokenId> tokens;
  std::vector<SlotId> beam_slots;
  int adapter = -1;
  StepPlan plan;
  std::vector<LateInputs::Mask> masks;
  std::vector<std::vector<uint32_t>> bits;
  std::vector<Guess> guesses;
  std::vector<int32_t> guessed_ids;
  std::vector<DrawnToken> drawn;
  std::vector<SlotId> moved;
  std::vector<int32_t> parents;
  std::vector<TokenId> moved_by;
};

class FakeRank : public CudaRank {
 public:
  explicit FakeRank(Heard& heard) : heard_(heard) {}

  const BackendInfo& info() const override { return info_; }
  Status LoadDrafts(std::shared_ptr<const model::Engine>, const ops::OpTable&, ops::OpChoice,
                    Device&) override {
    return Internal("not told");
  }
  Status LoadTrees(std::shared_ptr<const model::EagleHead>, const ops::OpTable&, Device&) override {
    return Internal("not told");
  }
  Status WarmUp() override { return Note("warm up"); }
  Status JoinStages() override { return Note("join stages"); }
  Status Hear(std::span<const DrawnToken> drawn) override {
    heard_.drawn.assign(drawn.begin(), drawn.end());
    return drawn.empty() ? Status::Ok() : Note("hear " + std::to_string(drawn.size()));
  }
  Status HearGuesses(const Guesses& guesses) override {
    heard_.guesses.assign(guesses.rows, guesses.rows + guesses.num_rows);
    heard_.guessed_ids.assign(guesses.ids, guesses.ids + guesses.num_ids);
    return guesses.rows == nullptr ? Status::Ok() : Note("guesses");
  }
  Status Draft(const StepPlan& plan) override {
    heard_.plan = plan;
    return Note("draft " + std::to_string(plan.step_id));
  }
  Status Follow(const BeamMove& move) override {
    heard_.moved.assign(move.slots.begin(), move.slots.end());
    heard_.parents.assign(move.parents.begin(), move.parents.end());
    heard_.moved_by.assign(move.tokens.begin(), move.tokens.end());
    return Note("follow at " + std::to_string(move.num_kv_tokens));
  }
  Status AwaitSteps() override { return Note("await"); }
  Status SetupSlot(const SlotSetup& setup) override {
    heard_.setup = setup;
    heard_.request = *setup.request;
    heard_.tokens.assign(setup.tokens.begin(), setup.tokens.end());
    heard_.beam_slots.assign(setup.beam_slots.begin(), setup.beam_slots.end());
    heard_.adapter = setup.adapter == nullptr ? -1 : setup.adapter->index;
    return Note("setup");
  }
  void ReleaseSlot(SlotId slot) override {
    static_cast<void>(Note("release " + std::to_string(slot)));
  }
  Result<Ticket> Launch(const StepPlan& plan) override {
    heard_.plan = plan;
    static_cast<void>(Note("launch " + std::to_string(plan.step_id)));
    return plan.step_id;
  }
  Status ProvideLateInputs(Ticket ticket, const LateInputs& inputs) override {
    heard_.masks = inputs.masks;
    for (const LateInputs::Mask& mask : inputs.masks)
      heard_.bits.emplace_back(mask.allowed_bits.begin(), mask.allowed_bits.end());
    return Note("late inputs " + std::to_string(ticket));
  }
  bool Ready(Ticket) const override { return true; }
  Result<const StepResult*> Collect(Ticket ticket) override {
    if (ticket == 13) return Unavailable("the GPU is gone");
    static_cast<void>(Note("collect " + std::to_string(ticket)));
    return &result_;
  }

 private:
  Status Note(std::string call) {
    heard_.calls.push_back(std::move(call));
    return Status::Ok();
  }
  Heard& heard_;
  BackendInfo info_;
  StepResult result_;
};

class RankCallTest : public ::testing::Test {
 protected:
  Status Tell(const RankCall& call) {
    Kind kind{};
    Status done = rank_.Do(writer_.Write(call), &kind);
    EXPECT_EQ(kind, call.kind);
    return done;
  }
  Heard heard_;
  RankCallWriter writer_;
  CalledRank rank_{std::make_unique<FakeRank>(heard_)};
};

TEST_F(RankCallTest, CallsAreDoneInTheirOrder) {
  StepPlan plan;
  plan.step_id = 7;
  const LateInputs none;
  EXPECT_TRUE(Tell({.kind = Kind::kWarmUp}).ok());
  EXPECT_TRUE(Tell({.kind = Kind::kLaunch, .plan = &plan}).ok());
  EXPECT_TRUE(Tell({.kind = Kind::kLateInputs, .inputs = &none, .ticket = 7}).ok());
  EXPECT_TRUE(Tell({.kind = Kind::kCollect, .ticket = 7}).ok());
  EXPECT_TRUE(Tell({.kind = Kind::kReleaseSlot, .slot = 3}).ok());
  EXPECT_TRUE(Tell({.kind = Kind::kAwaitSteps}).ok());
  EXPECT_EQ(Tell({.kind = Kind::kCollect, .ticket = 13}), Unavailable("the GPU is gone"));
  EXPECT_THAT(heard_.calls, ElementsAre("warm up", "launch 7", "late inputs 7", "collect 7",
                                        "release 3", "await"));
}

TEST_F(RankCallTest, ASetupHasAllThatAStepDependsOn) {
  Request request;
  request.input_ids = {1, 2, 3};  // told as tokens
  request.end_ids = {2, 5};
  request.stop_words = {{4, 5}, {6}};
  request.bad_words = {{7}};
  request.draft_ids = {8, 9};
  request.draft_logits = std::make_shared<const std::vector<float>>(std::vector<float>{1, -2});
  request.draft_acceptance_threshold = 0.5F;
  request.embedding_bias = std::make_shared<const std::vector<float>>(std::vector<float>{0.25F});
  request.prompt_table = std::make_shared<const PromptTable>(
      PromptTable{.num_rows = 1, .hidden_size = 2, .values = {3, 4}});
  request.sampling = {.beam_width = 2, .temperature = 0.5F, .top_p = 0.9F, .seed = 77};
  request.output = {.return_log_probs = true, .num_top_log_probs = 4};
  const std::vector<TokenId> tokens = {1, 2, 3, 11};
  const std::vector<SlotId> beams = {4, 5};
  const model::Adapter adapter = {.index = 6};
  const SlotSetup setup = {.slot = 4,
                           .tokens = tokens,
                           .num_prompt_tokens = 3,
                           .max_seq_len = 40,
                           .request = &request,
                           .context_logits_from = 1,
                           .seed = 78,
                           .cum_log_prob = -1.5F,
                           .beam_slots = beams,
                           .adapter = &adapter};
  ASSERT_TRUE(Tell({.kind = Kind::kSetupSlot, .setup = &setup}).ok());
  EXPECT_EQ(heard_.setup.slot, 4);
  EXPECT_THAT(heard_.tokens, ElementsAreArray(tokens));
  EXPECT_EQ(heard_.setup.num_prompt_tokens, 3);
  EXPECT_EQ(heard_.setup.max_seq_len, 40);
  EXPECT_EQ(heard_.setup.context_logits_from, 1);
  EXPECT_EQ(heard_.setup.seed, 78U);
  EXPECT_EQ(heard_.setup.cum_log_prob, -1.5F);
  EXPECT_THAT(heard_.beam_slots, ElementsAreArray(beams));
  EXPECT_EQ(heard_.adapter, 6);
  const Request& heard = heard_.request;
  EXPECT_EQ(heard.end_ids, request.end_ids);
  EXPECT_EQ(heard.stop_words, request.stop_words);
  EXPECT_EQ(heard.bad_words, request.bad_words);
  EXPECT_EQ(heard.draft_ids, request.draft_ids);
  EXPECT_EQ(*heard.draft_logits, *request.draft_logits);
  EXPECT_EQ(heard.draft_acceptance_threshold, 0.5F);
  EXPECT_EQ(*heard.embedding_bias, *request.embedding_bias);
  EXPECT_EQ(heard.prompt_table->num_rows, 1);
  EXPECT_EQ(heard.prompt_table->hidden_size, 2);
  EXPECT_EQ(heard.prompt_table->values, request.prompt_table->values);
  EXPECT_EQ(heard.sampling.beam_width, 2);
  EXPECT_EQ(heard.sampling.temperature, 0.5F);
  EXPECT_EQ(heard.sampling.top_p, 0.9F);
  EXPECT_EQ(heard.sampling.seed, 77U);
  EXPECT_TRUE(heard.output.return_log_probs);
  EXPECT_EQ(heard.output.num_top_log_probs, 4);
}

TEST_F(RankCallTest, APlanHasItsItems) {
  StepPlan plan;
  plan.step_id = 9;
  plan.num_rows = 2;
  plan.num_decode_rows = 1;
  plan.num_tokens = 6;
  plan.num_yields = 1;
  plan.num_updates = 1;
  plan.num_block_ids = 2;
  plan.num_copies = 1;
  plan.rows[0] = {.slot = 3, .num_query_tokens = 1, .first_position = 20, .yields = 1};
  plan.rows[1] = {.slot = 1, .num_query_tokens = 5, .is_prefill = 1};
  plan.updates[0] = {.slot = 1, .num_blocks = 2};
  plan.block_ids[0] = 31;
  plan.block_ids[1] = 32;
  plan.copies[0] = {.group = 0, .from = 5, .to = 6};
  ASSERT_TRUE(Tell({.kind = Kind::kLaunch, .plan = &plan}).ok());
  EXPECT_EQ(heard_.plan.num_rows, 2);
  EXPECT_EQ(heard_.plan.num_decode_rows, 1);
  EXPECT_EQ(heard_.plan.num_tokens, 6);
  EXPECT_EQ(heard_.plan.num_yields, 1);
  EXPECT_EQ(heard_.plan.rows[0].slot, 3);
  EXPECT_EQ(heard_.plan.rows[0].first_position, 20);
  EXPECT_EQ(heard_.plan.rows[1].num_query_tokens, 5);
  EXPECT_EQ(heard_.plan.updates[0].num_blocks, 2);
  EXPECT_EQ(heard_.plan.block_ids[1], 32);
  EXPECT_EQ(heard_.plan.copies[0].to, 6);
}

TEST_F(RankCallTest, LateInputsHaveTheirMasks) {
  const std::vector<uint32_t> first = {1, 2, 3};
  const std::vector<uint32_t> second = {0xffffffff, 0, 8};
  const LateInputs inputs = {.masks = {{.slot = 2, .allowed_bits = first},
                                       {.slot = 5, .draft = 1, .allowed_bits = second}}};
  ASSERT_TRUE(Tell({.kind = Kind::kLateInputs, .inputs = &inputs, .ticket = 4}).ok());
  ASSERT_EQ(heard_.masks.size(), 2U);
  EXPECT_EQ(heard_.masks[0].slot, 2);
  EXPECT_EQ(heard_.masks[1].slot, 5);
  EXPECT_EQ(heard_.masks[1].draft, 1);
  EXPECT_THAT(heard_.bits, ElementsAre(first, second));
}

// Of stages: what was drawn is heard before the step that drew it is collected.
TEST_F(RankCallTest, StagesHearWhatWasDrawnAndHowBeamsWentOn) {
  const std::vector<DrawnToken> drawn = {
      {.slot = 3, .at = 20, .id = 77, .num_tokens = 21},
      {.slot = 5, .kv_shift = 4, .at = 9, .id = 1, .num_tokens = 11},
      {.slot = 5, .at = 10, .id = 2, .num_tokens = 11}};
  const std::vector<SlotId> slots = {4, 6};
  const std::vector<int32_t> parents = {1, 1};
  const std::vector<TokenId> tokens = {50, 51};
  const BeamMove move = {.slots = slots, .parents = parents, .tokens = tokens, .num_kv_tokens = 12};
  EXPECT_TRUE(Tell({.kind = Kind::kJoinStages}).ok());
  EXPECT_TRUE(Tell({.kind = Kind::kCollect, .ticket = 7, .drawn = drawn}).ok());
  EXPECT_TRUE(Tell({.kind = Kind::kFollowBeams, .move = &move}).ok());
  EXPECT_THAT(heard_.calls, ElementsAre("join stages", "hear 3", "collect 7", "follow at 12"));
  EXPECT_THAT(heard_.drawn, ElementsAreArray(drawn));
  EXPECT_THAT(heard_.moved, ElementsAreArray(slots));
  EXPECT_THAT(heard_.parents, ElementsAreArray(parents));
  EXPECT_THAT(heard_.moved_by, ElementsAreArray(tokens));
  EXPECT_TRUE(IsAnswered(Kind::kJoinStages));
  EXPECT_FALSE(IsAnswered(Kind::kFollowBeams));
}

TEST_F(RankCallTest, StagesHearWhatTextsGuessBeforeTheStep) {
  StepPlan plan;
  plan.step_id = 7;
  const std::vector<Guess> rows = {{.num_known = 12, .first_id = 0, .num_ids = 2},
                                   {.num_known = 30, .first_id = 2, .num_ids = 0},
                                   {.num_known = 5, .first_id = 2, .num_ids = 1}};
  const std::vector<int32_t> ids = {70, 71, 99};
  ASSERT_TRUE(Tell({.kind = Kind::kLaunch,
                    .plan = &plan,
                    .guesses = {.rows = rows.data(),
                                .ids = ids.data(),
                                .num_rows = static_cast<int32_t>(rows.size()),
                                .num_ids = static_cast<int32_t>(ids.size())}})
                  .ok());
  EXPECT_THAT(heard_.calls, ElementsAre("guesses", "launch 7"));
  ASSERT_EQ(heard_.guesses.size(), 3U);
  EXPECT_EQ(heard_.guesses[0].num_known, 12);
  EXPECT_EQ(heard_.guesses[2].first_id, 2);
  EXPECT_EQ(heard_.guesses[2].num_ids, 1);
  EXPECT_THAT(heard_.guessed_ids, ElementsAreArray(ids));
  ASSERT_TRUE(Tell({.kind = Kind::kLaunch, .plan = &plan}).ok());
  EXPECT_EQ(heard_.calls.back(), "launch 7") << "of no texts";
}

// Trees are drafted before the step is launched, by its plan.
TEST_F(RankCallTest, APlanIsDraftedForBeforeItIsLaunched) {
  StepPlan plan;
  plan.step_id = 8;
  plan.num_rows = plan.num_decode_rows = 1;
  plan.rows[0] = {.slot = 4, .num_query_tokens = 6, .yields = 1, .num_draft_tokens = 5};
  ASSERT_TRUE(Tell({.kind = Kind::kDraft, .plan = &plan}).ok());
  EXPECT_EQ(heard_.plan.rows[0].slot, 4);
  EXPECT_EQ(heard_.plan.rows[0].num_draft_tokens, 5);
  ASSERT_TRUE(Tell({.kind = Kind::kLaunch, .plan = &plan}).ok());
  EXPECT_THAT(heard_.calls, ElementsAre("draft 8", "launch 8"));
  EXPECT_FALSE(IsAnswered(Kind::kDraft));
}

// With a hash that fits: more drawn tokens than the message has.
TEST_F(RankCallTest, DrawnTokensBeyondTheMessageAreNoticed) {
  const std::vector<DrawnToken> drawn(3);
  const std::string message(RankCallWriter().Write({.kind = Kind::kCollect, .drawn = drawn}));
  // Behind kind, ticket and slot.
  constexpr size_t kCount = 1 + 8 + 4;
  std::string body = message.substr(0, message.size() - sizeof(uint64_t));
  ASSERT_EQ(body[kCount], 3);
  body[kCount] = 4;
  const uint64_t hash = XXH3_64bits_withSeed(body.data(), body.size(), 0);
  body.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  Kind kind{};
  EXPECT_EQ(rank_.Do(body, &kind).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(heard_.calls.empty());
}

// The leader, which clients ask, draws.
TEST(CudaRankOfTest, TheFirstProcessHasTheFirstRankOfTheLastStage) {
  const auto ranks_of = [](int tp_size, int pp_size) {
    std::vector<int> ranks;
    for (int process = 0; process < tp_size * pp_size; ++process)
      ranks.push_back(CudaRankOf(process, tp_size, pp_size));
    return ranks;
  };
  EXPECT_THAT(ranks_of(4, 1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ranks_of(1, 3), ElementsAre(2, 0, 1));
  EXPECT_THAT(ranks_of(2, 3), ElementsAre(4, 5, 0, 1, 2, 3));
}

TEST_F(RankCallTest, WhatIsDamagedLostOrCutShortIsNoticed) {
  StepPlan plan;
  plan.num_rows = 1;
  const std::string message(writer_.Write({.kind = Kind::kLaunch, .plan = &plan}));
  Kind kind{};
  const auto is_noticed = [&](const std::string& bytes) {
    CalledRank rank(std::make_unique<FakeRank>(heard_));
    return rank.Do(bytes, &kind).code() == StatusCode::kDataLoss;
  };
  for (size_t size = 0; size < message.size(); ++size)
    EXPECT_TRUE(is_noticed(message.substr(0, size))) << size;
  for (size_t i = 0; i < message.size(); ++i) {
    std::string damaged = message;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_TRUE(is_noticed(damaged)) << i;
  }
  EXPECT_TRUE(heard_.calls.empty());
  EXPECT_TRUE(rank_.Do(message, &kind).ok());
  EXPECT_EQ(rank_.Do(message, &kind).code(), StatusCode::kDataLoss) << "came twice";
}

// With a hash that fits.
TEST_F(RankCallTest, APlanOfMoreItemsThanThereAreIsNoticed) {
  const StepPlan plan{};
  const std::string message(RankCallWriter().Write({.kind = Kind::kLaunch, .plan = &plan}));
  // Behind kind, ticket, slot and step_id.
  constexpr size_t kCounts = 1 + 8 + 4 + 8;
  for (const size_t count : {0, 4, 5, 6})  // rows, updates, block_ids, copies
    for (const int32_t number : {-1, 1, 1 << 20}) {
      std::string body = message.substr(0, message.size() - sizeof(uint64_t));
      std::memcpy(&body[kCounts + count * sizeof(number)], &number, sizeof(number));
      const uint64_t hash = XXH3_64bits_withSeed(body.data(), body.size(), 0);
      body.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
      CalledRank rank(std::make_unique<FakeRank>(heard_));
      Kind kind{};
      EXPECT_EQ(rank.Do(body, &kind).code(), StatusCode::kDataLoss) << count << " " << number;
    }
  EXPECT_TRUE(heard_.calls.empty());
}

TEST_F(RankCallTest, WhatIsNotSentIsRefusedByName) {
  Request request;
  EXPECT_TRUE(CheckIsSent(request).ok());
  request.bad_texts = std::make_shared<const BadTexts>();
  const Status refused = CheckIsSent(request);
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), ::testing::StartsWith("bad_words that are texts: "));
}

TEST_F(RankCallTest, AnswersKeepCodeAndMessage) {
  EXPECT_TRUE(StatusOfAnswer(AnswerOf(Status::Ok())).ok());
  const Status failed = ResourceExhausted("no pinned memory");
  EXPECT_EQ(StatusOfAnswer(AnswerOf(failed)), failed);
  EXPECT_EQ(StatusOfAnswer("ab").code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace inflight::executor
