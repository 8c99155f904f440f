// SPDX-License-Identifier: Apache-2.0
// Speculation changes no answer: what requests are answered with drafts is what they are answered
// without, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "builder/builder.h"
#include "constants.h"
#include "run_requests.h"

namespace inflight::golden {
namespace {

// Collects the rows that a request has returned, too.
struct RowsSink : CollectingSink {
  void OnResponse(Response response) override {
    {
      const std::lock_guard lock(mutex);
      top.insert(top.end(), response.top_log_probs.begin(), response.top_log_probs.end());
      const std::vector<float>& rows = response.generation_logits.values;
      logits.insert(logits.end(), rows.begin(), rows.end());
      const std::vector<float>& prompt_rows = response.context_logits.values;
      context.insert(context.end(), prompt_rows.begin(), prompt_rows.end());
    }
    CollectingSink::OnResponse(std::move(response));
  }
  std::vector<TopLogProb> top;
  std::vector<float> logits, context;
};

using Sinks = std::vector<std::shared_ptr<RowsSink>>;

class Prompts {
 public:
  explicit Prompts(int vocab_size) : vocab_size_(vocab_size) {}

  // `period` tokens again and again: what is drawn often repeats them.
  std::vector<TokenId> Periodic(int period, int length) {
    std::vector<TokenId> ids;
    for (int i = 0; i < length; ++i)
      ids.push_back(i < period ? Any() : ids[static_cast<size_t>(i - period)]);
    return ids;
  }
  TokenId Any() {
    return static_cast<TokenId>(3 + random_() % static_cast<unsigned>(vocab_size_ - 3));
  }

