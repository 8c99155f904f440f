// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/keepalive.h"

#include <gtest/gtest.h>

namespace inflight::grpc_listener {
namespace {

using namespace std::chrono_literals;
using Action = Keepalive::Action;

const Keepalive::Time kStart{1000h};

TEST(KeepaliveTest, AQuietConnectionIsPingedAndClosedWithoutAnAnswer) {
  Keepalive keepalive({.time = 10s, .timeout = 2s}, kStart);
  EXPECT_EQ(keepalive.due(), kStart + 10s);
  EXPECT_EQ(keepalive.Next(kStart + 10s, true), Action::kPing);
  EXPECT_EQ(keepalive.due(), kStart + 12s);
  EXPECT_EQ(keepalive.Next(kStart + 12s, true), Action::kClose);
}

TEST(KeepaliveTest, AnAnswerKeepsIt) {
  Keepalive keepalive({.time = 10s, .timeout = 2s}, kStart);
  EXPECT_EQ(keepalive.Next(kStart + 10s, true), Action::kPing);
  keepalive.OnReceived(kStart + 11s);
  keepalive.OnPingAnswered();
  EXPECT_EQ(keepalive.Next(kStart + 12s, true), Action::kNone);
  EXPECT_EQ(keepalive.due(), kStart + 21s);
}

TEST(KeepaliveTest, WithoutCallsItIsNotPingedUnlessThatIsPermitted) {
  Keepalive keepalive({.time = 10s}, kStart);
  EXPECT_EQ(keepalive.Next(kStart + 10s, false), Action::kNone);
  Keepalive permits({.time = 10s, .permits_without_calls = true}, kStart);
  EXPECT_EQ(permits.Next(kStart + 10s, false), Action::kPing);
}

TEST(KeepaliveTest, PingsWithoutDataAreBounded) {
  Keepalive keepalive({.time = 10s, .max_pings_without_data = 1}, kStart);
  EXPECT_EQ(keepalive.Next(kStart + 10s, true), Action::kPing);
  keepalive.OnReceived(kStart + 10s);
  keepalive.OnPingAnswered();
  EXPECT_EQ(keepalive.Next(kStart + 20s, true), Action::kNone);
  keepalive.OnDataSent();
  EXPECT_EQ(keepalive.Next(kStart + 30s, true), Action::kPing);
}

TEST(KeepaliveTest, AClientThatPingsTooOftenGoesAfterItsStrikes) {
  Keepalive keepalive({.min_ping_interval = 300s, .max_ping_strikes = 2}, kStart);
  EXPECT_TRUE(keepalive.AllowsPing(kStart + 1s, true));
  EXPECT_TRUE(keepalive.AllowsPing(kStart + 2s, true));
  EXPECT_TRUE(keepalive.AllowsPing(kStart + 3s, true));
  EXPECT_FALSE(keepalive.AllowsPing(kStart + 4s, true));
}

TEST(KeepaliveTest, DataToTheClientForgivesItsPings) {
  Keepalive keepalive({.max_ping_strikes = 1}, kStart);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(keepalive.AllowsPing(kStart + i * 1s, true));
    keepalive.OnDataSent();
  }
}

TEST(KeepaliveTest, ZeroStrikesAreNoBound) {
  Keepalive keepalive({.max_ping_strikes = 0}, kStart);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(keepalive.AllowsPing(kStart + i * 1s, false));
}

TEST(KeepaliveTest, AnOldConnectionGetsNoNewCallsAndEndsAfterItsGrace) {
  Keepalive keepalive({.max_age = 60s, .max_age_grace = 5s}, kStart);
  EXPECT_EQ(keepalive.due(), kStart + 60s);
  EXPECT_EQ(keepalive.Next(kStart + 60s, true), Action::kGoAway);
  EXPECT_EQ(keepalive.due(), kStart + 65s);
  EXPECT_EQ(keepalive.Next(kStart + 65s, true), Action::kClose);
}

}  // namespace
}  // namespace inflight::grpc_listener
