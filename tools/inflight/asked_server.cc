// SPDX-License-Identifier: Apache-2.0
#include "asked_server.h"

#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"
#include "environment.h"

namespace inflight::tool {

Result<std::string> KeyIn(const std::string& path) {
  constexpr uint64_t kMaxKeyBytes = 4096;
  if (path.empty()) return std::string();
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxKeyBytes));
  return text.substr(0, text.find_first_of("\r\n"));
}

Result<AskedServer> AskedServer::Of(const std::string& api_key_file, int patience_s) {
  ASSIGN_OR_RETURN(
      auto http,
      object_store::HttpClient::Make(
          {.slow_s = patience_s, .ca_file = Environment("SSL_CERT_FILE"), .is_cancelled = {}}));
  ASSIGN_OR_RETURN(std::string key, KeyIn(api_key_file));
  return AskedServer(std::move(http), std::move(key), patience_s);
}

Result<object_store::HttpResponse> AskedServer::Ask(const std::string& url, const char* method) {
  const bool has_scheme = url.find("://") != std::string::npos;
  object_store::HttpRequest request = object_store::RequestTo(has_scheme ? url : "http://" + url);
  request.method = method;
  if (!key_.empty()) request.headers = {{"authorization", "Bearer " + key_}};
  const std::string_view host = object_store::HostOf(request.origin);
  const bool is_here =
      host.starts_with("localhost") || host.starts_with("127.") || host.starts_with("[::1]");
  auto response = http_->Send(request, {.connect_timeout_ms = 3000,
                                        .timeout_ms = patience_s_ * 1000,
                                        .is_of_this_machine = is_here});
  if (response.ok() || response.status().code() != StatusCode::kUnavailable) return response;
  return Unavailable(response.status().message() + kNoServer);
}

}  // namespace inflight::tool
