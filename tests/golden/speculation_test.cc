// SPDX-License-Identifier: Apache-2.0
// Speculation changes no answer: what requests are answered with drafts is what they are answered
// without, bit for bit. On a CPU, and in cuda_golden_test on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "lora_cases.h"
#include "run_requests.h"
#include "speculation_fixture.h"

namespace inflight::golden {
namespace {

TEST_F(SpeculationTest, EveryKindOfRequestIsAnsweredTheSame) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  const Sinks expected = Run(options, requests);
  EXPECT_EQ(stats.tokens_drafted, 0);
  options.drafts = DraftSource::kNgram;
  for (const int length : {1, 4, 15}) {
    SCOPED_TRACE("max_draft_len " + std::to_string(length));
    options.max_draft_len = length;
    ExpectSame(options, requests, expected);
  }
  options.max_draft_len = {};
  ExpectSame(options, requests, expected, /*alone=*/true);
}

// The second time all answers are among the outputs that ended.
TEST_F(SpeculationTest, OutputsThatEndedProposeWhatComesAgain) {
  auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  const size_t num_first = requests.size();
  for (size_t i = 0; i < num_first; ++i) requests.push_back(requests[i]);
  options.max_batch_size = 4;
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kSuffix;
  for (const int length : {1, 4, 15}) {
    SCOPED_TRACE("max_draft_len " + std::to_string(length));
    options.max_draft_len = length;
    ExpectSame(options, requests, expected);
  }
  options.max_num_tokens = 24;
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  ExpectSame(options, requests, expected);
  EXPECT_GT(stats.num_pauses, 0);
}

TEST_F(SpeculationTest, AlsoInChunksWithPausesAndWithoutReuse) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  options.max_num_tokens = 24;
  ExpectSame(options, requests, expected);
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  ExpectSame(options, requests, expected);
  EXPECT_GT(stats.num_pauses, 0);
  options.enable_prefix_reuse = false;
  options.chunking_policy = ChunkingPolicy::kEqualProgress;
  ExpectSame(options, requests, expected);
}

TEST_F(SpeculationTest, BeamSearchesGoBesideIt) {
  auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  requests.resize(6);
  for (const size_t i : {size_t{1}, size_t{4}}) requests[i].sampling = {.beam_width = 3};
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  const Sinks actual = Run(options, requests);
  EXPECT_GT(stats.drafts_accepted, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectEqual(*actual[i], *expected[i], i);
    ASSERT_EQ(actual[i]->last.beams.size(), expected[i]->last.beams.size());
    for (size_t b = 0; b < actual[i]->last.beams.size(); ++b)
      EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
  }
}

TEST_F(SpeculationTest, ARequestMayLeaveDraftsOut) {
  auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  for (Request& request : requests) request.sampling.disable_speculation = true;
  options.drafts = DraftSource::kNgram;
  const Sinks sinks = Run(options, requests);
  EXPECT_EQ(stats.tokens_drafted, 0);
  EXPECT_EQ(sinks[0]->last.num_draft_tokens, 0);
}

TEST_F(SpeculationTest, SlidingWindowsHoldNoDraftBack) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  options.attention_windows = {32};
  options.sink_tokens = 4;
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  ExpectSame(options, requests, expected);
}

// A pool for each window. Without chunks a window saves nothing, and all layers have one pool.
TEST_F(SpeculationTest, LayersOfDifferentWindowsHoldNoDraftBack) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  options.attention_windows = {0, 32, 24};
  options.sink_tokens = 4;
  options.enable_chunked_prefill = false;
  const auto num_groups = [&] {
    const auto plan = executor::PlanMemory(engine->config, engine->limits, device->kind(), 0, true,
                                           options, device->FreeBytes());
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return plan->num_groups();
  };
  EXPECT_EQ(num_groups(), 1);
  const Sinks expected = Run(options, requests);
  options.enable_chunked_prefill = true;
  options.max_num_tokens = 48;
  EXPECT_EQ(num_groups(), 3);
  ExpectAllEqual(requests, Run(options, requests), expected);
  std::vector<Proposer> proposers;
  FindProposers(&proposers);
  for (const Proposer& proposer : proposers) {
    SCOPED_TRACE(proposer.name);
    options.drafts = proposer.source;
    draft = proposer.draft;
    if (proposer.engine != nullptr) engine = proposer.engine;
    ExpectSame(options, requests, expected);
  }
}

