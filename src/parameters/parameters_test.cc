// SPDX-License-Identifier: Apache-2.0
#include "parameters/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

namespace inflight::parameters {
namespace {

const Parameter& Find(std::string_view field) {
  const auto found = std::ranges::find(All(), field, &Parameter::field);
  EXPECT_NE(found, All().end()) << field;
  return *found;
}

TEST(Domain, AnIntervalHasItsEndsAndSaysThem) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Domain share = {.low = 0, .high = 1, .excludes_low = true};
  EXPECT_FALSE(share.Contains(0));
  EXPECT_TRUE(share.Contains(1e-9));
  EXPECT_TRUE(share.Contains(1));
  EXPECT_FALSE(share.Contains(1.5));
  EXPECT_FALSE(share.Contains(nan));
  EXPECT_EQ(ToText(share, /*is_integer=*/false), "in (0, 1]");
  EXPECT_EQ(ToText({.low = 1, .high = 1024}, /*is_integer=*/true), "in [1, 1024]");
  EXPECT_EQ(ToText({.low = 0}, /*is_integer=*/true), "at least 0");
  EXPECT_EQ(ToText({.low = 0}, /*is_integer=*/false), "a finite number of at least 0");
}

TEST(Domain, OpenEndsAreFinite) {
  const Domain any;
  EXPECT_TRUE(any.Contains(-1e30));
  EXPECT_FALSE(any.Contains(kInfinity));
  EXPECT_FALSE(any.Contains(-kInfinity));
  EXPECT_EQ(ToText(any, /*is_integer=*/false), "finite");
  const Domain positive = {.low = 0, .excludes_low = true};
  EXPECT_FALSE(positive.Contains(kInfinity));
  EXPECT_EQ(ToText(positive, /*is_integer=*/false), "a finite number above 0");
}

TEST(Parameters, NoNameMeansTwoThings) {
  std::set<std::string_view> llm_names;
  std::set<std::string_view> text_names;
  for (const Parameter& parameter : All()) {
    EXPECT_TRUE(llm_names.insert(parameter.llm_name).second) << parameter.llm_name;
    EXPECT_TRUE(text_names.insert(parameter.text_name).second) << parameter.text_name;
    if (!parameter.other_llm_name.empty()) {
      EXPECT_TRUE(llm_names.insert(parameter.other_llm_name).second) << parameter.other_llm_name;
    }
    EXPECT_FALSE(parameter.unsent.empty() || parameter.meaning.empty()) << parameter.field;
  }
}

TEST(Parameters, AValueThatIsAsIfNotSentLeavesTheFieldUnset) {
  Request request;
  EXPECT_TRUE(Set(Find("top_p"), "top_p", -3.0F, request).ok());
  EXPECT_TRUE(Set(Find("top_p_min"), "top_p_min", 0.0F, request).ok());
  EXPECT_TRUE(Set(Find("min_p"), "min_p", 0.0F, request).ok());
  EXPECT_EQ(request.sampling.top_p, std::nullopt);
  EXPECT_EQ(request.sampling.top_p_min, std::nullopt);
  EXPECT_EQ(request.sampling.min_p, std::nullopt);
  EXPECT_TRUE(Set(Find("top_k"), "top_k", 0, request).ok());
  EXPECT_EQ(request.sampling.top_k, 0);
}

TEST(Parameters, AnErrorHasTheCallersNameAndTheFieldOfTheStatus) {
  Request request;
  const Status status = Set(Find("top_p"), "runtime_top_p", 1.5F, request);
  EXPECT_EQ(status.message(), "runtime_top_p: got 1.5, must be at most 1");
  EXPECT_EQ(status.field(), "runtime_top_p");
  EXPECT_EQ(Set(Find("top_p_min"), "a", -1.0F, request).message(), "a: got -1, must be in [0, 1]");
  request.sampling.top_p_min = 0.0F;
  EXPECT_EQ(CheckDomains(request).message(), "top_p_min: got 0, must be in (0, 1]");
}

TEST(Parameters, TheDefaultsOfARequestLieInTheirDomains) {
  const Status status = CheckDomains(Request());
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(Parameters, ATokenIsDrawnWhereARuleAsksForItAndNothingMakesItGreedy) {
  EXPECT_FALSE(IsDrawn({}));
  EXPECT_FALSE(IsDrawn({.temperature = 2.0F}));
  EXPECT_FALSE(IsDrawn({.top_k = 0}));
  EXPECT_FALSE(IsDrawn({.top_k = 1, .top_p = 0.5F}));
  EXPECT_FALSE(IsDrawn({.temperature = 0.0F, .top_k = 5}));
  EXPECT_TRUE(IsDrawn({.top_k = 2}));
  EXPECT_TRUE(IsDrawn({.top_p = 1.0F}));
  EXPECT_TRUE(IsDrawn({.min_p = 0.5F}));
}

TEST(Parameters, WhatLeavesNoTokenOutIsNothingToABeamSearch) {
  EXPECT_FALSE(LeavesTokensOut(Find("top_p"), {.top_p = 1.0F}));
  EXPECT_TRUE(LeavesTokensOut(Find("top_p"), {.top_p = 0.5F}));
  EXPECT_FALSE(LeavesTokensOut(Find("top_k"), {.top_k = 1}));
  EXPECT_TRUE(LeavesTokensOut(Find("top_k"), {.top_k = 2}));
  EXPECT_EQ(ValueText(Find("top_p"), {.top_p = 0.1F}), "0.1");
}

}  // namespace
}  // namespace inflight::parameters
