// SPDX-License-Identifier: Apache-2.0
#include "shadow/inflated.h"

#include <gtest/gtest.h>

#include <string_view>

namespace inflight::shadow {
namespace {

// "inflight" by gzip (RFC 1952), written out by Python's gzip module.
TEST(Inflated, GivesWhatWasCompressedAndNothingElse) {
  const auto from_hex = [](std::string_view hex) {
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2)
      bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
    return bytes;
  };
  const std::string gzip = from_hex("1f8b0800000000000203cbcc4bcbc94ccf280100ec149a0208000000");
  using grpc_listener::Coding;
  EXPECT_EQ(*Inflated("as it is", Coding::kIdentity, 4), "as it is");
  EXPECT_EQ(*Inflated(gzip, Coding::kGzip, 8), "inflight");
  EXPECT_EQ(Inflated(gzip, Coding::kGzip, 7).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Inflated(gzip, Coding::kDeflate, 8).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*Inflated("", Coding::kGzip, 8), "");
  EXPECT_FALSE(Inflated(gzip + "\n", Coding::kGzip, 8).ok());
  for (size_t length = 1; length < gzip.size(); ++length)
    EXPECT_FALSE(Inflated(gzip.substr(0, length), Coding::kGzip, 8).ok()) << length;
}

}  // namespace
}  // namespace inflight::shadow
