// SPDX-License-Identifier: Apache-2.0
#include "executor/validation.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "decoding/list_guide.h"
#include "inflight/prompt_table.h"

namespace inflight::executor {
namespace {

constexpr ExecutorLimits kLimits{.vocab_size = 100,
                                 .max_batch_size = 4,
                                 .max_num_tokens = 64,
                                 .max_seq_len = 32,
                                 .max_input_len = 20,
                                 .max_beam_width = 4};

Request Good() {
  Request request;
  request.input_ids = {1, 2, 3};
  request.max_tokens = 5;
  return request;
}

// The message; empty when the request is valid.
std::string Message(Request request) {
  bool was_shortened = false;
  const Status status = ValidateRequest(kLimits, &request, &was_shortened);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  }
  return status.message();
}

TEST(ValidationTest, AcceptsAnOrdinaryRequest) { EXPECT_EQ(Message(Good()), ""); }

TEST(ValidationTest, PromptTooLongHasTheWellKnownText) {
  Request request = Good();
  request.input_ids.assign(21, 1);
  EXPECT_EQ(Message(request).find("Prompt length (21) exceeds maximum input length (20)."), 0u);
  request.input_ids.assign(20, 1);
  EXPECT_EQ(Message(request), "");
}

TEST(ValidationTest, PromptThatTheKvCacheCannotHoldIsToldSo) {
  ExecutorLimits limits = kLimits;
  limits.block_size = 16;
  limits.num_blocks = 2;  // 32 tokens, all of max_seq_len
  Request request = Good();
  request.input_ids.assign(21, 1);
  bool was_shortened = false;
  EXPECT_EQ(ValidateRequest(limits, &request, &was_shortened).message(),
            "Prompt length (21) exceeds maximum input length (20). The KV cache holds 32 tokens: "
            "shorten input_ids, or load the model with more KV cache memory");
}

TEST(ValidationTest, PromptTablesHaveTheEnginesShape) {
  ExecutorLimits limits = kLimits;
  limits.hidden_size = 2;
  limits.max_prompt_embedding_table_size = 3;
  const auto message = [&](int num_rows, int hidden_size, std::vector<float> values,
                           std::vector<TokenId> ids) {
    Request request = Good();
    request.input_ids = std::move(ids);
    request.prompt_table = std::make_shared<PromptTable>(
        PromptTable{.num_rows = num_rows, .hidden_size = hidden_size, .values = std::move(values)});
    bool was_shortened = false;
    const Status status = ValidateRequest(limits, &request, &was_shortened);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    }
    return status.message();
  };
  EXPECT_EQ(message(2, 2, {1, 2, 3, 4}, {1, 100, 101, 99}), "");
  EXPECT_EQ(message(2, 2, {1, 2, 3, 4}, {1, 102}),
            "input_ids[1]: got 102, must be in [0, 102): the vocabulary has 100 ids, "
            "prompt_embedding_table 2 rows");
  EXPECT_EQ(message(2, 2, {1, 2, 3}, {1}), "prompt_embedding_table: got 3 values for 2 rows of 2");
  EXPECT_EQ(message(1, 4, {1, 2, 3, 4}, {1}),
            "prompt_embedding_table: got rows of 4 values, the model's have 2");
  EXPECT_EQ(message(4, 2, std::vector<float>(8), {1}),
            "prompt_embedding_table: got 4 rows, must be 1 to 3 (the engine's "
            "max_prompt_embedding_table_size)");
  EXPECT_EQ(message(0, 2, {}, {1}).substr(0, 34), "prompt_embedding_table: got 0 rows");
  EXPECT_EQ(message(2, 2, {1, 2, 3, std::numeric_limits<float>::quiet_NaN()}, {1}),
            "prompt_embedding_table: got nan at row 1, place 1; must be finite");
}

