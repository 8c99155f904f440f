// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/parameter_values.h"

namespace inflight::contract {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Map = std::map<std::string, std::string>;

TEST(LlmParameters, UnfilledOnesTakeDefaults) {
  const auto parsed = ParseLlmParameters({{"gpt_model_type", "${batching_strategy}"},
                                          {"gpt_model_path", "${engine_dir}"},
                                          {"max_beam_width", "${max_beam_width}"},
                                          {"enable_kv_cache_reuse", ""},
                                          {"kv_cache_free_gpu_mem_fraction", "${x}"}},
                                         {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_TRUE(parsed->engine_dir.empty());
  EXPECT_FALSE(parsed->exclude_input_in_output);
  EXPECT_TRUE(parsed->normalize_log_probs);
  EXPECT_TRUE(parsed->executor.enable_prefix_reuse);
  EXPECT_EQ(parsed->executor.kv_cache_free_memory_fraction, 0.9);
  EXPECT_THAT(parsed->warnings, IsEmpty());
}

TEST(LlmParameters, FilledOnesReachTheExecutor) {
  const auto parsed = ParseLlmParameters({{"gpt_model_type", "inflight_fused_batching"},
                                          {"gpt_model_path", "/engines/a"},
                                          {"max_tokens_in_paged_kv_cache", "2560"},
                                          {"batch_scheduler_policy", "guaranteed_no_evict"},
                                          {"kv_cache_free_gpu_mem_fraction", "0.25"},
                                          {"max_num_sequences", "12"},
                                          {"enable_kv_cache_reuse", "False"},
                                          {"enable_chunked_context", "0"},
                                          {"exclude_input_in_output", "True"},
                                          {"normalize_log_probs", "false"}},
                                         {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->engine_dir, "/engines/a");
  EXPECT_EQ(parsed->executor.max_kv_tokens, 2560);
  EXPECT_EQ(parsed->executor.kv_cache_free_memory_fraction, 0.25);
  EXPECT_EQ(parsed->executor.max_batch_size, 12);
  EXPECT_FALSE(parsed->executor.enable_prefix_reuse);
  EXPECT_FALSE(parsed->executor.enable_chunked_prefill);
  EXPECT_TRUE(parsed->exclude_input_in_output);
  EXPECT_FALSE(parsed->normalize_log_probs);
}

TEST(LlmParameters, WhatIsNotBuiltIsRefusedByName) {
  const std::vector<Map> refused = {{{"gpt_model_type", "V1"}},
                                    {{"batch_scheduler_policy", "max_utilization"}},
                                    {{"decoding_mode", "medusa"}},
                                    {{"max_attention_window_size", "64"}},
                                    {{"sink_token_length", "4"}},
                                    {{"kv_cache_host_memory_bytes", "1000"}},
                                    {{"gpu_weights_percent", "0.5"}},
                                    {{"encoder_model_path", "/enc"}},
                                    {{"guided_decoding_backend", "xgrammar"}}};
  for (const Map& parameters : refused) {
    const auto parsed = ParseLlmParameters(parameters, {});
    EXPECT_EQ(parsed.status().code(), StatusCode::kUnimplemented) << parameters.begin()->first;
    EXPECT_THAT(parsed.status().message(), HasSubstr(parameters.begin()->first));
    EXPECT_THAT(parsed.status().message(), HasSubstr(parameters.begin()->second));
  }
}

TEST(LlmParameters, InvalidOnesAreErrors) {
  EXPECT_THAT(ParseLlmParameters({{"gpt_model_type", "fast"}}, {}).status().message(),
              HasSubstr("Invalid gpt_model_type"));
  EXPECT_FALSE(ParseLlmParameters({{"kv_cache_free_gpu_mem_fraction", "1.5"}}, {}).ok());
  EXPECT_FALSE(ParseLlmParameters({{"max_tokens_in_paged_kv_cache", "-3"}}, {}).ok());
}

TEST(LlmParameters, UnknownAndPowerlessOnesWarn) {
  const auto parsed = ParseLlmParameters({{"max_beam_width", "4"},
                                          {"enable_trt_overlap", "True"},
                                          {"batch_scheduler_policy", "best"},
                                          {"no_such_key", "1"}},
                                         {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->warnings.size(), 4U);
}

TEST(ParameterValues, BooleansFollowTheirPlace) {
  EXPECT_EQ(StrictBool("TRUE"), true);
  EXPECT_EQ(StrictBool("0"), false);
  EXPECT_EQ(StrictBool("yes"), std::nullopt);
  EXPECT_EQ(StrictBool("tRUE"), std::nullopt);
  EXPECT_EQ(TokenizerBool("Yes"), true);
  EXPECT_EQ(TokenizerBool("F"), false);
  EXPECT_EQ(TokenizerBool("on"), std::nullopt);
}

TEST(ParameterValues, NumbersAreReadFromTheFront) {
  EXPECT_EQ(LeadingInt(" 42abc"), 42);
  EXPECT_EQ(LeadingInt("abc"), std::nullopt);
  EXPECT_EQ(LeadingInt("99999999999999999999"), std::nullopt);
  EXPECT_EQ(LeadingDouble("0.5f"), 0.5);
  EXPECT_EQ(LeadingDouble("nan"), std::nullopt);
  EXPECT_TRUE(IsUnfilled("  "));
  EXPECT_TRUE(IsUnfilled("/a/${b}"));
  EXPECT_FALSE(IsUnfilled("0"));
}

}  // namespace
}  // namespace inflight::contract