// Of few tokens, so that a draft that is taken for another token of the step is found right at
// times.
TEST_F(SpeculationTest, LogitsOfPromptsBesideDraftsChangeNothing) {
  constexpr std::array<TokenId, 4> kTokens = {5, 6, 7, 8};
  auto bias =
      std::make_shared<std::vector<float>>(static_cast<size_t>(engine->config.vocab_size), 0.0F);
  for (const TokenId id : kTokens) (*bias)[static_cast<size_t>(id)] = 30.0F;
  std::mt19937 random(7);
  std::vector<Request> requests;
  for (int i = 0; i < 16; ++i) {
    Request request;
    for (int t = 0; t < 40; ++t) request.input_ids.push_back(kTokens[random() % kTokens.size()]);
    request.max_tokens = 30 + i;
    request.embedding_bias = bias;
    request.sampling = {.temperature = 1.0F, .top_k = 4, .seed = static_cast<uint64_t>(i)};
    request.output.return_context_logits = i % 2 == 1;
    requests.push_back(std::move(request));
  }
  options.max_batch_size = 4;
  options.max_num_tokens = 24;
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  ExpectSame(options, requests, expected);
}

// 200 texts of the model's own, whatever proposes, streamed and not, alone and eight at once.
TEST_F(SpeculationTest, TwoHundredPromptsAreAnsweredTheSame) {
  has_even_clock = false;  // by which even drafts that are dear would be made
  constexpr int kNumPrompts = 200;
  constexpr int kNumWithDrafts = 16;
  Prompts prompts(engine->config.vocab_size);
  std::vector<Request> requests;
  for (int i = 0; i < kNumPrompts; ++i) {
    Request request;
    request.input_ids = {prompts.Any(), prompts.Any()};
    request.max_tokens = 30;
    request.sampling = {.temperature = 0.7F, .top_k = 40, .seed = static_cast<uint64_t>(i)};
    requests.push_back(std::move(request));
  }
  const Sinks texts = Run(options, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].input_ids.insert(requests[i].input_ids.end(), texts[i]->ids.begin(),
                                 texts[i]->ids.end());
    requests[i].max_tokens = 24;
    requests[i].sampling = {};
  }
  const Sinks expected = Run(options, requests);
  std::vector<Proposer> proposers;
  FindProposers(&proposers);
  for (const Proposer& proposer : proposers) {
    SCOPED_TRACE(proposer.name);
    options.drafts = proposer.source;
    draft = proposer.draft;
    if (proposer.engine != nullptr) engine = proposer.engine;
    for (const int batch_size : {1, 8}) {
      options.max_batch_size = batch_size;
      for (Request& request : requests) request.streaming = batch_size > 1;
      const Sinks actual = Run(options, requests);
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(actual[i]->ids, expected[i]->ids) << "prompt " << i;
    }
    // A busy machine may have found each draft too dear above.
    has_even_clock = true;
    Run(options, {requests.begin(), requests.begin() + kNumWithDrafts});
    has_even_clock = false;
    EXPECT_GT(stats.drafts_accepted, 0);
    if (proposer.source == DraftSource::kModel) {
      EXPECT_GT(stats.drafts_accepted, stats.tokens_drafted / 2) << "it was trained for this";
    }
  }
}

