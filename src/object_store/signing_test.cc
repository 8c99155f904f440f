// SPDX-License-Identifier: Apache-2.0
#include "object_store/signing.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::object_store {
namespace {

constexpr std::time_t kDay = 1369353600;  // 2013-05-24T00:00:00Z

// The examples of Amazon S3's API reference, "Signature Calculations for the Authorization Header:
// Transferring Payload in a Single Chunk".
std::string SignatureOf(HttpRequest request) {
  request.origin = "https://examplebucket.s3.amazonaws.com";
  SignAws({.key_id = "AKIAIOSFODNN7EXAMPLE",
           .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
           .session_token = {}},
          {.region = "us-east-1"}, kDay, request);
  const std::string& text = request.headers.back().second;
  return text.substr(text.find("Signature=") + 10);
}

TEST(SignAws, SignsAnObjectsRangeAsTheExample) {
  HttpRequest request;
  request.path = "/test.txt";
  request.headers = {{"range", "bytes=0-9"}};
  EXPECT_EQ(SignatureOf(request),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SignAws, SignsAParameterWithoutValueAsTheExample) {
  HttpRequest request;
  request.path = "/";
  request.query = {{"lifecycle", ""}};
  EXPECT_EQ(SignatureOf(request),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(SignAws, SignsAListingAsTheExampleWhateverTheOrderOfItsParameters) {
  HttpRequest request;
  request.path = "/";
  request.query = {{"prefix", "J"}, {"max-keys", "2"}};
  EXPECT_EQ(SignatureOf(request),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(HttpDate, IsThatOfRfc9110) { EXPECT_EQ(HttpDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT"); }

TEST(ParseTime, ReadsWhatServicesOfAwsSay) {
  EXPECT_EQ(ParseTime("2013-05-24T00:00:00Z"), kDay);
  EXPECT_EQ(ParseTime("2013-05-24T00:00:01.500Z"), kDay + 1);
  EXPECT_EQ(ParseTime("tomorrow"), 0);
}

}  // namespace
}  // namespace inflight::object_store
