// SPDX-License-Identifier: Apache-2.0
#include "shadow_of.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/status_macros.h"
#include "protocol/http_client/http_client.h"
#include "shadow/grpc_call.h"

namespace inflight::tool {
namespace {

constexpr char kUrl[] = "--shadow-of";

// Where this process reaches a port of its own that listens on `address`.
std::string OwnHost(const std::string& address) {
  if (address == kEveryInterface) return kThisMachine;
  return address == "::" ? "::1" : address;
}

shadow::ShadowOptions RulesOf(const ServeOptions& options) {
  shadow::ShadowOptions shadow;
  shadow.rules.ignored = options.shadow_ignore;
  return shadow;
}

}  // namespace

void AddShadowOf(config::Schema<ServeOptions>& schema) {
  schema.Section("Shadow");
  schema.Add(
      "shadow_of", [](ServeOptions& o) -> auto& { return o.shadow_of; },
      "URL of another server, such as http://triton:8000 or grpc://triton:8001: clients of "
      "--shadow-port get its answers, this server is asked the same, and differences are told "
      "(docs/shadow.md).");
  schema.Add(
      "shadow_port", [](ServeOptions& o) -> auto& { return o.shadow_port; },
      "Port for those clients, at the address of HTTP or, for a server over gRPC, of gRPC; 0 picks "
      "a free one.",
      config::Range(0, 65535));
  schema.Add(
      "shadow_report", [](ServeOptions& o) -> auto& { return o.shadow_report; },
      "File for a line of JSON for each of their requests.");
  schema.Add(
      "shadow_ignore", [](ServeOptions& o) -> auto& { return o.shadow_ignore; },
      "Member of JSON that is not compared, wherever it stands.");
}

const std::string& ShadowAddress(const ServeOptions& options) {
  return shadow::IsGrpcUrl(options.shadow_of) ? options.grpc.address : options.http.address;
}

Status CheckShadowOf(const ServeOptions& options) {
  const std::string& url = options.shadow_of;
  if (url.empty()) {
    if (!options.shadow_port && options.shadow_report.empty() && options.shadow_ignore.empty())
      return Status::Ok();
    return InvalidArgument(kUrl, "is needed with the other options of a shadow");
  }
  if (!options.shadow_port)
    return InvalidArgument("--shadow-port", "is needed with --shadow-of: clients are sent there");
  const bool is_grpc = shadow::IsGrpcUrl(url);
  if (is_grpc ? !options.allow_grpc : !options.allow_http)
    return InvalidArgument(
        kUrl, fmt::format("got '{}', which is compared over a port that --allow-{}=false leaves "
                          "out",
                          url, is_grpc ? "grpc" : "http"));
  if ((is_grpc ? options.grpc.tls : options.http.tls).is_on())
    return InvalidArgument(kUrl, fmt::format("asks this server without TLS: leave --{}-use-ssl out",
                                             is_grpc ? "grpc" : "http"));
  return (is_grpc ? shadow::ParseGrpcUrl(url).status() : http_client::ParseUrl(url).status())
      .WithPrefix(kUrl);
}

ShadowOf::ShadowOf(File report) : file_(std::move(report)), report_(stdout, file_.get()) {}

ShadowOf::~ShadowOf() = default;

Result<std::unique_ptr<ShadowOf>> ShadowOf::Start(const ServeOptions& options, int http_port,
                                                  int grpc_port) {
  if (options.shadow_of.empty()) return std::unique_ptr<ShadowOf>();
  File file(nullptr, std::fclose);
  if (!options.shadow_report.empty()) {
    file.reset(std::fopen(options.shadow_report.c_str(), "w"));
    if (file == nullptr)
      return NotFound("--shadow-report: cannot write '" + options.shadow_report + "'");
  }
  std::unique_ptr<ShadowOf> made(new ShadowOf(std::move(file)));
  if (shadow::IsGrpcUrl(options.shadow_of)) {
    shadow::GrpcProxyOptions proxy;
    proxy.listener.address = ShadowAddress(options);
    proxy.listener.port = *options.shadow_port;
    ASSIGN_OR_RETURN(proxy.old_server, shadow::ParseGrpcUrl(options.shadow_of));
    proxy.new_server = {.host = OwnHost(ShadowAddress(options)), .port = grpc_port};
    proxy.shadow = RulesOf(options);
    ASSIGN_OR_RETURN(made->grpc_, shadow::GrpcProxy::Start(proxy, made->report_));
    return made;
  }
  shadow::ProxyOptions proxy;
  proxy.listener.address = ShadowAddress(options);
  proxy.listener.port = *options.shadow_port;
  proxy.shadow = RulesOf(options);
  ASSIGN_OR_RETURN(proxy.shadow.old_server, http_client::ParseUrl(options.shadow_of));
  proxy.shadow.new_server = {.host = OwnHost(ShadowAddress(options)),
                             .port = std::to_string(http_port)};
  ASSIGN_OR_RETURN(made->http_, shadow::Proxy::Start(proxy, made->report_));
  return made;
}

int ShadowOf::port() const { return http_ != nullptr ? http_->port() : grpc_->port(); }

void ShadowOf::Stop(std::chrono::milliseconds drain) {
  if (http_ != nullptr) http_->Stop(drain);
  if (grpc_ != nullptr) grpc_->Stop(drain);
  report_.PrintSummary();
  std::fflush(stdout);
}

}  // namespace inflight::tool