TEST(ValidationTest, GuidesAreOfTheEnginesVocabulary) {
  ExecutorLimits limits = kLimits;
  limits.max_draft_len = 4;
  const auto check = [&](Request request) {
    bool was_shortened = false;
    return ValidateRequest(limits, &request, &was_shortened);
  };
  Request request = Good();
  request.guide = decoding::MakeListGuide(100, {{3}});
  EXPECT_TRUE(check(request).ok());
  request.sampling.beam_width = 2;
  EXPECT_EQ(check(request).field(), "guide");
  request.end_ids = {5};
  EXPECT_TRUE(check(request).ok());
  request.sampling.beam_width = 1;
  request.draft_ids = {3};
  EXPECT_TRUE(check(request).ok());
  request.draft_ids.clear();
  request.guide = decoding::MakeListGuide(101, {{3}});
  EXPECT_EQ(check(request).message(),
            "guide: is for a vocabulary of 101 tokens, the engine's has 100 (make it of the texts "
            "of the engine's tokens)");
}

TEST(ValidationTest, PromptNeedsTokensOfTheVocabulary) {
  Request request = Good();
  request.input_ids.clear();
  EXPECT_EQ(Message(request), "input_ids: got no tokens, the prompt needs at least one");
  request.input_ids = {1, 100};
  EXPECT_EQ(Message(request), "input_ids[1]: got 100, the engine's vocabulary is [0, 100)");
  request.input_ids = {-1};
  EXPECT_EQ(Message(request), "input_ids[0]: got -1, the engine's vocabulary is [0, 100)");
}

TEST(ValidationTest, MaxTokensIsPositiveAndShortenedToTheRoomLeft) {
  Request request = Good();
  request.max_tokens = 0;
  EXPECT_EQ(Message(request), "max_tokens: got 0, must be greater than 0");
  request.max_tokens = std::numeric_limits<int>::max();
  bool was_shortened = false;
  EXPECT_TRUE(ValidateRequest(kLimits, &request, &was_shortened).ok());
  EXPECT_TRUE(was_shortened);
  EXPECT_EQ(request.max_tokens, 29);
  EXPECT_TRUE(ValidateRequest(kLimits, &request, &was_shortened).ok());
  EXPECT_FALSE(was_shortened);
}

TEST(ValidationTest, EndIdsAreInRangeAndMinusOneMeansNone) {
  Request request = Good();
  request.end_ids = {100};
  EXPECT_EQ(Message(request), "EndId (100) is not within acceptable range [-1, 100).");
  request.end_ids = {-2};
  EXPECT_EQ(Message(request), "EndId (-2) is not within acceptable range [-1, 100).");
  request.end_ids = {-1, 7};
  bool was_shortened = false;
  EXPECT_TRUE(ValidateRequest(kLimits, &request, &was_shortened).ok());
  EXPECT_EQ(request.end_ids, std::vector<TokenId>{7});
}

