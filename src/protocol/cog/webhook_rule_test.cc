// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/webhook_rule.h"

#include <gtest/gtest.h>

namespace inflight::cog {
namespace {

using boost::asio::ip::make_address;

bool AllowsAddress(const WebhookRule& rule, const char* address) {
  return rule.Allows("host.example", make_address(address));
}

TEST(WebhookRuleTest, ByDefaultThisMachineAndItsLinksAreOffLimits) {
  const WebhookRule rule;
  for (const char* address :
       {"127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "0.1.2.3", "::", "169.254.169.254", "fe80::1",
        "fd00:ec2::254", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "::ffff:127.0.0.1",
        "::ffff:169.254.169.254", "64:ff9b::7f00:1"})
    EXPECT_FALSE(AllowsAddress(rule, address)) << address;
  for (const char* address : {"93.184.216.34", "10.0.0.7", "192.168.1.1", "2001:db8::1",
                              "::ffff:93.184.216.34", "fd00::7", "128.0.0.1"})
    EXPECT_TRUE(AllowsAddress(rule, address)) << address;
  EXPECT_FALSE(rule.MayAllow("localhost"));
  EXPECT_FALSE(rule.MayAllow("127.0.0.1"));
  EXPECT_TRUE(rule.MayAllow("hooks.example.com"));
}

TEST(WebhookRuleTest, AListAllowsWhatItNamesAndNothingElse) {
  const auto rule = WebhookRule::Parse({"Hooks.example.com", "*.internal", "10.1.0.0/16", "::1"});
  ASSERT_TRUE(rule.ok());
  const auto anywhere = make_address("127.0.0.1");
  EXPECT_TRUE(rule->Allows("hooks.EXAMPLE.com", anywhere));
  EXPECT_TRUE(rule->Allows("a.internal", anywhere));
  EXPECT_FALSE(rule->Allows("internal", anywhere));
  EXPECT_FALSE(rule->Allows("evilinternal", anywhere));
  EXPECT_TRUE(AllowsAddress(*rule, "10.1.255.1"));
  EXPECT_TRUE(AllowsAddress(*rule, "::ffff:10.1.255.1"));
  EXPECT_FALSE(AllowsAddress(*rule, "10.2.0.1"));
  EXPECT_TRUE(AllowsAddress(*rule, "::1"));
  EXPECT_FALSE(AllowsAddress(*rule, "93.184.216.34"));
}

TEST(WebhookRuleTest, ANameThatIsNotListedIsToldBeforeItIsLookedUp) {
  const auto rule = WebhookRule::Parse({"hooks.example.com"});
  ASSERT_TRUE(rule.ok());
  EXPECT_TRUE(rule->MayAllow("hooks.example.com"));
  EXPECT_FALSE(rule->MayAllow("other.example.com"));
  EXPECT_TRUE(WebhookRule::Parse({"*"})->MayAllow("localhost"));
}

TEST(WebhookRuleTest, WhatIsNoHost) {
  for (const char* entry : {"", "http://a", "a b", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "a/8"})
    EXPECT_EQ(WebhookRule::Parse({entry}).status().field(), "--cog-webhook-allow") << entry;
}

}  // namespace
}  // namespace inflight::cog