 private:
  std::mt19937 random_{11};
  int vocab_size_;
};

// Each rule that says what is drawn, greedy and sampled, and each thing that is returned.
std::vector<Request> RequestsOfAllKinds(int vocab_size) {
  Prompts prompts(vocab_size);
  std::vector<Request> requests;
  for (int kind = 0; kind < 14; ++kind) {
    for (const bool sampled : {false, true}) {
      Request request;
      request.input_ids = prompts.Periodic(3 + kind % 4, 24 + kind);
      request.max_tokens = 48;
      request.streaming = kind % 2 == (sampled ? 0 : 1);
      request.output.return_log_probs = kind % 3 != 0;
      SamplingParams& s = request.sampling;
      if (sampled) {
        s.seed = static_cast<uint64_t>(100 + kind);
        s.temperature = 0.4F;
        if (kind % 3 != 1) s.top_k = 8;
        if (kind % 3 != 0) s.top_p = 0.9F;
      }
      const std::vector<TokenId>& ids = request.input_ids;
      switch (kind) {
        case 1:
          s.repetition_penalty = 1.3F;
          break;
        case 2:
          s.presence_penalty = 0.2F, s.frequency_penalty = 0.1F;
          break;
        case 3:
          request.end_ids = {ids[0], ids[1]};
          break;
        case 4:
          request.end_ids = {ids[2]}, s.min_tokens = 7;
          break;
        case 5:
          request.stop_words = {{ids[1], ids[2]}, {ids[0]}};
          break;
        case 6:
          request.bad_words = {{ids[0]}, {ids[1], ids[2]}};
          break;
        case 7:
          s.no_repeat_ngram_size = 6;
          break;
        case 8:
          request.output.num_top_log_probs = 3;
          break;
        case 9:
          request.output.return_generation_logits = true;
          request.end_ids = {ids[2]}, s.min_tokens = 5;
          break;
        case 10:
          request.output.return_context_logits = true;
          break;
        case 11: {
          auto bias = std::make_shared<std::vector<float>>(static_cast<size_t>(vocab_size), 0.0F);
          (*bias)[static_cast<size_t>(ids[0])] = 2.0F;
          request.embedding_bias = bias;
          break;
        }
        case 12:
          s.num_return_sequences = 2;
          if (sampled) s.top_k = {}, s.top_p = 0.95F, s.top_p_decay = 0.9F, s.top_p_min = 0.3F;
          break;
        case 13:
          request.max_tokens = sampled ? 1 : 2;
          break;
        default:
          break;
      }
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

void ExpectEqual(const RowsSink& actual, const RowsSink& expected, size_t i) {
  SCOPED_TRACE("request " + std::to_string(i));
  EXPECT_TRUE(actual.last.status.ok()) << actual.last.status.ToString();
  EXPECT_EQ(actual.last.finish_reason, expected.last.finish_reason);
  EXPECT_EQ(actual.ids, expected.ids);
  EXPECT_EQ(actual.log_probs, expected.log_probs);
  EXPECT_EQ(actual.last.cum_log_prob, expected.last.cum_log_prob);
  EXPECT_EQ(actual.logits, expected.logits);
  EXPECT_EQ(actual.context, expected.context);
  ASSERT_EQ(actual.top.size(), expected.top.size());
  for (size_t t = 0; t < actual.top.size(); ++t) {
    EXPECT_EQ(actual.top[t].id, expected.top[t].id);
    EXPECT_EQ(actual.top[t].log_prob, expected.top[t].log_prob);
  }
}

struct SpeculationTest : testing::Test {
  void SetUp() override {
    auto opened = builder::Open(INFLIGHT_DEMO_MODEL, *device, {.dtype = DType::kF32, .limits = {}});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    engine = *std::move(opened);
    options.block_size = kBlockSize;
    options.max_batch_size = 8;
    options.max_kv_tokens = 4096;
    options.deterministic = true;
  }

  Sinks Run(const ExecutorOptions& with, const std::vector<Request>& requests) {
    const auto executor = MakeExecutor(engine, *device, with, {}, draft);
    Sinks sinks = RunAll<RowsSink>(*executor, requests);
    executor->Shutdown(0);
    stats = executor->stats();
    return sinks;
  }

  // All at once, or one after another.
  void ExpectSame(const ExecutorOptions& with, const std::vector<Request>& requests,
                  const Sinks& expected, bool alone = false) {
    Sinks actual;
    int64_t num_drafted = 0;
    int64_t num_accepted = 0;
    if (alone) {
      for (const Request& request : requests) {
        actual.push_back(Run(with, {request})[0]);
        num_drafted += stats.tokens_drafted, num_accepted += stats.drafts_accepted;
      }
    } else {
      actual = Run(with, requests);
      num_drafted = stats.tokens_drafted, num_accepted = stats.drafts_accepted;
    }
    EXPECT_GT(num_accepted, 0);
    EXPECT_GE(num_drafted, num_accepted);  // how many are tried depends on what steps take
    int told_drafted = 0;
    int told_accepted = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
        ExpectEqual(*actual[i], *expected[i], i);
      told_drafted += actual[i]->last.num_draft_tokens;
      told_accepted += actual[i]->last.num_accepted_draft_tokens;
    }
    EXPECT_EQ(told_drafted, num_drafted);
    EXPECT_EQ(told_accepted, num_accepted);
  }

  std::shared_ptr<Device> device = Device::Cpu();
  std::shared_ptr<const model::Engine> engine;
  std::shared_ptr<const model::Engine> draft;  // the model that proposes, if one does
  ExecutorOptions options;
  ExecutorStats stats;
};

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

// The model itself proposes what it then says; one of random weights knows nothing.
TEST_F(SpeculationTest, AModelProposesWhatAnotherJudges) {
  const auto requests = RequestsOfAllKinds(engine->config.vocab_size);
  const Sinks expected = Run(options, requests);
  auto random = builder::Random(engine->config, engine->limits, /*seed=*/3, *device, false);
  ASSERT_TRUE(random.ok()) << random.status().ToString();
  options.drafts = DraftSource::kModel;
  for (const bool knows : {true, false}) {
    SCOPED_TRACE(knows ? "the model itself" : "random weights");
    draft = knows ? engine : *random;
    for (const int batch_size : {3, 20}) {  // more sequences than the draft model has room for
      options.max_batch_size = batch_size;
      const Sinks actual = Run(options, requests);
      EXPECT_GT(stats.tokens_drafted, 0);
      if (knows) {
        EXPECT_GT(stats.drafts_accepted, stats.tokens_drafted * 3 / 4);
      } else {
        EXPECT_LT(stats.drafts_accepted, stats.tokens_drafted / 4);
      }
      for (size_t i = 0; i < requests.size(); ++i)
        if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
          ExpectEqual(*actual[i], *expected[i], i);
    }
  }
  options.max_num_tokens = 24;
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  draft = engine;
  const Sinks actual = Run(options, requests);
  EXPECT_GT(stats.num_pauses, 0);
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
      ExpectEqual(*actual[i], *expected[i], i);
}

TEST_F(SpeculationTest, AModelOfAnotherVocabularyIsRefused) {
  model::ModelConfig config = engine->config;
  config.vocab_size = 1000;
  auto random = builder::Random(config, engine->limits, /*seed=*/3, *device, false);
  ASSERT_TRUE(random.ok()) << random.status().ToString();
  options.drafts = DraftSource::kModel;
  const auto made = executor::CreateLocalBackend(engine, *device, options, {}, *random);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(
      made.status().message(),
      "draft_model: its vocabulary has 1000 tokens, the model's 2048; both need one tokenizer");
}

// --- drafts that come with the request ---

struct ClientDraftsTest : SpeculationTest {
  void SetUp() override {
    SpeculationTest::SetUp();
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
      EXPECT_TRUE(std::equal(sinks[0]->log_probs.begin(), sinks[0]->log_probs.end(),
                             plain[0]->log_probs.begin()));
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
    EXPECT_EQ(sinks[0]->log_probs, plain[0]->log_probs);
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
