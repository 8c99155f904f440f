// SPDX-License-Identifier: Apache-2.0
// What is counted and refused; the numbers are compared in tests/tools/test_weight_only.py.
#include "builder/accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "builder/test_models.h"

namespace inflight::builder {
namespace {

using testing::HasSubstr;

class AccuracyTest : public testing::Test {
 protected:
  AccuracyTest()
      : dir_(std::filesystem::path(testing::TempDir()) / ("accuracy_" + std::to_string(getpid()))) {
    TinyLlama().Write(dir_);
  }
  ~AccuracyTest() override { std::filesystem::remove_all(dir_); }

  Result<AccuracyReport> Measure(const std::vector<ScoredText>& texts) {
    return MeasureAccuracy(dir_, {}, texts, *device_);
  }

  std::filesystem::path dir_;
  std::unique_ptr<Device> device_ = Device::Cpu(1);
};

TEST_F(AccuracyTest, CountsTheTokensThatAreScored) {
  const auto report =
      Measure({{.ids = {1, 2, 3}}, {.ids = {4, 5, 6, 7}, .first_scored = 3}, {.ids = {9}}});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->num_texts, 3);
  EXPECT_EQ(report->num_predictions, 2 + 1);
  ASSERT_EQ(report->forms.size(), 5U);
  EXPECT_EQ(report->forms[4].name, "int4");
  EXPECT_EQ(report->forms[0].name, "float32");
  EXPECT_EQ(report->forms[0].logit_max, 0);
  EXPECT_EQ(report->forms[0].same_best, 1);
  EXPECT_THAT(Measure({{.ids = {1}}}).status().message(), HasSubstr("two tokens or more"));
}

TEST_F(AccuracyTest, WhatTheWidthsDoNotAllowIsLeftOut) {
  TinyLlama(/*intermediate_size=*/23).Write(dir_);
  const auto report = Measure({{.ids = {1, 2, 3}}});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ASSERT_EQ(report->forms.size(), 4U);
  EXPECT_EQ(report->forms[3].name, "int8");
}

// A tokenizer may know more tokens than the model, or be another model's. The last token of a text
// is only predicted: no forward pass would refuse it.
TEST_F(AccuracyTest, TokensBeyondTheVocabularyAreRefused) {
  ScoredText text{.ids = std::vector<TokenId>(65, 3)};
  for (const TokenId id : {1 << 28, 10, -1}) {
    text.ids.back() = id;
    const Status status = Measure({{.ids = {1, 2}}, text}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("text 1: token 64: got " + std::to_string(id) +
                                            ", the model's ids are 0 to 9"));
  }
}

}  // namespace
}  // namespace inflight::builder
