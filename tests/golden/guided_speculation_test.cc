// SPDX-License-Identifier: Apache-2.0
// Drafts of guided sequences: whoever proposes them, answers are those without drafts, bit for bit,
// and what the guide asked for. On a CPU, and in cuda_golden_test on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "inflight/guide.h"
#include "inflight/tokenizer.h"
#include "speculation_fixture.h"

namespace inflight::golden {
namespace {

constexpr TokenId kEnd = 2044;  // of the demo model

// A guide, a text that it allows, whose tokens are told before, and an expression that its texts
// match.
struct GuideCase {
  GuideSpec spec;
  std::string text;
  std::string expression;
};

std::vector<GuideCase> GuideCases() {
  using Kind = GuideSpec::Kind;
  const std::string object = R"({"name": "fox", "age": 7})";
  const std::string schema = R"({"type": "array", "minItems": 2, "maxItems": 5, "items": {
    "type": "object", "properties": {"name": {"enum": ["fox", "dog"]},
    "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"], "additionalProperties": false}})";
  const std::string repeated = "red and green and red and green and red and green";
  return {
      {.spec = {.kind = Kind::kJsonSchema, .text = schema},
       .text = "[" + object + ", " + object + ", " + object,
       .expression =
           R"re(\s*\[(\s*\{\s*"name"\s*:\s*"(fox|dog)"\s*,\s*"age"\s*:\s*\d{1,2}\s*\}\s*,?){2,5}\s*\]\s*)re"},
      {.spec = {.kind = Kind::kRegex, .text = "((apples|pears), ){3,12}plums"},
       .text = "apples, pears, apples, pears, apples, pears, ",
       .expression = "((apples|pears), ){3,12}plums"},
      {.spec = {.kind = Kind::kChoice,
                .text = R"([")" + repeated + R"(", "blue and green", "blue"])"},
       .text = repeated + ". " + repeated,
       .expression = repeated + "|blue( and green)?"},
      {.spec = {.kind = Kind::kRegex, .text = "(one two |three )+end", .begins_after = "."},
       .text = "A fox. one two one two one two three one two",
       .expression = "[^.]*(\\.(one two |three )+end)?"}};
}

struct GuidedSpeculationTest : SpeculationTest {
  void SetUp() override {
    SpeculationTest::SetUp();
    if (IsSkipped()) return;
    auto loaded = Tokenizer::Load(INFLIGHT_DEMO_MODEL);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    tokenizer = *std::move(loaded);
    std::vector<std::string> texts;
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id)
      texts.push_back(tokenizer->TokenBytes(id));
    tokens = MakeTokenTexts(texts);
    cases = GuideCases();
    for (const GuideCase& c : cases) guides.push_back(GuideOf(c.spec));
  }

  std::shared_ptr<const Guide> GuideOf(const GuideSpec& spec) const {
    auto made = MakeGuide(spec, tokens);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return made.ok() ? *made : nullptr;
  }

  const GuideCase& CaseOf(size_t i) const { return cases[i % cases.size()]; }

  // Each kind of request with one of the guides; what it may say stands in its prompt. A third has
  // no end id, so that the guide alone ends it.
  std::vector<Request> GuidedRequests() const {
    auto requests = RequestsOfAllKinds(engine->config.vocab_size);
    for (size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      const auto told = tokenizer->Encode(CaseOf(i).text + "\n" + CaseOf(i).text + "\n",
                                          /*add_special_tokens=*/false);
      EXPECT_TRUE(told.ok()) << told.status().ToString();
      request.input_ids.insert(request.input_ids.end(), told->begin(), told->end());
      request.guide = guides[i % guides.size()];
      if (i % 3 != 0) request.end_ids.push_back(kEnd);
    }
    return requests;
  }

  std::string TextOf(const std::vector<TokenId>& ids) const {
    std::string text;
    for (const TokenId id : ids) text += tokenizer->TokenBytes(id);
    return text;
  }

  // Of those that ended by themselves, by a program that knows nothing of guides.
  void ExpectWhatWasAskedFor(const std::vector<Request>& requests, const Sinks& sinks) const {
    int num_whole = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const bool is_one = requests[i].sampling.num_return_sequences.value_or(1) == 1;
      if (!is_one || sinks[i]->last.finish_reason != FinishReason::kEndId) continue;
      const std::string text = TextOf(sinks[i]->ids);
      EXPECT_TRUE(std::regex_match(text, std::regex(CaseOf(i).expression))) << i << ": " << text;
      ++num_whole;
    }
    EXPECT_GT(num_whole, static_cast<int>(requests.size()) / 4);
  }

  void ExpectSameAnswers(const std::vector<Request>& requests, const Sinks& expected) {
    const Sinks actual = Run(options, requests);
    EXPECT_GT(stats.drafts_accepted, 0);
    EXPECT_GE(stats.tokens_drafted, stats.drafts_accepted);
    EXPECT_EQ(stats.kv_blocks_used, 0);
    for (size_t i = 0; i < requests.size(); ++i)
      if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
        ExpectSameEnd(*actual[i], *expected[i], i);
    ExpectWhatWasAskedFor(requests, actual);
  }

  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenTexts> tokens;
  std::vector<GuideCase> cases;
  std::vector<std::shared_ptr<const Guide>> guides;
};

