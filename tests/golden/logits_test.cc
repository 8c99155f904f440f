// SPDX-License-Identifier: Apache-2.0
// Logits that the executor returns (docs/reference/decoding.md): those of transformers, however a
// prompt was cut into chunks, and those that the log-probs were made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "run_requests.h"
#include "worse.h"

namespace inflight::golden {
namespace {

struct LogitsAnswer : CollectingSink {
  void OnResponse(Response response) override {
    const std::vector<TopLogProb>& likeliest = response.top_log_probs;
    top.insert(top.end(), likeliest.begin(), likeliest.end());
    const std::vector<float>& rows = response.generation_logits.values;
    generation.insert(generation.end(), rows.begin(), rows.end());
    EXPECT_EQ(response.generation_logits.num_rows == 0, rows.empty());
    if (response.context_logits.num_rows > 0) {
      EXPECT_TRUE(context.empty()) << "the prompt's logits came twice";
      EXPECT_EQ(num_responses, 0) << "they came late";
      context = std::move(response.context_logits.values);
    }
    CollectingSink::OnResponse(std::move(response));
  }

  std::vector<float> context, generation;
  std::vector<TopLogProb> top;
};

class LogitsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto dir = DataDir() / GetParam();
    expected_ = ReadReference(dir);
    auto engine = builder::Open(dir, *device_, {.dtype = DType::kF32, .limits = std::nullopt});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *engine;
    vocab_size_ = static_cast<size_t>(engine_->config.vocab_size);
    Start({});
  }

  void Start(ExecutorOptions options) {
    executor_.reset();
    options.block_size = kBlockSize;
    options.max_batch_size = 4;
    options.max_num_tokens = 32;  // prompts come in chunks
    if (!options.max_kv_tokens) options.max_kv_tokens = 4096;
    executor_ = MakeExecutor(engine_, *device_, options);
  }

  // Of all requests at once.
  std::vector<std::shared_ptr<LogitsAnswer>> Run(const std::vector<Request>& requests) {
    return RunAll<LogitsAnswer>(*executor_, requests);
  }
  std::shared_ptr<LogitsAnswer> Run(const Request& request) {
    return Run(std::vector{request}).front();
  }

  // `rows` are of positions [first, ...). The largest difference to transformers, and how many of
  // its positions were compared.
  std::pair<float, int> Difference(const Expected& expected, int64_t first,
                                   const std::vector<float>& rows) const {
    float worst = 0;
    int num_compared = 0;
    const auto num_rows = static_cast<int64_t>(rows.size() / vocab_size_);
    for (size_t i = 0; i < expected.positions.size(); ++i) {
      const int64_t row = expected.positions[i] - first;
      if (row < 0 || row >= num_rows) continue;
      ++num_compared;
      for (size_t v = 0; v < vocab_size_; ++v) {
        const float difference = std::fabs(rows[static_cast<size_t>(row) * vocab_size_ + v] -
                                           expected.logits[i * vocab_size_ + v]);
        worst = Worse(worst, difference);
      }
    }
    return {worst, num_compared};
  }

  std::unique_ptr<Device> device_ = Device::Cpu(2);
  std::shared_ptr<const model::Engine> engine_;
  size_t vocab_size_ = 0;
  std::vector<Expected> expected_;
  std::unique_ptr<Executor> executor_;
};

Request MakeRequest(const std::vector<TokenId>& prompt, int max_tokens) {
  Request request;
  request.input_ids = prompt;
  request.max_tokens = max_tokens;
  return request;
}

double LogProb(std::span<const float> logits, TokenId id) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return static_cast<double>(logits[static_cast<size_t>(id)]) - max - std::log(sum);
}

TEST_P(LogitsTest, OfThePromptEqualTransformersInChunks) {
  std::vector<Request> requests;
  for (const Expected& expected : expected_) {
    requests.push_back(MakeRequest(expected.Whole(), 1));
    requests.back().output.return_context_logits = true;
  }
  const auto answers = Run(requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(answers[i]->context.size(), requests[i].input_ids.size() * vocab_size_);
    EXPECT_TRUE(answers[i]->generation.empty());
    const auto [worst, num_compared] = Difference(expected_[i], 0, answers[i]->context);
    EXPECT_EQ(num_compared, static_cast<int>(expected_[i].positions.size()));
    EXPECT_LE(worst, kTolerance) << "prompt " << i;
  }
}

