// SPDX-License-Identifier: Apache-2.0
#include "protocol/otlp/http_post.h"

#include <gtest/gtest.h>

namespace inflight::otlp {
namespace {

void ExpectUrl(const std::string& text, const Url& expected) {
  const auto url = ParseUrl(text);
  ASSERT_TRUE(url.ok()) << text;
  EXPECT_EQ(url->host, expected.host) << text;
  EXPECT_EQ(url->port, expected.port) << text;
  EXPECT_EQ(url->path, expected.path) << text;
}

TEST(UrlTest, HostPortAndPath) {
  ExpectUrl("http://localhost:4318/v1/traces", {"localhost", "4318", "/v1/traces"});
  ExpectUrl("http://collector", {"collector", "80", "/"});
  ExpectUrl("http://[::1]:4318/x", {"::1", "4318", "/x"});
  ExpectUrl("http://[::1]/x", {"::1", "80", "/x"});
}

TEST(UrlTest, WhatIsNone) {
  for (const char* text : {"", "localhost:4318", "https://c/x", "http://", "http://:80/",
                           "http://c:/", "http://c:port/"}) {
    EXPECT_EQ(ParseUrl(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(PostJsonTest, ACollectorThatIsNotThereIsAnError) {
  // Port 1 needs a right to listen on that no test has.
  const Status status = PostJson({"127.0.0.1", "1", "/"}, "{}", std::chrono::seconds(10));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace inflight::otlp