TEST_F(GuidedSpeculationTest, EveryKindOfRequestIsAnsweredTheSameWhoeverProposes) {
  auto requests = GuidedRequests();
  const size_t num_first = requests.size();  // again, for what knows earlier outputs
  for (size_t i = 0; i < num_first; ++i) requests.push_back(requests[i]);
  const Sinks expected = Run(options, requests);
  EXPECT_EQ(stats.tokens_drafted, 0);
  std::vector<Proposer> proposers;
  FindProposers(&proposers);
  proposers.insert(
      proposers.begin(),
      {.name = "the model itself", .source = DraftSource::kModel, .draft = {.model = engine}});
  for (const Proposer& proposer : proposers) {
    SCOPED_TRACE(proposer.name);
    options.drafts = proposer.source;
    draft = proposer.draft;
    if (proposer.engine != nullptr) engine = proposer.engine;
    ExpectSameAnswers(requests, expected);
#ifndef INFLIGHT_GOLDEN_CUDA  // a draft model on a GPU draws without the guide
    if (proposer.name == "the model itself") {
      EXPECT_GT(stats.drafts_accepted, stats.tokens_drafted * 3 / 4);
    }
#endif
  }
}

TEST_F(GuidedSpeculationTest, AlsoInChunksWithPausesAndLongDrafts) {
  const auto requests = GuidedRequests();
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  for (const int length : {1, 15}) {
    options.max_draft_len = length;
    ExpectSameAnswers(requests, expected);
  }
  options.max_num_tokens = 24;
  options.max_kv_tokens = 512;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  options.enable_prefix_reuse = false;
  ExpectSameAnswers(requests, expected);
  EXPECT_GT(stats.num_pauses, 0);
}

// Guided rows and free ones in one step.
TEST_F(GuidedSpeculationTest, FreeRowsStandBesideThem) {
  std::vector<Request> requests = GuidedRequests();
  for (size_t i = 0; i < requests.size(); i += 2) requests[i].guide = nullptr;
  const Sinks expected = Run(options, requests);
  options.drafts = DraftSource::kNgram;
  const Sinks actual = Run(options, requests);
  EXPECT_GT(stats.drafts_accepted, 0);
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
      ExpectSameEnd(*actual[i], *expected[i], i);
}

// Drafts of a client are right so far; the next one is another token that may come, or one that may
// not. With logits one that may not come is left to the rule, as if there were no draft.
TEST_F(GuidedSpeculationTest, DraftsOfAClientAreJudgedByTheGuide) {
  constexpr size_t kNumDrafts = 8;
  options.max_draft_len = kNumDrafts;
  options.step_time_goal_ms = 0;  // whole prompts in one step
  const TokenId newline = tokenizer->Encode("\n", /*add_special_tokens=*/false).value().back();
  const auto requests = GuidedRequests();
  for (const size_t i : {size_t{0}, size_t{1}, size_t{2}, size_t{21}}) {
    SCOPED_TRACE("request " + std::to_string(i));
    Request request = requests[i];
    request.max_tokens = kNumDrafts + 1;
    request.output.return_log_probs = true;
    request.output.return_generation_logits = true;
    const Sinks plain = Run(options, {request});
    ASSERT_GT(plain[0]->ids.size(), kNumDrafts / 2);
    // With the two behind them they are no more than a step may verify.
    const size_t most = std::min(kNumDrafts - 1, plain[0]->ids.size());
    for (size_t num_right = 0; num_right < most; ++num_right) {
      request.draft_ids.assign(plain[0]->ids.begin(),
                               plain[0]->ids.begin() + static_cast<ptrdiff_t>(num_right));
      request.draft_ids.push_back(newline);  // no text of the guides has one there
      request.draft_ids.push_back(plain[0]->ids[num_right]);
      for (const bool with_logits : {false, true}) {
        request.draft_logits = nullptr;
        if (with_logits) {
          const auto width = static_cast<size_t>(engine->config.vocab_size);
          auto logits = std::make_shared<std::vector<float>>(plain[0]->logits);
          logits->resize(request.draft_ids.size() * width);
          request.draft_logits = logits;
        }
        const Sinks sinks = Run(options, {request});
        ASSERT_EQ(sinks[0]->ids.size(), num_right + 1);
        // Another number draws what replaces a draft that had logits.
        const bool is_drawn_anew = with_logits && request.sampling.temperature.has_value();
        const size_t num_same = num_right + (is_drawn_anew ? 0 : 1);
        EXPECT_TRUE(std::equal(sinks[0]->ids.begin(),
                               sinks[0]->ids.begin() + static_cast<ptrdiff_t>(num_same),
                               plain[0]->ids.begin()));
        EXPECT_NE(sinks[0]->ids.back(), newline);
        EXPECT_EQ(sinks[0]->last.num_accepted_draft_tokens, static_cast<int>(num_right));
        if (!is_drawn_anew) ExpectSameLogProbs(*sinks[0], *plain[0]);
      }
    }
  }
}

// The last of them is where the text is whole: nothing follows, and none of them is left out.
TEST_F(GuidedSpeculationTest, AWholeTextEndsAmongDraftsOfAClient) {
  options.max_draft_len = 15;
  options.step_time_goal_ms = 0;
  Request request;
  request.input_ids = {5, 9, 17, 33};
  request.max_tokens = 16;
  request.output.return_log_probs = true;
  request.guide = GuideOf({.kind = GuideSpec::Kind::kRegex, .text = "blue( and green)?"});
  const Sinks plain = Run(options, {request});
  ASSERT_EQ(plain[0]->last.finish_reason, FinishReason::kEndId);
  request.draft_ids = plain[0]->ids;
  ASSERT_LT(request.draft_ids.size(), 15U);
  request.draft_ids.push_back(0);
  const Sinks sinks = Run(options, {request});
  EXPECT_EQ(sinks[0]->ids, plain[0]->ids);
  EXPECT_EQ(sinks[0]->last.finish_reason, FinishReason::kEndId);
  EXPECT_EQ(sinks[0]->last.num_accepted_draft_tokens, static_cast<int>(plain[0]->ids.size()));
  ExpectSameLogProbs(*sinks[0], *plain[0]);
}

}  // namespace
}  // namespace inflight::golden