TEST_P(LogitsTest, OfGeneratedTokensEqualTransformers) {
  const Expected& expected = expected_[0];
  Request request = MakeRequest(expected.prompt, 200);
  request.output.return_generation_logits = true;
  const auto answer = Run(request);
  ASSERT_EQ(answer->ids.size(), 200U);
  ASSERT_EQ(answer->generation.size(), 200 * vocab_size_);
  EXPECT_TRUE(answer->context.empty());
  const auto first = static_cast<int64_t>(expected.prompt.size()) - 1;
  const auto [worst, num_compared] = Difference(expected, first, answer->generation);
  EXPECT_GT(num_compared, 0);
  EXPECT_LE(worst, kTolerance);
}

TEST_P(LogitsTest, SoftMaxedTheyAreTheLogProbs) {
  for (const bool greedy : {true, false}) {
    Request request = MakeRequest(expected_[0].prompt, 20);
    request.output = {.return_log_probs = true, .return_generation_logits = true};
    if (!greedy) request.sampling = {.temperature = 1.0F, .top_p = 0.95F, .seed = 3};
    const auto answer = Run(request);
    ASSERT_EQ(answer->log_probs.size(), 20U);
    for (size_t i = 0; i < answer->ids.size(); ++i) {
      const auto row = std::span(answer->generation).subspan(i * vocab_size_, vocab_size_);
      EXPECT_NEAR(LogProb(row, answer->ids[i]), answer->log_probs[i], 1e-4) << "token " << i;
    }
  }
}

// What decoding does to logits is not in them: row 0 is the prompt's last one, to the bit.
TEST_P(LogitsTest, AreThoseBeforePenalties) {
  Request request = MakeRequest(expected_[1].prompt, 3);
  request.output = {.return_context_logits = true, .return_generation_logits = true};
  request.sampling = {.temperature = 0.5F, .top_k = 5, .repetition_penalty = 3.0F};
  const auto answer = Run(request);
  const size_t last = (request.input_ids.size() - 1) * vocab_size_;
  EXPECT_TRUE(std::ranges::equal(std::span(answer->context).subspan(last),
                                 std::span(answer->generation).first(vocab_size_)));
}

TEST_P(LogitsTest, AStreamHasTheSameRowsAndThoseOfThePromptFirst) {
  Request request = MakeRequest(expected_[0].prompt, 12);
  request.output = {.return_context_logits = true, .return_generation_logits = true};
  const auto whole = Run(request);
  request.streaming = true;
  const auto streamed = Run(request);
  EXPECT_GT(streamed->num_responses, 1);
  EXPECT_EQ(streamed->ids, whole->ids);
  EXPECT_EQ(streamed->context, whole->context);
  EXPECT_EQ(streamed->generation, whole->generation);
}

TEST_P(LogitsTest, TheRowOfAnEndIdIsNotReturned) {
  Request request = MakeRequest(expected_[0].prompt, 12);
  request.output.return_generation_logits = true;
  request.end_ids = {expected_[0].greedy[5]};
  const auto answer = Run(request);
  EXPECT_EQ(answer->last.finish_reason, FinishReason::kEndId);
  EXPECT_EQ(answer->generation.size(), answer->ids.size() * vocab_size_);
}

// A prompt whose blocks could be reused is computed again, and only for the request that asks.
TEST_P(LogitsTest, OfThePromptAreWholeAlthoughItsBlocksCouldBeReused) {
  Request request = MakeRequest(expected_[0].Whole(), 1);
  request.output.return_context_logits = true;
  const auto first = Run(request);
  const auto second = Run(request);
  EXPECT_EQ(second->last.num_cached_tokens, 0);
  EXPECT_EQ(second->context, first->context);
  request.output.return_context_logits = false;
  EXPECT_GT(Run(request)->last.num_cached_tokens, 0);
}

// `top` are of one row of logits: its largest log-probs in order.
void ExpectTopOf(std::span<const float> logits, std::span<const TopLogProb> top) {
  std::vector<float> sorted(logits.begin(), logits.end());
  std::sort(sorted.rbegin(), sorted.rend());
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(logits[static_cast<size_t>(top[i].id)], sorted[i]) << "place " << i;
    EXPECT_NEAR(top[i].log_prob, LogProb(logits, top[i].id), 1e-4) << "place " << i;
  }
}

