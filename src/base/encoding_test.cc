// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/base64.h"
#include "base/hex.h"
#include "base/percent_encoding.h"
#include "base/sha256.h"

namespace inflight {
namespace {

// RFC 4648, section 10.
TEST(HexTest, DigitsAreThoseOfTheRfc) {
  EXPECT_EQ(ToHex("foobar"), "666f6f626172");
  EXPECT_EQ(FromHex("666F6F626172"), "foobar");
  EXPECT_EQ(ToHex({"\x00\xff", 2}), "00ff");
  EXPECT_EQ(ToHex(""), "");
  EXPECT_EQ(FromHex(""), "");
}

TEST(HexTest, WhatIsNotPairsOfDigitsIsNone) {
  EXPECT_EQ(FromHex("666"), std::nullopt);
  EXPECT_EQ(FromHex("6g"), std::nullopt);
  EXPECT_EQ(FromHex("g6"), std::nullopt);
  EXPECT_EQ(FromHex("6 "), std::nullopt);
}

// RFC 4648, section 10.
// The examples of FIPS 180-2, appendix B.1 and B.2.
TEST(Sha256Test, PartsAreHashedAsTheWhole) {
  Sha256 abc;
  abc.Add("abc");
  EXPECT_EQ(ToHex(abc.End()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 long_one;
  for (const char* part : {"abcdbcdecdefdefgefghfghi", "", "ghijhijkijkljklmklmnlmnomnopnopq"})
    long_one.Add(part);
  EXPECT_EQ(ToHex(long_one.End()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Base64Test, TextsAreThoseOfTheRfcInBothDirections) {
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(EncodeBase64(bytes), text);
    EXPECT_EQ(DecodeBase64(text), bytes);
  }
  EXPECT_EQ(EncodeBase64({"\x00\xff\xfe", 3}), "AP/+");
}

// RFC 3986, section 2.3 names what needs no encoding, 2.1 gives "%20", 2.5 U+00C0 as "%C3%80".
TEST(PercentEncodingTest, UnreservedStaysAndTheRestIsEncoded) {
  EXPECT_EQ(PercentEncode("azAZ09-._~"), "azAZ09-._~");
  EXPECT_EQ(PercentEncode("a b"), "a%20b");
  EXPECT_EQ(PercentEncode("\xc3\x80"), "%C3%80");
  EXPECT_EQ(PercentEncode("a/b+c"), "a%2Fb%2Bc");
  EXPECT_EQ(PercentEncode("a/b+c", "/"), "a/b%2Bc");
}

TEST(PercentEncodingTest, DecodingTakesBothLetterCasesAndLeavesALonePercent) {
  EXPECT_EQ(PercentDecode("%c3%80%C3%80"), "\xc3\x80\xc3\x80");
  EXPECT_EQ(PercentDecode("100%"), "100%");
  EXPECT_EQ(PercentDecode("%2"), "%2");
  EXPECT_EQ(PercentDecode("%zz%2z"), "%zz%2z");
  EXPECT_EQ(PercentDecode("%2525"), "%25");
  EXPECT_EQ(PercentDecode("a+b"), "a+b");
  EXPECT_EQ(PercentDecode("a+b%2B", true), "a b+");
}

}  // namespace
}  // namespace inflight
