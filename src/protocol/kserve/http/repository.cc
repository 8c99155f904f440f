// SPDX-License-Identifier: Apache-2.0
// The list of models (docs/reference/protocol/http.md, "Index").
#include "base/status_macros.h"
#include "json/json_reader.h"
#include "json/json_writer.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

Result<bool> ParseReadyOnly(const std::string& body) {
  if (body.empty()) return false;
  ASSIGN_OR_RETURN(const json::Value root, json::Value::Parse(body));
  const auto [ready] = root.Pick<1>({"ready"});
  if (!ready) return false;
  auto value = ready->AsBool();
  if (!value.ok()) return InvalidArgument("Invalid value for 'ready': expected a boolean");
  return value;
}

}  // namespace

http_listener::HttpResponse HandleIndex(const Context& context, const Route&,
                                        const http_listener::HttpRequest& request) {
  const auto ready_only = ParseReadyOnly(*request.body);
  if (!ready_only.ok()) return Error(ready_only.status());
  if (const Status usable = context.server.CheckUsable(); !usable.ok()) return Error(usable);
  std::string body;
  json::Writer out(body);
  out.BeginArray();
  for (const serving::IndexEntry& entry : context.server.Index(*ready_only)) {
    out.BeginObject();
    out.Key("name").String(entry.name);
    if (!entry.version.empty()) out.Key("version").String(entry.version);
    if (!entry.state.empty()) out.Key("state").String(entry.state);
    if (!entry.reason.empty()) out.Key("reason").String(entry.reason);
    out.EndObject();
  }
  out.EndArray();
  return Answer(200, kJson, std::move(body));
}

}  // namespace inflight::kserve_http