TEST(ValidationTest, StopWordsAreNonEmptyInRangeAndBounded) {
  Request request = Good();
  request.stop_words = {{1}, {}};
  EXPECT_EQ(Message(request), "stop_words[1]: got an empty word, a word needs at least one id");
  request.stop_words = {{1, 200}};
  EXPECT_EQ(Message(request), "stop_words[0]: got id 200, the engine's vocabulary is [0, 100)");
  request.stop_words.assign(2000, {1});
  EXPECT_EQ(Message(request), "stop_words: got 2000 words, at most 1024 are allowed");
  request.stop_words = {std::vector<TokenId>(20'000, 1)};
  EXPECT_EQ(Message(request), "stop_words: got 20000 ids in all, at most 16384 are allowed");
}

TEST(ValidationTest, BadWordsAreNonEmptyInRangeAndBounded) {
  Request request = Good();
  request.bad_words = {{0}, {1, 99}};
  EXPECT_EQ(Message(request), "");
  request.bad_words = {{}};
  EXPECT_EQ(Message(request), "bad_words[0]: got an empty word, a word needs at least one id");
  request.bad_words = {{1}, {2, -1}};
  EXPECT_EQ(Message(request), "bad_words[1]: got id -1, the engine's vocabulary is [0, 100)");
  request.bad_words.assign(1025, {1});
  EXPECT_EQ(Message(request), "bad_words: got 1025 words, at most 1024 are allowed");
  request.bad_words = {std::vector<TokenId>(16'385, 1)};
  EXPECT_EQ(Message(request), "bad_words: got 16385 ids in all, at most 16384 are allowed");
}

TEST(ValidationTest, EmbeddingBiasHasAValueForEachTokenOfTheVocabulary) {
  const auto message = [](std::vector<float> bias) {
    Request request = Good();
    request.embedding_bias = std::make_shared<std::vector<float>>(std::move(bias));
    return Message(request);
  };
  std::vector<float> bias(100);
  EXPECT_EQ(message(bias), "");
  bias[7] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(message(bias), "");
  bias[8] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(message(bias), "embedding_bias[8]: got nan, must be finite, or -inf to ban the token");
  bias[6] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message(bias), "embedding_bias[6]: got inf, must be finite, or -inf to ban the token");
  EXPECT_EQ(message(std::vector<float>(99)),
            "embedding_bias: got 99 values, the engine's vocabulary has 100");
  EXPECT_EQ(message({}), "embedding_bias: got 0 values, the engine's vocabulary has 100");
}

TEST(ValidationTest, LikeliestTokensLogProbsAreBoundedAndNeedADeviceThatHasThem) {
  ExecutorLimits limits = kLimits;
  limits.returns_logits = true;
  const auto message = [&limits](int count) {
    Request request = Good();
    request.output.num_top_log_probs = count;
    bool was_shortened = false;
    return ValidateRequest(limits, &request, &was_shortened).message();
  };
  EXPECT_EQ(message(100), "");
  EXPECT_EQ(message(101), "num_top_log_probs: got 101, must be in [0, 100]") << "the vocabulary";
  EXPECT_EQ(message(-1), "num_top_log_probs: got -1, must be in [0, 100]");
  limits.vocab_size = 32000;
  EXPECT_EQ(message(257), "num_top_log_probs: got 257, must be in [0, 256]");
  limits.returns_logits = false;
  EXPECT_EQ(message(0), "");
  EXPECT_EQ(message(1), "num_top_log_probs: this device does not return them; use --device cpu");
}

TEST(ValidationTest, SamplingValuesAreNamedWhenOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  struct Case {
    std::function<void(SamplingParams&)> spoil;
    const char* field;
  };
  const std::vector<Case> cases = {
      {[&](auto& s) { s.temperature = nan; }, "temperature: got nan"},
      {[&](auto& s) { s.temperature = -0.5F; }, "temperature: got -0.5"},
      {[&](auto& s) { s.temperature = infinity; }, "temperature: got inf"},
      {[&](auto& s) { s.top_k = -1; }, "top_k: got -1"},
      {[&](auto& s) { s.top_p = 1.5F; }, "top_p: got 1.5"},
      {[&](auto& s) { s.top_p = nan; }, "top_p: got nan"},
      {[&](auto& s) { s.min_p = -0.25F; }, "min_p: got -0.25"},
      {[&](auto& s) { s.repetition_penalty = 0.0F; }, "repetition_penalty: got 0"},
      {[&](auto& s) { s.repetition_penalty = nan; }, "repetition_penalty: got nan"},
      {[&](auto& s) { s.presence_penalty = infinity; }, "presence_penalty: got inf"},
      {[&](auto& s) { s.frequency_penalty = nan; }, "frequency_penalty: got nan"},
      {[&](auto& s) { s.top_p_decay = 0.0F; }, "top_p_decay: got 0, must be in (0, 1]"},
      {[&](auto& s) { s.top_p_decay = 1.25F; }, "top_p_decay: got 1.25"},
      {[&](auto& s) { s.top_p_decay = nan; }, "top_p_decay: got nan"},
      {[&](auto& s) { s.top_p_min = 0.0F; }, "top_p_min: got 0, must be in (0, 1]"},
      {[&](auto& s) { s.top_p_min = nan; }, "top_p_min: got nan"},
      {[&](auto& s) { s.top_p_reset_id = 100; }, "top_p_reset_id: got 100, must be in [-1, 100)"},
      {[&](auto& s) { s.top_p_reset_id = -2; }, "top_p_reset_id: got -2"},
      {[&](auto& s) { s.prompt_ignore_length = -1; }, "prompt_ignore_length: got -1"},
      {[&](auto& s) { s.min_tokens = -1; }, "min_tokens: got -1, must be at least 0"},
      {[&](auto& s) { s.no_repeat_ngram_size = -3; }, "no_repeat_ngram_size: got -3"},
      {[&](auto& s) { s.no_repeat_ngram_size = 1025; },
       "no_repeat_ngram_size: got 1025, must be in [0, 1024]"},
      {[&](auto& s) { s.beam_width = 0; }, "beam_width: got 0"},
      {[&](auto& s) { s.length_penalty = nan; }, "length_penalty: got nan"},
      {[&](auto& s) { s.beam_search_diversity_rate = -1; }, "beam_search_diversity_rate: got -1"},
      {[&](auto& s) { s.beam_search_diversity_rate = nan; }, "beam_search_diversity_rate: got nan"},
      {[&](auto& s) { s = {.beam_width = 2, .num_return_sequences = 3}; },
       "num_return_sequences: got 3, must be at most beam_width, which is 2"},
      {[&](auto& s) { s = {.beam_width = 2, .top_k = 2}; }, "top_k: got 2 with beam_width 2"},
      {[&](auto& s) { s = {.beam_width = 2, .top_p = 0.5F}; }, "top_p: got 0.5 with beam_width 2"},
      {[&](auto& s) { s = {.beam_width = 2, .min_p = 0.5F}; }, "min_p: got 0.5 with beam_width 2"},
      {[&](auto& s) { s.num_return_sequences = 0; }, "num_return_sequences: got 0"},
      {[&](auto& s) { s.num_return_sequences = 1025; }, "num_return_sequences: got 1025"},
  };
  for (const Case& c : cases) {
    Request request = Good();
    c.spoil(request.sampling);
    EXPECT_EQ(Message(request).find(std::string("Incorrect sampling config: ") + c.field), 0u)
        << Message(request);
  }
}

TEST(ValidationTest, BoundsOfSamplingValuesAreAllowed) {
  Request request = Good();
  request.sampling = {.temperature = 0.0F, .top_k = 0, .top_p = 0.0F, .min_p = 1.0F};
  EXPECT_EQ(Message(request), "");
  request.sampling = {.top_k = 100'000, .top_p = 1.0F, .presence_penalty = -2.0F};
  EXPECT_EQ(Message(request), "");
  request.sampling = {.top_p_decay = 1.0F, .top_p_min = 1.0F, .top_p_reset_id = 99};
  EXPECT_EQ(Message(request), "");
  request.sampling.min_tokens = std::numeric_limits<int>::max();
  EXPECT_EQ(Message(request), "");
  request.sampling = {.num_return_sequences = 1024};
  EXPECT_EQ(Message(request), "");
  request.sampling = {.beam_width = 4,
                      .num_return_sequences = 4,
                      .length_penalty = -1.0F,
                      .top_k = 1,
                      .top_p = 1.0F};  // what clients send always
  EXPECT_EQ(Message(request), "");
}

TEST(ValidationTest, BeamsHaveBoundsAndAreNotDrawn) {
  Request request = Good();
  request.sampling.beam_width = 5;
  EXPECT_EQ(
      Message(request).find("Requested beam width 5 is larger than configured max beam width 4"),
      0u);
}

TEST(ValidationTest, BeamsMustFitTheCacheAtFullLength) {
  ExecutorLimits limits = kLimits;
  limits.block_size = 4;
  limits.num_blocks = 16;
  Request request = Good();
  request.input_ids.assign(9, 1);  // 2 full blocks, which 3 beams share
  request.sampling.beam_width = 3;
  request.max_tokens = 12;  // 20 tokens with K and V: 5 blocks, 3 of each beam's own; and 3 spares
  bool was_shortened = false;
  EXPECT_TRUE(ValidateRequest(limits, &request, &was_shortened).ok());  // 14
  request.max_tokens = 13;
  EXPECT_EQ(ValidateRequest(limits, &request, &was_shortened).message(),
            "beam_width: 3 beams of 9 prompt and 13 new tokens need 17 KV blocks of 4 tokens, the "
            "cache has 16 (lower max_tokens or beam_width, or load the model with more KV cache "
            "memory)");
}

TEST(ValidationTest, LogitsNeedADeviceThatReturnsThemAndRoomInAResponse) {
  const auto check = [](bool returns_logits, int vocab_size, const Request& request) {
    ExecutorLimits limits = kLimits;
    limits.returns_logits = returns_logits;
    limits.vocab_size = vocab_size;
    Request copy = request;
    bool was_shortened = false;
    return ValidateRequest(limits, &copy, &was_shortened);
  };
  Request context = Good();
  context.output.return_context_logits = true;
  Request generation = Good();
  generation.output.return_generation_logits = true;
  EXPECT_TRUE(check(true, 100, context).ok());
  EXPECT_TRUE(check(true, 100, generation).ok());
  const Status refused = check(false, 100, context);
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(refused.message(),
            "return_context_logits: this device does not return logits; use --device cpu");
  EXPECT_EQ(check(false, 100, generation).message(),
            "return_generation_logits: this device does not return logits; use --device cpu");
  // 3 and 5 tokens of 10^8 floats.
  EXPECT_EQ(check(true, 100'000'000, context).message(),
            "return_context_logits: logits of 3 tokens are 1200000000 bytes, a response holds at "
            "most 1073741824 (shorten input_ids)");
  EXPECT_EQ(check(true, 100'000'000, generation).message(),
            "return_generation_logits: logits of 5 tokens are 2000000000 bytes, a response holds "
            "at most 1073741824 (lower max_tokens, or stream)");
  // Both go into one response: 8 tokens, where each kind alone would fit.
  Request both = context;
  both.output.return_generation_logits = true;
  EXPECT_TRUE(check(true, 50'000'000, context).ok());
  EXPECT_TRUE(check(true, 50'000'000, generation).ok());
  EXPECT_EQ(check(true, 50'000'000, both).message(),
            "return_context_logits and return_generation_logits: logits of 8 tokens are 1600000000 "
            "bytes, a response holds at most 1073741824 (shorten input_ids, or lower max_tokens, "
            "or stream)");
  both.streaming = true;
  EXPECT_TRUE(check(true, 50'000'000, both).ok());
  generation.streaming = true;
  EXPECT_TRUE(check(true, 100'000'000, generation).ok());
  // The beams of a search are answered whole, also in a stream.
  generation.sampling.beam_width = 2;
  generation.max_tokens = 2;
  EXPECT_EQ(check(true, 100'000'000, generation).message(),
            "return_generation_logits: logits of 4 tokens are 1600000000 bytes, a response holds "
            "at most 1073741824 (lower max_tokens or beam_width)");
  EXPECT_TRUE(check(true, 100, generation).ok());
}

TEST(ValidationTest, PriorityAndDeadlineHaveBounds) {
  Request request = Good();
  request.priority = 1.5F;
  EXPECT_EQ(Message(request), "priority: got 1.5, must be in [0, 1]");
  request.priority = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Message(request), "priority: got nan, must be in [0, 1]");
  request = Good();
  request.share = 0;
  EXPECT_EQ(Message(request), "share: got 0, must be in [0.01, 100]");
  request = Good();
  request.timeout_ms = 0;
  EXPECT_EQ(Message(request).find("timeout_ms: got 0, must be greater than 0"), 0u);
  request.timeout_ms.reset();
  request.queue_timeout_us = -1;
  EXPECT_EQ(Message(request).find("queue_timeout_us: got -1, must be greater than 0"), 0u);
}

}  // namespace
}  // namespace inflight::executor
