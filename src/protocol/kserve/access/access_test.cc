// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "protocol/kserve/access/header_forward.h"
#include "protocol/kserve/access/restriction.h"

namespace inflight::kserve {
namespace {

TEST(Restrictions, EachApiOfARuleNeedsItsHeader) {
  const auto parsed =
      Restrictions::Parse({"model-repository,statistics:admin-key=se:cr=et", "health:h="});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  for (const Api api : {Api::kModelRepository, Api::kStatistics}) {
    ASSERT_NE(parsed->Of(api), nullptr);
    EXPECT_EQ(parsed->Of(api)->name, "admin-key");
    EXPECT_EQ(parsed->Of(api)->value, "se:cr=et");
  }
  EXPECT_EQ(parsed->Of(Api::kHealth)->value, "");
  EXPECT_EQ(parsed->Of(Api::kInference), nullptr);
}

TEST(Restrictions, WhatIsOpenElsewhereIsNamed) {
  const auto one = Restrictions::Parse({"inference,logging:a=b", "health:c=d"});
  const auto other = Restrictions::Parse({"logging,trace:x=y"});
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->NotIn(*other), "health, inference");
  EXPECT_EQ(other->NotIn(*one), "trace");
  EXPECT_EQ(one->NotIn(*one), "");
  EXPECT_EQ(Restrictions().NotIn(*one), "");
}

TEST(Restrictions, BadRulesAreRefusedByName) {
  for (const char* rule :
       {"health", "health:key", "health:=v", "nope:k=v", "health,:k=v", ":k=v"}) {
    const auto parsed = Restrictions::Parse({rule});
    ASSERT_FALSE(parsed.ok()) << rule;
    EXPECT_NE(parsed.status().message().find(rule), std::string::npos);
  }
  EXPECT_FALSE(Restrictions::Parse({"health:a=1", "trace,health:b=2"}).ok());
}

bool Matches(const std::string& pattern, std::string_view name) {
  const auto forward = HeaderForward::Make(pattern);
  EXPECT_TRUE(forward.ok()) << forward.status().ToString();
  const auto matches = forward->Matches(name);
  EXPECT_TRUE(matches.ok()) << matches.status().ToString();
  return matches.ok() && *matches;
}

TEST(HeaderForward, APatternMatchesAnywhereInTheNameInAnyCase) {
  EXPECT_TRUE(Matches("x-fwd", "My-X-Fwd-One"));
  EXPECT_TRUE(Matches("^plain$", "Plain"));
  EXPECT_FALSE(Matches("^plain$", "plainer"));
  EXPECT_FALSE(Matches("(?-i)x-fwd", "X-Fwd-One"));
  EXPECT_TRUE(Matches("(?-i)x-fwd", "x-fwd-one"));
}

TEST(HeaderForward, ReservedNamesAreRefused) {
  const auto forward = HeaderForward::Make(".*");
  for (const char* name : {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout",
                           "headers", "binary_data_output", "triton_anything"}) {
    const auto matches = forward->Matches(name);
    EXPECT_EQ(matches.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(
        matches.status().message(),
        std::string("Header '") + name + "' is reserved for Triton usage and cannot be forwarded.");
  }
  EXPECT_TRUE(*forward->Matches("timeouts"));
  EXPECT_FALSE(*HeaderForward::Make("x")->Matches("priority"));
}

TEST(HeaderForward, NoPatternMatchesNothingAndABadOneIsRefused) {
  EXPECT_FALSE(*HeaderForward().Matches(""));
  EXPECT_FALSE(Matches("", "x"));
  const auto bad = HeaderForward::Make("x-(");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("x-("), std::string::npos);
}

TEST(HeaderForward, APatternThatBacktracksForEverIsNoMatch) {
  EXPECT_FALSE(Matches("(a+)+b", std::string(5000, 'a')));
}

}  // namespace
}  // namespace inflight::kserve