TEST_P(LogitsTest, TheLikeliestTokensAreThoseOfTheLogits) {
  constexpr size_t kCount = 5;
  for (const bool greedy : {true, false}) {
    Request request = MakeRequest(expected_[0].prompt, 20);
    request.output = {
        .return_log_probs = true, .num_top_log_probs = kCount, .return_generation_logits = true};
    if (!greedy) request.sampling = {.temperature = 1.0F, .top_k = 50, .seed = 3};
    const auto whole = Run(request);
    ASSERT_EQ(whole->top.size(), 20 * kCount);
    for (size_t i = 0; i < 20; ++i) {
      const auto top = std::span(whole->top).subspan(i * kCount, kCount);
      ExpectTopOf(std::span(whole->generation).subspan(i * vocab_size_, vocab_size_), top);
      if (!greedy) continue;
      EXPECT_EQ(top[0].id, whole->ids[i]);
      EXPECT_FLOAT_EQ(top[0].log_prob, whole->log_probs[i]);
    }
    request.streaming = true;
    const auto streamed = Run(request);
    EXPECT_GT(streamed->num_responses, 1);
    ASSERT_EQ(streamed->top.size(), whole->top.size());
    for (size_t i = 0; i < whole->top.size(); ++i) {
      EXPECT_EQ(streamed->top[i].id, whole->top[i].id);
      EXPECT_EQ(streamed->top[i].log_prob, whole->top[i].log_prob);
    }
  }
}

TEST_P(LogitsTest, ABannedTokenIsNoLikelyOne) {
  Request request = MakeRequest(expected_[0].prompt, 4);
  request.output.num_top_log_probs = 3;
  const auto plain = Run(request);
  request.bad_words = {{plain->top[0].id}};
  const auto banned = Run(request);
  EXPECT_EQ(banned->top[0].id, plain->top[1].id);
  EXPECT_GT(banned->top[0].log_prob, plain->top[1].log_prob) << "the others share what it had";
}

// The oracle: the same tokens as a prompt, whose logits equal transformers' (above).
TEST_P(LogitsTest, OfBeamsAreThoseOfTheirTokens) {
  constexpr size_t kCount = 4;
  for (const bool streaming : {false, true}) {
    Request search = MakeRequest(expected_[0].prompt, 12);
    search.streaming = streaming;
    search.sampling = {.beam_width = 3, .length_penalty = 1.0F};
    search.output = {.return_log_probs = true,
                     .num_top_log_probs = kCount,
                     .return_context_logits = true,
                     .return_generation_logits = true};
    search.end_ids = {expected_[0].greedy[6]};  // one beam ends early
    const auto answer = Run(search);
    const size_t prompt_len = search.input_ids.size();
    EXPECT_EQ(answer->context.size(), prompt_len * vocab_size_);
    ASSERT_EQ(answer->last.beams.size(), 3U);
    for (const Beam& beam : answer->last.beams) {
      const size_t num_tokens = beam.output_ids.size();
      ASSERT_EQ(beam.generation_logits.num_rows, static_cast<int>(num_tokens));
      ASSERT_EQ(beam.generation_logits.values.size(), num_tokens * vocab_size_);
      ASSERT_EQ(beam.top_log_probs.size(), num_tokens * kCount);
      Request forced = MakeRequest(search.input_ids, 1);
      forced.input_ids.insert(forced.input_ids.end(), beam.output_ids.begin(),
                              beam.output_ids.end());
      forced.output.return_context_logits = true;
      const auto oracle = Run(forced);
      for (size_t i = 0; i < num_tokens; ++i) {
        const auto row =
            std::span(beam.generation_logits.values).subspan(i * vocab_size_, vocab_size_);
        const auto same =
            std::span(oracle->context).subspan((prompt_len - 1 + i) * vocab_size_, vocab_size_);
        for (size_t v = 0; v < vocab_size_; ++v) {
          ASSERT_NEAR(row[v], same[v], kTolerance) << "token " << i << ", id " << v;
        }
        EXPECT_NEAR(LogProb(row, beam.output_ids[i]), beam.output_log_probs[i], 1e-4);
        ExpectTopOf(row, std::span(beam.top_log_probs).subspan(i * kCount, kCount));
      }
    }
  }
}

TEST_P(LogitsTest, OfPausedRequestsAreTheSame) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(MakeRequest(expected_[0].Whole(), 60));
    requests.back().input_ids.resize(40 + static_cast<size_t>(i));
    requests.back().output = {.return_context_logits = true, .return_generation_logits = true};
  }
  const auto expected = Run(requests);
  Start({.max_kv_tokens = 160, .scheduler_policy = SchedulerPolicy::kMaxUtilization});
  const auto paused = Run(requests);
  EXPECT_GT(executor_->stats().num_pauses, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(paused[i]->ids, expected[i]->ids) << "request " << i;
    EXPECT_EQ(paused[i]->context, expected[i]->context) << "request " << i;
    // Rows of tokens that were computed again in a prompt: other sums, rounded otherwise.
    ASSERT_EQ(paused[i]->generation.size(), expected[i]->generation.size());
    for (size_t k = 0; k < expected[i]->generation.size(); ++k) {
      ASSERT_NEAR(paused[i]->generation[k], expected[i]->generation[k], 1e-3F) << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LogitsTest, testing::Values("llama_gqa2", "gpt2_tied"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace inflight::golden
