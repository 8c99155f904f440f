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

TEST(Restrictions, BadRulesAreRefusedByName) {
  for (const char* rule :
       {"health", "health:key", "health:=v", "nope:k=v", "health,:k=v", ":k=v"}) {
    const auto parsed = Restrictions::Parse({rule});
    ASSERT_FALSE(parsed.ok()) << rule;
    EXPECT_NE(parsed.status().message().find(rule), std::string::npos);
  }
  EXPECT_FALSE(Restrictions::Parse({"health:a=1", "trace,health:b=2"}).ok());
}

TEST(HeaderForward, TheWholeNameMustMatch) {
  const auto forward = HeaderForward::Make("(?i)x-fwd-.*|plain");
  ASSERT_TRUE(forward.ok()) << forward.status().ToString();
  EXPECT_TRUE(forward->Matches("X-Fwd-One"));
  EXPECT_TRUE(forward->Matches("plain"));
  EXPECT_FALSE(forward->Matches("plainer"));
  EXPECT_FALSE(forward->Matches("my-x-fwd-one"));
}

TEST(HeaderForward, NoPatternMatchesNothingAndABadOneIsRefused) {
  EXPECT_FALSE(HeaderForward().Matches(""));
  EXPECT_FALSE(HeaderForward::Make("")->Matches("x"));
  const auto bad = HeaderForward::Make("x-(");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("x-("), std::string::npos);
}

TEST(HeaderForward, APatternThatBacktracksForEverIsNoMatch) {
  const auto forward = HeaderForward::Make("(a+)+b");
  ASSERT_TRUE(forward.ok());
  EXPECT_FALSE(forward->Matches(std::string(5000, 'a')));
}

}  // namespace
}  // namespace inflight::kserve