// A token and its drafts are of the row's adapter; rows of other adapters, and of none, beside it.
TEST_F(SpeculationTest, RowsWithAdaptersHaveDraftsToo) {
  const DType dtype = engine->config.dtype;
  auto opened = builder::Open(DataDir() / "llama_head64", *device, {.dtype = dtype, .limits = {}});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  engine = *std::move(opened);
  Prompts prompts(engine->config.vocab_size);
  std::vector<Request> requests;
  for (const LoraCase& c : ReadLoraCases()) {
    if (c.model != "llama_head64") continue;
    Request request = RequestOf(c, requests.size());
    request.input_ids = prompts.Periodic(4, 20);
    request.max_tokens = 40;
    request.output = {.return_log_probs = true};
    requests.push_back(std::move(request));
  }
  ASSERT_GT(requests.size(), 4);
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  ExpectSame(options, requests, expected);
  options.drafts = DraftSource::kModel;
  draft.model = engine;
  const Sinks actual = Run(options, requests);
  EXPECT_GT(stats.drafts_accepted, 0);
  for (size_t i = 0; i < requests.size(); ++i) ExpectEqual(*actual[i], *expected[i], i);
}

// The model itself proposes what it then says; one of random weights knows nothing.
TEST_F(SpeculationTest, AModelProposesWhatAnotherJudges) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  const Sinks expected = Run(options, requests);
  auto random = builder::Random(engine->config, engine->limits, /*seed=*/3, *device, false);
  ASSERT_TRUE(random.ok()) << random.status().ToString();
  options.drafts = DraftSource::kModel;
  for (const bool knows : {true, false}) {
    SCOPED_TRACE(knows ? "the model itself" : "random weights");
    draft.model = knows ? engine : *random;
    for (const int batch_size : {3, 20}) {  // more sequences than the draft model has room for
      options.max_batch_size = batch_size;
      const Sinks actual = Run(options, requests);
      EXPECT_GT(stats.tokens_drafted, 0);
      if (knows) {
        EXPECT_GT(stats.drafts_accepted, stats.tokens_drafted * 3 / 4);
      } else {
        EXPECT_LT(stats.drafts_accepted, stats.tokens_drafted / 4);
      }
      ExpectAllEqual(requests, actual, expected);
    }
  }
  options.max_num_tokens = 24;
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  draft.model = engine;
  const Sinks actual = Run(options, requests);
  EXPECT_GT(stats.num_pauses, 0);
  ExpectAllEqual(requests, actual, expected);
}

TEST_F(SpeculationTest, AModelOfAnotherVocabularyIsRefused) {
  model::ModelConfig config = engine->config;
  config.vocab_size = 1000;
  auto random = builder::Random(config, engine->limits, /*seed=*/3, *device, false);
  ASSERT_TRUE(random.ok()) << random.status().ToString();
  options.drafts = DraftSource::kModel;
  const auto made = executor::CreateLocalBackend(engine, *device, options, {}, {*random});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(
      made.status().message(),
      "draft_model: its vocabulary has 1000 tokens, the model's 2048; both need one tokenizer");
}
// --- drafts that come with the request ---

struct ClientDraftsTest : SpeculationTest {
  void SetUp() override {
    SpeculationTest::SetUp();
    if (IsSkipped()) return;
    options.max_draft_len = 8;
    options.step_time_goal_ms = 0;  // whole prompts in one step
  }

  // What a request of that prompt is answered without drafts.
  Request Plain(bool sampled, int max_tokens) {
    Prompts prompts(engine->config.vocab_size);
    Request request;
    request.input_ids = prompts.Periodic(5, 37);
    request.max_tokens = max_tokens;
    request.output.return_log_probs = true;
    request.output.return_generation_logits = true;
    if (sampled) request.sampling = {.temperature = 1.0F, .top_k = 50, .seed = 5};
    return request;
  }
};

