// SPDX-License-Identifier: Apache-2.0
// What browsers send is by the Fetch standard: Origin with every POST and DELETE, and of content
// types without a preflight text/plain, application/x-www-form-urlencoded and multipart/form-data.
#include "protocol/kserve/http/web_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::kserve_http {
namespace {

using http_listener::Headers;
using http_listener::HttpRequest;
using kserve::Api;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// The error, "" where the request may pass.
std::string Ask(const WebPageRule& rule, Api api, Headers headers, const char* method = "POST",
                const char* host = "127.0.0.1:8000") {
  if (host != nullptr) headers.emplace_back("host", host);
  const Status status = rule.Check({.method = method, .target = "/", .headers = headers}, api);
  EXPECT_EQ(status.code(), status.ok() ? StatusCode::kOk : StatusCode::kPermissionDenied);
  return status.message();
}

const Headers kJsonBody = {{"Content-Type", "application/json"}};
const char* const kSimpleTypes[] = {"text/plain", "application/x-www-form-urlencoded",
                                    "multipart/form-data; boundary=x"};

Headers From(const std::string& origin, Headers headers = kJsonBody) {
  headers.emplace_back("Origin", origin);
  return headers;
}

TEST(WebPages, PagesOfOriginsThatMayReadMayCall) {
  WebPageRule rule;
  rule.cors_origins = *http_listener::CrossOrigins::Make({"https://ui.example", "*"});
  EXPECT_THAT(Ask(rule, Api::kLogging, From("https://ui.example")), IsEmpty());
  EXPECT_THAT(Ask(rule, Api::kInference, From("https://any.example")), IsEmpty());
  EXPECT_THAT(Ask(rule, Api::kInference, From("null")), IsEmpty());
  EXPECT_THAT(Ask(rule, Api::kLogging, From("https://any.example")), StartsWith("Origin: got '"));
  EXPECT_THAT(Ask(rule, Api::kLogging, From("http://ui.example")), StartsWith("Origin: got '"));
}

TEST(WebPages, PagesOfOtherHostsAreRefused) {
  const WebPageRule rule;
  for (const char* origin :
       {"http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:3000",
        "http://127.0.0.1:8000.evil.example", "http://evil.example:8000", "127.0.0.1:8000", "",
        "http://evil@127.0.0.1:8000", "https://127.0.0.1", "http://[::1]:8000"}) {
    for (const Api api : {Api::kInference, Api::kLogging, Api::kModelRepository}) {
      EXPECT_THAT(Ask(rule, api, From(origin)), StartsWith("Origin: got '")) << origin;
      EXPECT_THAT(Ask(rule, api, From(origin), "DELETE"), HasSubstr("--http-allowed-host"));
    }
    EXPECT_THAT(Ask(rule, Api::kHealth, From(origin), "GET"), IsEmpty()) << origin;
  }
  EXPECT_THAT(Ask(rule, Api::kInference, From("http://a.example"), "POST", nullptr),
              StartsWith("Origin: "));
}

TEST(WebPages, TheServersOwnPagesMayCallIt) {
  const WebPageRule rule;
  const auto ask = [&](const char* origin, const char* host) {
    return Ask(rule, Api::kLogging, From(origin), "POST", host);
  };
  EXPECT_THAT(ask("http://127.0.0.1:8000", "127.0.0.1:8000"), IsEmpty());
  EXPECT_THAT(ask("http://[::1]:8000", "[::1]:8000"), IsEmpty());
  EXPECT_THAT(ask("https://llm.example", "llm.example"), IsEmpty());  // behind a proxy with TLS
  EXPECT_THAT(ask("https://llm.example", "LLM.example:443"), IsEmpty());
  EXPECT_THAT(ask("http://llm.example:80", "llm.example"), IsEmpty());
  EXPECT_THAT(ask("https://llm.example", "llm.example:80"), StartsWith("Origin: "));
}

TEST(WebPages, PagesOfAllowedHostsMayCallIt) {
  const WebPageRule rule{.allowed_hosts = {"UI.example"}};
  for (const char* origin :
       {"http://ui.example", "https://ui.example:3000", "https://UI.EXAMPLE"}) {
    EXPECT_THAT(Ask(rule, Api::kInference, From(origin)), IsEmpty()) << origin;
  }
  for (const char* origin : {"http://x.ui.example", "http://ui.example.evil", "http://xui.example"})
    EXPECT_THAT(Ask(rule, Api::kInference, From(origin)), StartsWith("Origin: ")) << origin;
}

TEST(WebPages, ABrowserThatNamesNoOriginNamesTheSite) {
  const WebPageRule rule;
  for (const char* site : {"cross-site", "same-site"}) {
    EXPECT_THAT(Ask(rule, Api::kInference, {{"Sec-Fetch-Site", site}}),
                StartsWith("Sec-Fetch-Site: got '" + std::string(site)));
  }
  EXPECT_THAT(Ask(rule, Api::kInference, {{"Sec-Fetch-Site", "same-origin"}}), IsEmpty());
}

// A page of the server's own too.
TEST(WebPages, WhatAPageChangesComesAsJson) {
  const WebPageRule rule;
  const auto ask = [&](Api api, http_listener::Headers headers) {
    return Ask(rule, api, From("http://127.0.0.1:8000", std::move(headers)), "POST",
               "127.0.0.1:8000");
  };
  for (const Api api : {Api::kModelRepository, Api::kLogging, Api::kSharedMemory}) {
    for (const char* type : kSimpleTypes) {
      const std::string error = ask(api, {{"Content-Type", type}});
      EXPECT_THAT(error, StartsWith("Content-Type: got '" + std::string(type) + "'"));
      EXPECT_THAT(error, HasSubstr("needs 'application/json'"));
      EXPECT_THAT(Ask(rule, api, {{"Content-Type", type}, {"Sec-Fetch-Site", "same-origin"}}),
                  StartsWith("Content-Type: got '" + std::string(type) + "'"));
    }
    EXPECT_THAT(ask(api, {{"Content-Type", "application/jsonp"}}), HasSubstr("Content-Type"));
    for (const char* type :
         {"application/json", "Application/JSON; charset=utf-8", "application/octet-stream"})
      EXPECT_THAT(ask(api, {{"Content-Type", type}}), IsEmpty());
    EXPECT_THAT(ask(api, {}), HasSubstr("Content-Type"));
    EXPECT_THAT(Ask(rule, api, {{"Sec-Fetch-Site", "same-origin"}}), HasSubstr("Content-Type"));
  }
}

// tritonclient, `curl -X POST`, and `curl -d`, which says that it sends a form.
TEST(WebPages, WhatNoPageAsksComesAsAnything) {
  for (const Api api : {Api::kModelRepository, Api::kLogging, Api::kSharedMemory}) {
    EXPECT_THAT(Ask({}, api, {}), IsEmpty());
    for (const char* type : kSimpleTypes)
      EXPECT_THAT(Ask({}, api, {{"Content-Type", type}}), IsEmpty());
  }
}

// `curl -d`, and tensors behind JSON.
TEST(WebPages, InferenceTakesAnyTypeFromWhatIsNoPage) {
  for (const char* type : {kSimpleTypes[0], kSimpleTypes[1], "application/octet-stream", ""}) {
    EXPECT_THAT(Ask({}, Api::kInference, {{"Content-Type", type}}), IsEmpty());
    EXPECT_THAT(Ask({}, Api::kInference, From("http://evil.example", {{"Content-Type", type}})),
                StartsWith("Origin: "));
  }
}

// A name that DNS first gives for evil.example's server, then for 127.0.0.1, has a page whose
// Origin and Host agree.
TEST(WebPages, AServerOfThisMachineIsCalledByNamesItKnows) {
  const WebPageRule rule{.allowed_hosts = {"llm.example"}, .knows_its_names = true};
  const auto ask = [&](const char* host, const char* method) {
    return Ask(rule, Api::kMetrics, From("http://" + std::string(host)), method, host);
  };
  for (const char* method : {"GET", "POST"}) {
    for (const char* host : {"127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000", "localhost:8000",
                             "LOCALHOST", "localhost.", "10.1.2.3:1", "llm.example:9000"}) {
      EXPECT_THAT(ask(host, method), IsEmpty()) << host;
    }
    for (const char* host :
         {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
          "xllm.example", "", "a", "127.1", "[evil.example]"}) {
      const std::string error = ask(host, method);
      EXPECT_THAT(error, StartsWith("Host: got '" + std::string(host) + "'")) << host;
      EXPECT_THAT(error, HasSubstr("--http-allowed-host NAME"));
    }
  }
  EXPECT_THAT(Ask(rule, Api::kInference, {}, "POST", nullptr), IsEmpty());  // HTTP/1.0
  EXPECT_THAT(Ask({}, Api::kInference, {}, "POST", "evil.example"), IsEmpty());
}

TEST(WebPages, AnErrorQuotesLittle) {
  EXPECT_LT(Ask({}, Api::kInference, From(std::string(9000, 'x'))).size(), 500U);
}

TEST(WebPages, AllowedHostsAreBareNames) {
  for (const char* name : {"a.example", "host", "xn--bcher-kva.example"})
    EXPECT_TRUE(CheckHostName(name).ok()) << name;
  for (const char* name : {"", "http://a.example", "a.example:80", "*.example", "a b", "a@b"}) {
    EXPECT_THAT(CheckHostName(name).message(),
                StartsWith("--http-allowed-host: got '" + std::string(name) + "'"));
  }
}

}  // namespace
}  // namespace inflight::kserve_http
