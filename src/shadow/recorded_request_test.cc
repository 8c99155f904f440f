// SPDX-License-Identifier: Apache-2.0
#include "shadow/recorded_request.h"

#include <gtest/gtest.h>

namespace inflight::shadow {
namespace {

TEST(RecordedRequestTest, ALineIsARequest) {
  const auto request = ParseRecordedRequest(
      R"({"method":"PUT","path":"/a?b=1","headers":{"X":"y","Host":"h"},"body":"text"})");
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  EXPECT_EQ(request->method, "PUT");
  EXPECT_EQ(request->path, "/a?b=1");
  EXPECT_EQ(request->headers, (http_client::Headers{{"X", "y"}}));  // Host is the connection's
  EXPECT_EQ(request->body, "text");
}

TEST(RecordedRequestTest, ShortFormsAreForHands) {
  EXPECT_EQ(ParseRecordedRequest(R"({"path":"/v2"})")->method, "GET");
  const auto post = ParseRecordedRequest(R"({"path":"/g","body":{"text_input":"a"}})");
  EXPECT_EQ(post->method, "POST");
  EXPECT_EQ(post->body, R"({"text_input":"a"})");
}

TEST(RecordedRequestTest, WhatIsWrittenReadsBack) {
  for (const std::string body : {"", "text \xC3\xA9", "\xff\x00\x01 bytes", "ab", "abc", "\xfe"}) {
    const RecordedRequest request{"POST", "/x", {{"A", "b"}}, body};
    const auto read = ParseRecordedRequest(WriteRecordedRequest(request));
    ASSERT_TRUE(read.ok()) << body;
    EXPECT_EQ(read->body, body);
    EXPECT_EQ(read->headers, request.headers);
  }
}

TEST(RecordedRequestTest, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "it is no JSON object"},
      {R"({"path":"/","bodi":""})", "bodi: it is not known"},
      {R"({"path":"x"})", "path: got 'x'"},
      {R"({"path":"/a b"})", "path: got '/a b'"},
      {R"({"method":"get","path":"/"})", "method: got 'get'"},
      {R"({"path":"/","body":"a","body_base64":"YQ=="})", "body and body_base64"},
      {R"({"path":"/","body_base64":"?"})", "body_base64: it is no base64"},
      {R"({"path":"/","headers":[]})", "headers: an object of texts"},
      {R"({"path":"/","headers":{"A":"b\r\nC: d"}})", "headers.A: it has a line's end"}};
  for (const auto& [line, message] : cases) {
    const Status status = ParseRecordedRequest(line).status();
    EXPECT_TRUE(status.message().starts_with(message)) << line << ": " << status.message();
  }
}

}  // namespace
}  // namespace inflight::shadow
