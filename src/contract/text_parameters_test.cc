// SPDX-License-Identifier: Apache-2.0
#include "contract/text_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::contract {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(TextParameters, UnsetOnesTakeTheReleasesDefault) {
  for (const bool since_0_11 : {false, true}) {
    KeyReport report;
    const auto parsed = ParsePreprocessingParameters(
        {{"tokenizer_dir", "${tokenizer_dir}"}, {"add_special_tokens", "maybe"}}, since_0_11,
        &report);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->special_tokens, since_0_11);
    EXPECT_TRUE(parsed->tokenizer_dir.empty());
    ASSERT_THAT(report, SizeIs(2));
    EXPECT_EQ(report[0].effect, KeyEffect::kIgnored);
    EXPECT_EQ(report[1].source, KeySource::kDefault);
  }
}

TEST(TextParameters, FilledOnesAreHonoured) {
  const auto pre = ParsePreprocessingParameters(
      {{"tokenizer_dir", "/tok"}, {"tokenizer_type", "llama"}, {"add_special_tokens", "yes"}},
      /*default_add_special_tokens=*/false);
  ASSERT_TRUE(pre.ok());
  EXPECT_EQ(pre->tokenizer_dir, "/tok");
  EXPECT_TRUE(pre->special_tokens);
  const auto post = ParsePostprocessingParameters({{"skip_special_tokens", "False"}});
  ASSERT_TRUE(post.ok());
  EXPECT_FALSE(post->special_tokens);
}

TEST(TextParameters, PicturesAreRefusedByName) {
  for (const char* key : {"visual_model_path", "multimodal_model_path"}) {
    const auto parsed = ParsePreprocessingParameters({{key, "/engines/vision"}}, true);
    EXPECT_EQ(parsed.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(parsed.status().message(), HasSubstr(key));
  }
}

TEST(BlsParameters, NamesDefaultToUpstreams) {
  const auto parsed =
      ParseBlsParameters({{"tensorrt_llm_model_name", "${tensorrt_llm_model_name}"},
                          {"tensorrt_llm_draft_model_name", "${tensorrt_llm_draft_model_name}"},
                          {"accumulate_tokens", "${accumulate_tokens}"}});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->preprocessing, "preprocessing");
  EXPECT_EQ(parsed->llm, "tensorrt_llm");
  EXPECT_EQ(parsed->postprocessing, "postprocessing");
  EXPECT_EQ(parsed->draft_llm, "");
  EXPECT_EQ(ParseBlsParameters({{"tensorrt_llm_draft_model_name", "draft"}})->draft_llm, "draft");
}

TEST(BlsParameters, NamesAreHonoured) {
  const auto parsed = ParseBlsParameters({{"tensorrt_llm_model_name", "small"},
                                          {"preprocessing_model_name", "pre2"},
                                          {"postprocessing_model_name", "post2"},
                                          {"accumulate_tokens", "False"}});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->llm, "small");
  EXPECT_EQ(parsed->preprocessing, "pre2");
  EXPECT_EQ(parsed->postprocessing, "post2");
}

// Spellings of docs/reference/repositories.md, "How values are read".
TEST(BlsParameters, AccumulateTokensHasItsOwnSpellings) {
  for (const char* yes : {"true", "Yes", "1", "T"}) {
    EXPECT_TRUE(ParseBlsParameters({{"accumulate_tokens", yes}})->accumulate_tokens) << yes;
  }
  for (const char* no : {"false", "No", "0", "${accumulate_tokens}", ""}) {
    const auto parsed = ParseBlsParameters({{"accumulate_tokens", no}});
    EXPECT_FALSE(parsed->accumulate_tokens) << no;
    EXPECT_TRUE(parsed->warnings.empty()) << no;
  }
  const auto unknown = ParseBlsParameters({{"accumulate_tokens", "on"}});
  EXPECT_FALSE(unknown->accumulate_tokens);
  EXPECT_EQ(unknown->warnings.size(), 1U);
}

TEST(BlsParameters, WhatIsNotSupportedIsRefusedByName) {
  const std::vector<ParameterMap> refused = {{{"multimodal_encoders_name", "vision"}}};
  for (const ParameterMap& parameters : refused) {
    const auto parsed = ParseBlsParameters(parameters);
    EXPECT_EQ(parsed.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(parsed.status().message(), HasSubstr(parameters.begin()->first));
  }
}

}  // namespace
}  // namespace inflight::contract