TEST_F(ClientDraftsTest, AreAcceptedAsFarAsTheyAreRight) {
  for (const bool sampled : {false, true}) {
    Request request = Plain(sampled, 9);
    const Sinks plain = Run(options, {request});
    const std::vector<TokenId> right(plain[0]->ids.begin(), plain[0]->ids.begin() + 8);
    for (size_t num_right = 0; num_right <= 8; ++num_right) {
      SCOPED_TRACE(std::to_string(num_right) + " right");
      request.draft_ids = right;
      for (size_t i = num_right; i < 8; ++i) request.draft_ids[i] = right[i] == 7 ? 8 : 7;
      const Sinks sinks = Run(options, {request});
      const std::vector<TokenId> expected(
          plain[0]->ids.begin(), plain[0]->ids.begin() + static_cast<ptrdiff_t>(num_right) + 1);
      EXPECT_EQ(sinks[0]->ids, expected);
      EXPECT_EQ(sinks[0]->last.finish_reason, FinishReason::kLength);
      EXPECT_EQ(sinks[0]->last.num_draft_tokens, 8);
      EXPECT_EQ(sinks[0]->last.num_accepted_draft_tokens, static_cast<int>(num_right));
      EXPECT_EQ(stats.num_steps, 1);
      ExpectSameLogProbs(*sinks[0], *plain[0]);
      EXPECT_EQ(sinks[0]->logits.size(),
                (num_right + 1) * static_cast<size_t>(engine->config.vocab_size));
      EXPECT_TRUE(
          std::equal(sinks[0]->logits.begin(), sinks[0]->logits.end(), plain[0]->logits.begin()));
    }
  }
}

// With the target's own logits every draft that it could draw is as likely as its model had it.
TEST_F(ClientDraftsTest, AreAcceptedByTheirLogits) {
  for (const bool sampled : {false, true}) {
    Request request = Plain(sampled, 9);
    const Sinks plain = Run(options, {request});
    request.draft_ids.assign(plain[0]->ids.begin(), plain[0]->ids.begin() + 8);
    const auto width = static_cast<ptrdiff_t>(engine->config.vocab_size);
    auto logits = std::make_shared<std::vector<float>>(plain[0]->logits.begin(),
                                                       plain[0]->logits.begin() + 8 * width);
    request.draft_logits = logits;
    Sinks sinks = Run(options, {request});
    EXPECT_EQ(sinks[0]->ids, plain[0]->ids);
    ExpectSameLogProbs(*sinks[0], *plain[0]);
    // What the third was drawn from names another token alone: of the target's it is never drawn.
    const TokenId other = request.draft_ids[2] == 7 ? 8 : 7;
    std::fill_n(logits->begin() + 2 * width, width, -100.0F);
    (*logits)[static_cast<size_t>(2 * width + other)] = 100.0F;
    request.draft_ids[2] = other;
    request.draft_acceptance_threshold = 1.0F;
    sinks = Run(options, {request});
    ASSERT_EQ(sinks[0]->ids.size(), 3);
    EXPECT_EQ(sinks[0]->ids[1], plain[0]->ids[1]);
    EXPECT_NE(sinks[0]->ids[2], other);
    EXPECT_EQ(sinks[0]->last.num_accepted_draft_tokens, 2);
  }
}

TEST_F(ClientDraftsTest, EndWhereTheSequenceEnds) {
  Request request = Plain(false, 9);
  const std::vector<TokenId> right = Run(options, {request})[0]->ids;
  request.draft_ids.assign(right.begin(), right.begin() + 8);
  const TokenId end = right[3];
  const auto first = std::find(right.begin(), right.end(), end);
  request.end_ids = {end};
  Sinks sinks = Run(options, {request});
  EXPECT_EQ(sinks[0]->ids, (std::vector<TokenId>(right.begin(), first)))
      << "the end id is left out";
  EXPECT_EQ(sinks[0]->last.finish_reason, FinishReason::kEndId);
  request.end_ids = {};
  request.stop_words = {{end}};
  sinks = Run(options, {request});
  EXPECT_EQ(sinks[0]->ids, (std::vector<TokenId>(right.begin(), first + 1)));
  EXPECT_EQ(sinks[0]->last.finish_reason, FinishReason::kStopWords);
}

