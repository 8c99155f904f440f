// SPDX-License-Identifier: Apache-2.0
#include "parameters/model_defaults.h"

#include <gtest/gtest.h>

#include <fstream>

#include "parameters/parameters.h"

namespace inflight::parameters {
namespace {

SamplingParams Drawn(const Drawing& asked, const ModelDefaults& model, Unsaid unsaid) {
  SamplingParams sampling;
  SetDrawing(asked, model, unsaid, sampling);
  return sampling;
}

TEST(ModelDefaults, TemperatureAloneDraws) {
  const SamplingParams sampling = Drawn({.temperature = 0.7F}, {}, Unsaid::kLikeliest);
  EXPECT_TRUE(IsDrawn(sampling));
  EXPECT_EQ(sampling.temperature, 0.7F);
  EXPECT_FALSE(IsDrawn(Drawn({.temperature = 0.0F}, {.do_sample = true}, Unsaid::kDraw)));
  EXPECT_FALSE(IsDrawn(Drawn({.temperature = 0.7F, .top_p = 0.0F}, {}, Unsaid::kDraw)));
}

TEST(ModelDefaults, ATemperatureOfZeroIsGreedyWhateverElseIsSent) {
  for (const std::optional<int> top_k : {std::optional<int>(), std::optional<int>(40)}) {
    SamplingParams sampling = {
        .temperature = 0.0F, .top_k = top_k, .top_p = 0.9F, .min_p = 0.1F, .typical_p = 0.5F};
    SetSampling({.do_sample = true, .temperature = 0.6F}, sampling);
    EXPECT_FALSE(IsDrawn(sampling));
  }
  // The model's own temperature, too; a request's typical_p alone draws.
  SamplingParams sampling = {.top_p = 0.9F, .typical_p = 0.5F};
  SetSampling({.temperature = 0.0F}, sampling);
  EXPECT_FALSE(IsDrawn(sampling));
  sampling = {.typical_p = 0.5F};
  SetSampling({}, sampling);
  EXPECT_TRUE(IsDrawn(sampling));
}

TEST(ModelDefaults, ModelSaysWhatTheRequestLeavesOpen) {
  const ModelDefaults model = {.do_sample = true, .temperature = 0.6F, .top_p = 0.95F, .top_k = 20};
  const SamplingParams sampling = Drawn({}, model, Unsaid::kLikeliest);
  EXPECT_EQ(sampling.temperature, 0.6F);
  EXPECT_EQ(sampling.top_p, 0.95F);
  EXPECT_EQ(sampling.top_k, 20);
  const SamplingParams asked = Drawn({.top_k = 0}, model, Unsaid::kLikeliest);
  EXPECT_EQ(asked.top_k, std::nullopt);
  EXPECT_EQ(asked.temperature, 0.6F);
}

TEST(ModelDefaults, GreedyModelDrawsOnlyWhenAsked) {
  const ModelDefaults model = {.do_sample = false, .temperature = 0.6F};
  EXPECT_FALSE(IsDrawn(Drawn({}, model, Unsaid::kDraw)));
  EXPECT_TRUE(IsDrawn(Drawn({.top_p = 0.9F}, model, Unsaid::kDraw)));
}

TEST(ModelDefaults, NobodySaysAnything) {
  EXPECT_TRUE(IsDrawn(Drawn({}, {}, Unsaid::kDraw)));
  EXPECT_FALSE(IsDrawn(Drawn({}, {}, Unsaid::kLikeliest)));
}

class GenerationConfigFile : public testing::Test {
 protected:
  void Write(const std::string& text) {
    std::ofstream(std::filesystem::path(dir_) / "generation_config.json") << text;
  }
  const std::string dir_ = testing::TempDir();
};

TEST_F(GenerationConfigFile, ValuesOutOfBoundsAreLeftOut) {
  Write(R"({"do_sample": true, "temperature": 0.6, "top_p": 7, "top_k": "many", "min_p": null,
            "max_new_tokens": 2048, "eos_token_id": [1, 2]})");
  const auto defaults = ReadModelDefaults(dir_);
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->do_sample, true);
  EXPECT_EQ(defaults->temperature, 0.6F);
  EXPECT_EQ(defaults->top_p, std::nullopt);
  EXPECT_EQ(defaults->top_k, std::nullopt);
  EXPECT_EQ(defaults->min_p, std::nullopt);
  EXPECT_EQ(defaults->max_new_tokens, 2048);
  EXPECT_EQ(defaults->ToString(), "do_sample true, temperature 0.6, max_new_tokens 2048");
}

TEST_F(GenerationConfigFile, WhatIsNoObjectIsAnError) {
  Write("[1");
  const auto defaults = ReadModelDefaults(dir_);
  ASSERT_FALSE(defaults.ok());
  EXPECT_NE(defaults.status().message().find("generation_config.json: is no JSON object"),
            std::string::npos);
}

}  // namespace
}  // namespace inflight::parameters
