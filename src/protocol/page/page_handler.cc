// SPDX-License-Identifier: Apache-2.0
#include "protocol/page/page_handler.h"

#include <optional>
#include <utility>

#include "protocol/kserve/http/response.h"
#include "protocol/page/static_files.h"

namespace inflight::page {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;
using http_listener::kGet;

// clang-format off
constexpr Route kRoutes[] = {
    {"/", kGet, "page.html"},
    {"/docs", kGet, "docs.html"},
    {"/openapi.json", kGet, "openapi.json"},
    {"/page/metrics", kGet, ""},
    {"/page/{file}", kGet, ""},
};
// clang-format on
constexpr std::string_view kMetricsPath = "/page/metrics";
constexpr size_t kMaxBodyBytes = 64 * 1024;  // of requests that have no use for one

bool AsksForHtml(const HttpRequest& head) {
  const std::string* accept = head.FindHeader("Accept");
  return accept != nullptr && accept->find("text/html") != std::string::npos;
}

class Handler final : public http_listener::PathHandler {
 public:
  explicit Handler(PageOptions options) : options_(std::move(options)) {}

  bool Serves(const HttpRequest& head) const override {
    const std::string_view path = head.path();
    if (path == "/") return AsksForHtml(head);
    return router_.Find("GET", path).has_value();
  }

  size_t MaxBodyBytes(const HttpRequest&) const override { return kMaxBodyBytes; }
  HttpResponse BodyTooLarge(const HttpRequest&, std::optional<uint64_t>) const override {
    return kserve_http::Error(InvalidArgument("the body exceeds the maximum of 65536 bytes"));
  }
  HttpResponse BadRequest(std::string_view reason) const override {
    return kserve_http::Error(InvalidArgument(std::string(reason)));
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    responder->Send(Answer(request));
  }

 private:
  HttpResponse Answer(HttpRequest& request) {
    // By names that are not the server's, a page of somebody else would read this one.
    if (Status status = options_.access.web_pages.Check(request, kserve::Api::kHealth);
        !status.ok())
      return kserve_http::Error(status);
    const auto match = router_.Find(request.method, request.path());
    if (!match->allows_method) {
      HttpResponse refusal = kserve_http::MethodNotAllowed(kserve_http::kJson);
      refusal.headers.emplace_back("Allow", http_listener::MethodNames(match->methods));
      return refusal;
    }
    if (request.method == "OPTIONS") return http_listener::AnswerOptions(match->methods);
    if (request.path() == kMetricsPath) return Metrics(request);
    const Route& route = kRoutes[match->row];
    const std::string_view name = route.file.empty() ? match->values.Of("file") : route.file;
    if (auto response = files_.Find(name, request)) return *std::move(response);
    return kserve_http::Error(NotFound("Not Found"));
  }

  HttpResponse Metrics(HttpRequest& request) const {
    if (options_.metrics_page == nullptr)
      return kserve_http::Error(
          NotFound("metrics are not at this port: --http-metrics=true brings them here"));
    if (auto refusal = kserve_http::Admit(options_.access, kserve::Api::kMetrics, request))
      return *std::move(refusal);
    HttpResponse response = kserve_http::Answer(
        200, "text/plain; charset=utf-8",
        options_.metrics_page(kserve_http::SeesReuse(options_.access, request)));
    response.headers.emplace_back("Cache-Control", "no-store");
    return response;
  }

  const PageOptions options_;
  const http_listener::Router router_ = http_listener::Router::Of(kRoutes);
  StaticFiles files_;
};

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

std::unique_ptr<http_listener::PathHandler> MakeHandler(PageOptions options) {
  return std::make_unique<Handler>(std::move(options));
}

}  // namespace inflight::page
