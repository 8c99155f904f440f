// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/metrics_server.h"

#include <string>
#include <utility>

#include "base/status_macros.h"
#include "protocol/metrics/metrics_page.h"

namespace inflight::metrics {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;

constexpr size_t kMaxBodyBytes = 64 * 1024;  // of requests that have no use for one

HttpResponse TextError(int status, std::string_view message) {
  return {.status = status,
          .headers = {{"Content-Type", "text/plain"}},
          .body = R"({"error":")" + std::string(message) + "\"}"};
}

}  // namespace

class MetricsServer::Handler : public http_listener::HttpHandler {
 public:
  Handler(const serving::Server& server, const MetricsOptions& options)
      : server_(server),
        page_(options.page),
        machine_(options.machine),
        admit_(options.admit),
        sees_reuse_(options.sees_reuse) {}

  size_t MaxBodyBytes(const HttpRequest&) const override { return kMaxBodyBytes; }
  HttpResponse BodyTooLarge(const HttpRequest&, std::optional<uint64_t>) const override {
    return TextError(400, "request body exceeds the maximum of 65536 bytes");
  }
  HttpResponse BadRequest(std::string_view) const override {
    return TextError(400, "malformed HTTP request");
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    if (request.method != "GET") return responder->Send(TextError(405, "Method Not Allowed"));
    if (admit_) {
      if (auto refusal = admit_(request)) return responder->Send(*std::move(refusal));
    }
    HttpResponse response{.headers = {{"Content-Type", "text/plain; charset=utf-8"}}};
    const std::string_view path = request.path();
    // Other paths are empty pages, as in Triton.
    if (path == "/metrics" || path == "/metrics/")
      response.body = Page(!sees_reuse_ || sees_reuse_(request));
    responder->Send(std::move(response));
  }

  std::string Page(bool with_reuse) const {
    const MachineReadings readings = machine_.readings();
    PageOptions page = page_;
    page.with_reuse = with_reuse;
    for (const GpuReading& gpu : readings.gpus) page.gpu_uuids.push_back(gpu.uuid);
    TextWriter machine;
    WriteMachine(readings, machine);
    return MetricsPage(server_, page) + machine.Take();
  }

 private:
  const serving::Server& server_;
  const PageOptions page_;
  const MachineMonitor machine_;
  const decltype(MetricsOptions::admit) admit_;
  const decltype(MetricsOptions::sees_reuse) sees_reuse_;
};

MetricsServer::MetricsServer(std::unique_ptr<Handler> handler, const Handler& same)
    : ListeningServer(std::move(handler)), handler_(same) {}

std::string MetricsServer::Page(bool with_reuse) const { return handler_.Page(with_reuse); }

Result<std::unique_ptr<MetricsServer>> MetricsServer::Start(const serving::Server& server,
                                                            const MetricsOptions& options) {
  auto handler = std::make_unique<Handler>(server, options);
  const Handler& same = *handler;
  std::unique_ptr<MetricsServer> metrics_server(new MetricsServer(std::move(handler), same));
  RETURN_IF_ERROR(metrics_server->Listen(options.listener));
  return metrics_server;
}

}  // namespace inflight::metrics
