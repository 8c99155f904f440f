// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "protocol/kserve/access/header_forward.h"
#include "protocol/kserve/access/restriction.h"

namespace inflight::kserve {
namespace {

// "" where the API is open to these headers.
std::string Refusal(const Restrictions& restrictions, Protocol protocol, Api api,
                    const HeaderList& headers = {}) {
  return restrictions.Check(protocol, api, headers).message();
}

TEST(Restrictions, EachApiOfARuleNeedsItsHeader) {
  const auto parsed = Restrictions::Parse(
      {.http = {"model-repository,statistics:admin-key=se:cr=et", "health:h=v"}});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const auto ask = [&](Api api, const HeaderList& headers) {
    return Refusal(*parsed, Protocol::kHttp, api, headers);
  };
  for (const Api api : {Api::kModelRepository, Api::kStatistics}) {
    const char kRefused[] = "This API is restricted, expecting header 'admin-key'";
    EXPECT_EQ(ask(api, {}), kRefused);
    EXPECT_EQ(ask(api, {{"admin-key", "se:cr"}}), kRefused);
    EXPECT_EQ(ask(api, {{"admin-keys", "se:cr=et"}}), kRefused);
    EXPECT_EQ(ask(api, {{"Admin-Key", "se:cr=et"}}), "");
  }
  EXPECT_NE(ask(Api::kHealth, {}), "");
  EXPECT_EQ(ask(Api::kHealth, {{"h", "v"}}), "");
  EXPECT_NE(ask(Api::kHealth, {{"h", ""}}), "");
  EXPECT_EQ(ask(Api::kInference, {}), "");
}

TEST(Restrictions, WhereBothOptionsHaveARuleEachHasItsOwn) {
  const auto parsed =
      Restrictions::Parse({.http = {"logging,inference:A=b"}, .grpc = {"logging,trace:C=d"}});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const auto expect = [&](Api api, const std::string& http, const std::string& grpc) {
    EXPECT_EQ(Refusal(*parsed, Protocol::kHttp, api),
              "This API is restricted, expecting header '" + http + "'");
    EXPECT_EQ(Refusal(*parsed, Protocol::kGrpc, api),
              "This protocol is restricted, expecting header 'triton-grpc-protocol-" + grpc + "'");
  };
  expect(Api::kLogging, "A", "c");
  expect(Api::kInference, "A", "a");
  expect(Api::kTrace, "C", "c");
  EXPECT_EQ(Refusal(*parsed, Protocol::kHttp, Api::kLogging, {{"C", "d"}}),
            "This API is restricted, expecting header 'A'");
}

TEST(Restrictions, BadRulesAreRefusedByName) {
  const auto both = [](const std::string& rule, const std::string& start) {
    const std::string http = Restrictions::Parse({.http = {rule}}).status().message();
    EXPECT_EQ(http.find("--http-restricted-api" + start), 0U) << http;
    const std::string grpc = Restrictions::Parse({.grpc = {rule}}).status().message();
    EXPECT_EQ(grpc.find("--grpc-restricted-protocol" + start), 0U) << grpc;
  };
  for (const std::string rule : {"nope:k=v", "health,:k=v"}) both(rule, ": got '" + rule + "', ");
  for (const std::string rule : {"health", "health:key", "health:=v", "health:h=", ":k=v"}) {
    both(rule, " option format is '<config name>:<setting>=<value>'. Got " + rule + ";");
  }
  EXPECT_FALSE(Restrictions::Parse({.http = {"health:a=1", "trace,health:b=2"}}).ok());
}

bool Matches(const std::string& pattern, std::string_view name) {
  const auto forward = HeaderForward::Make(pattern);
  EXPECT_TRUE(forward.ok()) << forward.status().ToString();
  const auto matches = forward->Matches(name);
  EXPECT_TRUE(matches.ok()) << matches.status().ToString();
  return matches.ok() && *matches;
}

TEST(HeaderForward, APatternMatchesAnywhereInTheNameInAnyCase) {
  EXPECT_TRUE(Matches("x-fwd", "My-X-Fwd-One"));
  EXPECT_TRUE(Matches("^plain$", "Plain"));
  EXPECT_FALSE(Matches("^plain$", "plainer"));
  EXPECT_FALSE(Matches("(?-i)x-fwd", "X-Fwd-One"));
  EXPECT_TRUE(Matches("(?-i)x-fwd", "x-fwd-one"));
}

TEST(HeaderForward, ReservedNamesAreRefused) {
  const auto forward = HeaderForward::Make(".*");
  for (const char* name : {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout",
                           "headers", "binary_data_output", "triton_anything"}) {
    const auto matches = forward->Matches(name);
    EXPECT_EQ(matches.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(
        matches.status().message(),
        std::string("Header '") + name + "' is reserved for Triton usage and cannot be forwarded.");
  }
  EXPECT_TRUE(*forward->Matches("timeouts"));
  EXPECT_FALSE(*HeaderForward::Make("x")->Matches("priority"));
}

TEST(HeaderForward, NoPatternMatchesNothingAndABadOneIsRefused) {
  EXPECT_FALSE(*HeaderForward().Matches(""));
  EXPECT_FALSE(Matches("", "x"));
  const auto bad = HeaderForward::Make("x-(");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("x-("), std::string::npos);
}

TEST(HeaderForward, APatternThatBacktracksForEverIsNoMatch) {
  EXPECT_FALSE(Matches("(a+)+b", std::string(5000, 'a')));
}

}  // namespace
}  // namespace inflight::kserve
