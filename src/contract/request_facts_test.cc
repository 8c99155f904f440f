// SPDX-License-Identifier: Apache-2.0
#include "contract/request_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "contract/tensor_values.h"

namespace inflight::contract {
namespace {

using ::testing::ElementsAre;

// A prompt of 40 tokens, 32 of them reused; blocks of 16 tokens.
RequestFacts Facts(FactsAsked asked) {
  return {.asked = asked, .num_input_tokens = 40, .block_size = 16};
}
Response Last() {
  return {
      .is_final = true,
      .output_ids = {1, 2, 3},
      .num_cached_tokens = 32,
      .times = {
          .enqueued_ns = 10, .first_scheduled_ns = 20, .first_token_ns = 30, .last_token_ns = 40}};
}

int32_t Count(std::string_view fact, FactsAsked asked) {
  const auto tensor = Fact(fact, "other name", Facts(asked), Last());
  if (!tensor) return -1;
  EXPECT_EQ(tensor->name, "other name");
  EXPECT_THAT(tensor->shape, ElementsAre(1, 1));
  return *ReadInt32(*tensor);
}

int64_t TimeNs(std::string_view fact) {
  const auto tensor = Fact(fact, "t", Facts({.perf_metrics = true}), Last());
  EXPECT_EQ(tensor->datatype, DataType::kInt64);
  int64_t value = 0;
  std::memcpy(&value, tensor->data.data(), sizeof(value));
  return value;
}

TEST(RequestFacts, NothingIsSentUnasked) {
  for (const char* fact : {"num_input_tokens", "num_output_tokens", "kv_cache_reused_blocks",
                           "arrival_time_ns", "acceptance_rate"}) {
    EXPECT_TRUE(IsFact(fact));
    EXPECT_FALSE(Fact(fact, fact, Facts({}), Last())) << fact;
  }
  EXPECT_FALSE(IsFact("output_ids"));
}

TEST(RequestFacts, TokensAreThoseOfThePromptAndOfTheResponse) {
  EXPECT_EQ(Count("num_input_tokens", {.num_input_tokens = true}), 40);
  EXPECT_EQ(Count("num_output_tokens", {.num_output_tokens = true}), 3);
  EXPECT_EQ(Count("num_cached_tokens", {.num_cached_tokens = true}), 32);
}

// 40 tokens of prompt lie in 3 blocks of 16, of which 2 were there.
TEST(RequestFacts, BlocksAreThoseOfThePrompt) {
  const FactsAsked asked = {.kv_cache_reuse_stats = true};
  EXPECT_EQ(Count("kv_cache_alloc_total_blocks", asked), 1);
  EXPECT_EQ(Count("kv_cache_reused_blocks", asked), 2);
  EXPECT_EQ(Count("kv_cache_alloc_new_blocks", asked), 1);
}

// What ci/L0_backend_trtllm/test.sh of NVIDIA's back-end expects: 114 tokens in blocks of 64, sent
// twice.
TEST(RequestFacts, BlocksAreCountedAsByUpstreamsOwnTests) {
  RequestFacts facts = {
      .asked = {.kv_cache_reuse_stats = true}, .num_input_tokens = 114, .block_size = 64};
  Response response = Last();
  const auto count = [&](std::string_view fact) {
    return *ReadInt32(*Fact(fact, "n", facts, response));
  };
  response.num_cached_tokens = 0;
  EXPECT_EQ(count("kv_cache_alloc_new_blocks"), 2);
  EXPECT_EQ(count("kv_cache_alloc_total_blocks"), 2);
  EXPECT_EQ(count("kv_cache_reused_blocks"), 0);
  response.num_cached_tokens = 64;
  EXPECT_EQ(count("kv_cache_alloc_new_blocks"), 1);
  EXPECT_EQ(count("kv_cache_alloc_total_blocks"), 1);
  EXPECT_EQ(count("kv_cache_reused_blocks"), 1);
}

TEST(RequestFacts, TimesAreTheRequests) {
  EXPECT_EQ(TimeNs("arrival_time_ns"), 10);
  EXPECT_EQ(TimeNs("first_scheduled_time_ns"), 20);
  EXPECT_EQ(TimeNs("first_token_time_ns"), 30);
  EXPECT_EQ(TimeNs("last_token_time_ns"), 40);
  EXPECT_EQ(Count("total_draft_tokens", {.perf_metrics = true}), 0);
  EXPECT_EQ(*ReadFloat(*Fact("acceptance_rate", "a", Facts({.perf_metrics = true}), Last())), 0);
}

TEST(RequestFacts, ReasonsComeWithTheEndOfEachSequence) {
  RequestFacts facts = Facts({.finish_reason = true});
  const FinishReason of_beams[] = {FinishReason::kEndId, FinishReason::kLength};
  facts.finish_reasons = of_beams;
  Response response = Last();
  response.is_sequence_final = true;
  response.is_final = false;
  const auto reasons = Fact("finish_reason", "why", facts, response);
  ASSERT_TRUE(reasons);
  EXPECT_EQ(reasons->name, "why");
  EXPECT_THAT(reasons->shape, ElementsAre(1, 2));
  EXPECT_THAT(*reasons->Strings(), ElementsAre("end_id", "length"));
  facts.finish_reasons = {};
  response.finish_reason = FinishReason::kStopWords;
  EXPECT_THAT(*Fact("finish_reason", "why", facts, response)->Strings(), ElementsAre("stop_words"));
  response.beams = {{.finish_reason = FinishReason::kLength},
                    {.finish_reason = FinishReason::kEndId}};
  EXPECT_THAT(*Fact("finish_reason", "why", facts, response)->Strings(),
              ElementsAre("length", "end_id"));
  response.is_sequence_final = false;
  EXPECT_FALSE(Fact("finish_reason", "why", facts, response));
  response.is_sequence_final = true;
  facts.asked.finish_reason = false;
  EXPECT_FALSE(Fact("finish_reason", "why", facts, response));
}

TEST(RequestFacts, EachResponseHasWhatIsKnown) {
  Response response = Last();
  response.is_final = false;
  const RequestFacts facts =
      Facts({.num_input_tokens = true, .kv_cache_reuse_stats = true, .perf_metrics = true});
  for (const char* fact : {"num_input_tokens", "kv_cache_alloc_new_blocks", "first_token_time_ns",
                           "last_token_time_ns", "acceptance_rate"}) {
    EXPECT_TRUE(Fact(fact, "n", facts, response)) << fact;
  }
}

}  // namespace
}  // namespace inflight::contract
