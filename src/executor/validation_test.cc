// SPDX-License-Identifier: Apache-2.0
#include "executor/validation.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace inflight::executor {
namespace {

constexpr ExecutorLimits kLimits{.vocab_size = 100,
                                 .max_batch_size = 4,
                                 .max_num_tokens = 64,
                                 .max_seq_len = 32,
                                 .max_input_len = 20,
                                 .max_beam_width = 1};

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
      {[&](auto& s) { s.beam_width = 0; }, "beam_width: got 0"},
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
}

TEST(ValidationTest, WhatLaterVersionsBringIsRefusedByName) {
  Request request = Good();
  request.sampling.beam_width = 2;
  EXPECT_EQ(
      Message(request).find("Requested beam width 2 is larger than configured max beam width 1"),
      0u);
  request = Good();
  request.sampling.num_return_sequences = 2;
  EXPECT_EQ(Message(request).find("num_return_sequences: got 2"), 0u);
}

TEST(ValidationTest, PriorityAndDeadlineHaveBounds) {
  Request request = Good();
  request.priority = 1.5F;
  EXPECT_EQ(Message(request), "priority: got 1.5, must be in [0, 1]");
  request.priority = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Message(request), "priority: got nan, must be in [0, 1]");
  request = Good();
  request.timeout_ms = 0;
  EXPECT_EQ(Message(request).find("timeout_ms: got 0, must be greater than 0"), 0u);
  request.timeout_ms.reset();
  request.queue_timeout_us = -1;
  EXPECT_EQ(Message(request).find("queue_timeout_us: got -1, must be greater than 0"), 0u);
}

}  // namespace
}  // namespace inflight::executor
