// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/wire.h"

#include <gtest/gtest.h>

namespace inflight::grpc_listener {
namespace {

using namespace std::chrono_literals;

TEST(WireTest, PrefixIsAFlagAndALengthInBigEndian) {
  const Prefix prefix = MakePrefix(true, 0x01020304);
  EXPECT_EQ(std::string(prefix.data(), prefix.size()), std::string("\1\1\2\3\4", 5));
  EXPECT_EQ(LengthOf(prefix), 0x01020304U);
  EXPECT_EQ(LengthOf(MakePrefix(false, 0xffffffff)), 0xffffffffU);
}

TEST(WireTest, TimeoutsHaveAUnit) {
  EXPECT_EQ(ParseTimeout("1H"), 1h);
  EXPECT_EQ(ParseTimeout("2M"), 2min);
  EXPECT_EQ(ParseTimeout("30S"), 30s);
  EXPECT_EQ(ParseTimeout("100m"), 100ms);
  EXPECT_EQ(ParseTimeout("7u"), 7us);
  EXPECT_EQ(ParseTimeout("00000009n"), 9ns);
  EXPECT_EQ(ParseTimeout("99999999H"), 24h * 365 * 10);  // more than fits
}

TEST(WireTest, OtherTextsAreNoTimeouts) {
  for (const char* text : {"", "S", "1", "1s", "-1S", "+1S", " 1S", "1 S", "1.5S", "100000000S"}) {
    EXPECT_EQ(ParseTimeout(text), std::nullopt) << text;
  }
}

TEST(WireTest, MessagesAreAsciiOnTheWire) {
  EXPECT_EQ(PercentEncode("a model 'x' ~"), "a model 'x' ~");
  EXPECT_EQ(PercentEncode("100%\r\n\x7f\xc3\xa9"), "100%25%0D%0A%7F%C3%A9");
}

TEST(WireTest, CodingsAreThoseThatAreKnown) {
  EXPECT_EQ(ParseCoding("gzip"), Coding::kGzip);
  EXPECT_EQ(ParseCoding("snappy"), std::nullopt);
  const std::vector<Coding> both = {Coding::kGzip, Coding::kDeflate};
  EXPECT_EQ(ParseAcceptedCodings("identity, gzip ,deflate,snappy,"), both);
  EXPECT_TRUE(ParseAcceptedCodings("").empty());
}

}  // namespace
}  // namespace inflight::grpc_listener
