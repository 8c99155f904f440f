// SPDX-License-Identifier: Apache-2.0
#include "protocol/page/page_handler.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "protocol/page/embedded_files.h"
#include "protocol/page/static_files.h"

namespace inflight::page {
namespace {

using http_listener::Headers;
using http_listener::HttpRequest;
using http_listener::HttpResponse;
using testing::HasSubstr;

class Kept final : public http_listener::HttpResponder {
 public:
  void Send(HttpResponse response) override { answer = std::move(response); }
  void StartStream(int, const Headers&) override {}
  void WriteChunk(std::string_view) override {}
  void Finish() override {}
  void OnDisconnect(std::function<void()>) override {}
  void OnSent(std::function<void()>) override {}

  HttpResponse answer;
};

std::string HeaderOf(const HttpResponse& response, std::string_view name) {
  for (const auto& [key, value] : response.headers)
    if (key == name) return value;
  return "";
}

HttpResponse Ask(std::string method, std::string target, Headers headers = {},
                 PageOptions options = {}) {
  const auto handler = MakeHandler(std::move(options));
  const auto kept = std::make_shared<Kept>();
  handler->Handle(
      {.method = std::move(method), .target = std::move(target), .headers = std::move(headers)},
      kept);
  return kept->answer;
}

TEST(PageHandlerTest, TheRootIsForWhoAsksForHtml) {
  const auto handler = MakeHandler({});
  const auto serves = [&](std::string target, Headers headers) {
    return handler->Serves(
        {.method = "GET", .target = std::move(target), .headers = std::move(headers)});
  };
  EXPECT_TRUE(serves("/", {{"Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}}));
  EXPECT_FALSE(serves("/", {{"Accept", "*/*"}})) << "curl";
  EXPECT_FALSE(serves("/", {}));
  EXPECT_TRUE(serves("/docs", {}));
  EXPECT_TRUE(serves("/page/page.css?v=1", {}));
  for (const char* path : {"/page", "/page/", "/page/a/b", "/docs/", "/v2", "/metrics"})
    EXPECT_FALSE(serves(path, {})) << path;
}

TEST(PageHandlerTest, AFileComesOnceAndIsKnownByItsTag) {
  const HttpResponse first = Ask("GET", "/docs");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(HeaderOf(first, "Content-Type"), "text/html; charset=utf-8");
  EXPECT_THAT(HeaderOf(first, "Content-Security-Policy"), HasSubstr("default-src 'none'"));
  const std::string tag = HeaderOf(first, "ETag");
  const HttpResponse again = Ask("GET", "/docs", {{"If-None-Match", "\"a\", W/" + tag}});
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.num_bytes(), 0U);
  EXPECT_EQ(HeaderOf(again, "ETag"), tag);
  EXPECT_EQ(Ask("GET", "/docs", {{"If-None-Match", "\"a\""}}).status, 200);
}

TEST(PageHandlerTest, AFileIsPackedForWhoTakesGzip) {
  const HttpResponse plain = Ask("GET", "/openapi.json");
  const HttpResponse packed = Ask("GET", "/openapi.json", {{"Accept-Encoding", "gzip, br"}});
  EXPECT_EQ(HeaderOf(packed, "Content-Encoding"), "gzip");
  EXPECT_LT(packed.num_bytes(), plain.num_bytes() / 2);
  EXPECT_NE(HeaderOf(packed, "ETag"), HeaderOf(plain, "ETag"));
}

TEST(PageHandlerTest, OtherMethodsAndFilesAreTold) {
  const HttpResponse post = Ask("POST", "/docs");
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(HeaderOf(post, "Allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(Ask("HEAD", "/docs").status, 200);
  EXPECT_EQ(HeaderOf(Ask("OPTIONS", "/docs"), "Allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(Ask("GET", "/page/none.js").status, 404);
  EXPECT_EQ(Ask("GET", "/page/..").status, 404);
}

TEST(PageHandlerTest, MetricsAreThereWhereTheyAreGiven) {
  const HttpResponse none = Ask("GET", "/page/metrics");
  EXPECT_EQ(none.status, 404);
  EXPECT_THAT(none.body, HasSubstr("--http-metrics"));
  PageOptions options;
  options.metrics_page = [](bool) { return std::string("a 1\n"); };
  EXPECT_EQ(Ask("GET", "/page/metrics", {}, options).body, "a 1\n");
}

TEST(PageHandlerTest, AnotherNameOfTheServerIsRefused) {
  PageOptions options;
  options.access.web_pages.knows_its_names = true;
  EXPECT_EQ(Ask("GET", "/docs", {{"Host", "evil.example"}}, options).status, 403);
  EXPECT_EQ(Ask("GET", "/docs", {{"Host", "localhost:8000"}}, options).status, 200);
}

// Model text never becomes markup: no file of the page has a sink for it.
TEST(PageHandlerTest, NoScriptWritesMarkup) {
  int num_scripts = 0;
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    if (!file.name.ends_with(".js")) continue;
    ++num_scripts;
    for (const char* sink : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                             "eval(", "new Function", "srcdoc", "https://"})
      EXPECT_EQ(file.bytes.find(sink), std::string_view::npos) << file.name << " has " << sink;
  }
  EXPECT_GT(num_scripts, 0);
}

}  // namespace
}  // namespace inflight::page