TEST_F(ClientDraftsTest, ThoseBeyondTheLengthAreLeftOut) {
  Request request = Plain(false, 9);
  const std::vector<TokenId> right = Run(options, {request})[0]->ids;
  request.draft_ids.assign(right.begin(), right.begin() + 8);
  for (const int max_tokens : {1, 2, 5}) {
    request.max_tokens = max_tokens;
    const Sinks sinks = Run(options, {request});
    EXPECT_EQ(sinks[0]->ids, (std::vector<TokenId>(right.begin(), right.begin() + max_tokens)));
    EXPECT_EQ(sinks[0]->last.num_draft_tokens, max_tokens - 1);
  }
}

// A step that lacks the room leaves some out; the client asks again.
TEST_F(ClientDraftsTest, RoundsInChunksGiveTheWholeAnswer) {
  options.max_num_tokens = 16;
  for (const auto chunking :
       {ChunkingPolicy::kFirstComeFirstServed, ChunkingPolicy::kEqualProgress}) {
    options.chunking_policy = chunking;
    const Request plain = Plain(true, 30);
    const std::vector<TokenId> expected = Run(options, {plain})[0]->ids;
    const auto executor = MakeExecutor(engine, *device, options);
    std::vector<TokenId> ids;
    for (int round = 0; std::ssize(ids) < 30; ++round) {
      ASSERT_LT(round, 30);
      Request request = plain;
      request.input_ids.insert(request.input_ids.end(), ids.begin(), ids.end());
      request.max_tokens = 30 - static_cast<int>(ids.size());
      const auto begin = expected.begin() + std::ssize(ids);
      request.draft_ids.assign(begin, begin + std::min<ptrdiff_t>(6, expected.end() - begin));
      if (round % 3 == 1) request.draft_ids[0] = 7;
      const auto sinks = RunAll<RowsSink>(*executor, {request, request});
      const size_t both = std::min(sinks[0]->ids.size(), sinks[1]->ids.size());
      ASSERT_GT(both, 0);
      EXPECT_TRUE(std::equal(sinks[0]->ids.begin(),
                             sinks[0]->ids.begin() + static_cast<ptrdiff_t>(both),
                             sinks[1]->ids.begin()));
      ids.insert(ids.end(), sinks[0]->ids.begin(), sinks[0]->ids.end());
    }
    EXPECT_EQ(ids, expected);
  }
}

TEST_F(ClientDraftsTest, AreRefusedByName) {
  const auto error = [this](const Request& request) {
    const auto executor = MakeExecutor(engine, *device, options);
    const auto id = executor->Enqueue(request, std::make_shared<CollectingSink>());
    return id.ok() ? "" : id.status().message();
  };
  Request request = Plain(false, 20);
  request.draft_ids.assign(9, 5);
  EXPECT_TRUE(error(request).starts_with(
      "Draft tokens length (9) exceeds maximum draft tokens length (8)."))
      << error(request);
  request.draft_ids = {5, engine->config.vocab_size};
  EXPECT_TRUE(error(request).starts_with("draft_ids[1]: got ")) << error(request);
  request.draft_ids = {};
  request.draft_logits = std::make_shared<std::vector<float>>(3);
  EXPECT_EQ(error(request), "Draft tokens must be specified when draft logits are given.");
  request.draft_ids = {5};
  EXPECT_TRUE(error(request).starts_with("draft_logits: got 3 values, 1 draft tokens of "))
      << error(request);
  request.draft_logits = nullptr;
  request.draft_acceptance_threshold = 1.5F;
  EXPECT_TRUE(error(request).starts_with("draft_acceptance_threshold: got 1.5")) << error(request);
  request.draft_acceptance_threshold = {};
  request.sampling.beam_width = 2;
  EXPECT_TRUE(error(request).starts_with("Can't use speculative decoding with beam search."))
      << error(request);
  request.sampling.beam_width = 1;
  options.enable_prefix_reuse = false;
  EXPECT_TRUE(error(request).starts_with(
      "KV cache block reuse must be enabled for speculative decoding target model"))
      << error(request);
  options.enable_prefix_reuse = true;
  EXPECT_EQ(error(request), "");
}

}  // namespace
}  // namespace inflight::golden
