// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/binary_framing.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace inflight::kserve_http {
namespace {

using http_listener::HttpRequest;

constexpr char kPrefix[] = "application/vnd.test.binary+json;json-header-size=";

HttpRequest With(std::string name, std::string value) {
  return {.method = "POST",
          .target = "/",
          .headers = {{std::move(name), std::move(value)}},
          .body = {}};
}

TEST(BinaryFramingTest, AHeaderOrAParameterOfTheMediaTypeTellsTheLengthOfTheJson) {
  const BinaryFraming by_header;
  const BinaryFraming by_type{kPrefix};
  const HttpRequest header = With("inference-header-content-length", "12");
  const HttpRequest type = With("content-type", std::string(kPrefix) + "12");
  EXPECT_EQ(*by_header.JsonLength(header, 20), 12U);
  EXPECT_EQ(*by_type.JsonLength(type, 20), 12U);
  EXPECT_TRUE(by_header.HasBinaryPart(header));
  EXPECT_TRUE(by_type.HasBinaryPart(type));
  // Neither looks at what the other goes by.
  EXPECT_EQ(*by_header.JsonLength(type, 20), std::nullopt);
  EXPECT_EQ(*by_type.JsonLength(header, 20), std::nullopt);
  EXPECT_FALSE(by_header.HasBinaryPart(type));
  EXPECT_FALSE(by_type.HasBinaryPart(header));
}

TEST(BinaryFramingTest, HeaderLengthIsReadLikeTriton) {
  const auto length = [](std::string value) -> std::string {
    const HttpRequest request{.headers = {{"inference-header-content-length", std::move(value)}}};
    const auto result = BinaryFraming().JsonLength(request, 383);
    return result.ok() ? std::to_string(**result) : result.status().message();
  };
  EXPECT_EQ(length("10"), "10");
  EXPECT_EQ(length("10abc"), "10");
  EXPECT_EQ(length("10.5"), "10");
  EXPECT_EQ(length("0"), "0");
  EXPECT_EQ(length("99999"), "inference header size should be in range (0, 383), got: 99999");
  EXPECT_EQ(length("abc"), "Unable to parse Inference-Header-Content-Length, got: abc");
  EXPECT_EQ(length(""), "Unable to parse Inference-Header-Content-Length, got: ");
  EXPECT_EQ(length("+10"), "10");
  EXPECT_EQ(length("-3"), "inference header size should be in range (0, 383), got: -3");
  EXPECT_NE(length("99999999999999999999").find("out of range"), std::string::npos);
  EXPECT_FALSE(BinaryFraming().JsonLength({}, 383)->has_value());
}

TEST(BinaryFramingTest, OtherMediaTypesAreJsonAlone) {
  const BinaryFraming framing{kPrefix};
  EXPECT_EQ(*framing.JsonLength(With("Content-Type", "application/json"), 20), std::nullopt);
  EXPECT_EQ(*framing.JsonLength(With("Accept", std::string(kPrefix) + "1"), 20), std::nullopt);
}

TEST(BinaryFramingTest, ZeroIsARequestWithoutJson) {
  const BinaryFraming framing{kPrefix};
  const HttpRequest request = With("Content-Type", std::string(kPrefix) + "0");
  EXPECT_EQ(*framing.JsonLength(request, 20), 0U);
  EXPECT_FALSE(framing.HasBinaryPart(request));  // the limit of raw requests holds
}

TEST(BinaryFramingTest, WhatIsNoLengthOfTheBodyIsRefused) {
  const BinaryFraming framing{kPrefix};
  const auto error = [&](const std::string& value) {
    return framing.JsonLength(With("Content-Type", value), 20).status();
  };
  const std::string prefix = kPrefix;
  EXPECT_EQ(error(prefix + "x"), InvalidArgument("Unable to parse json-header-size, got: x"));
  EXPECT_EQ(error(prefix), InvalidArgument("Unable to parse json-header-size, got: "));
  EXPECT_EQ(error(prefix + "-1").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(error(prefix + "21"),
            InvalidArgument("inference header size should be in range (0, 20), got: 21"));
  EXPECT_EQ(
      error("text/x;" + prefix + "1").message(),
      "expect MIME type for binary data starts with '" + prefix + "', got: text/x;" + prefix + "1");
  EXPECT_TRUE(framing.JsonLength(With("Content-Type", prefix + "20"), 20).ok());
}

TEST(BinaryFramingTest, AnswersSayItTheSameWay) {
  using http_listener::Headers;
  EXPECT_EQ(BinaryFraming().AnswerHeaders(7), (Headers{{"Content-Type", "application/octet-stream"},
                                                       {"Inference-Header-Content-Length", "7"}}));
  EXPECT_EQ(BinaryFraming(kPrefix).AnswerHeaders(7),
            (Headers{{"Content-Type", std::string(kPrefix) + "7"}}));
}

}  // namespace
}  // namespace inflight::kserve_http
