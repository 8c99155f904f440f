// SPDX-License-Identifier: Apache-2.0
// Loading and unloading models (docs/reference/protocol/http.md, "load, unload").
#include <string>
#include <utility>

#include "base/base64.h"
#include "base/status_macros.h"
#include "json/json_reader.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

using http_listener::HttpResponse;
using json::Value;

constexpr std::string_view kFile = "file:";

Status CheckRepository(const Route& route) {
  if (route.repository.empty()) return Status::Ok();
  return Unimplemented("'repository_name' specification is not supported");
}

Status AddParameter(std::string_view name, const Value& value, serving::LoadOverride& override) {
  const bool is_file = name.starts_with(kFile);
  if (name != "config" && !is_file) {
    return Internal("unexpected error on creating Triton parameter");
  }
  ASSIGN_OR_RETURN(std::string text, value.AsString());
  if (!is_file) {
    override.config_json = std::move(text);
    return Status::Ok();
  }
  auto content = DecodeBase64(text);
  if (!content) return InvalidArgument(std::string(name) + ": the value is not base64");
  override.files[std::string(name.substr(kFile.size()))] = *std::move(content);
  return Status::Ok();
}

Result<serving::LoadOverride> ParseLoad(const std::string& body) {
  serving::LoadOverride override;
  if (body.empty()) return override;
  ASSIGN_OR_RETURN(const Value root, Value::Parse(body));
  const auto [parameters] = root.Pick<1>({"parameters"});
  if (!parameters) return override;
  RETURN_IF_ERROR(parameters->ForEachMember(
      [&](std::string_view name, Value value) { return AddParameter(name, value, override); }));
  return override;
}

// Anything but `true` is false, of whatever type.
Result<bool> ParseUnload(const std::string& body) {
  if (body.empty()) return false;
  ASSIGN_OR_RETURN(const Value root, Value::Parse(body));
  const auto [parameters] = root.Pick<1>({"parameters"});
  if (!parameters) return false;
  const auto [with_steps] = parameters->Pick<1>({"unload_dependents"});
  if (!with_steps) return false;
  const auto value = with_steps->AsBool();
  return value.ok() && *value;
}

}  // namespace

HttpResponse HandleLoad(const Context& context, const Route& route,
                        const http_listener::HttpRequest& request) {
  if (const Status status = CheckRepository(route); !status.ok()) return Error(status);
  const auto override = ParseLoad(*request.body);
  if (!override.ok()) return Error(override.status());
  return Done(serving::AsContractLoadStatus(context.server.LoadModel(route.model, *override)));
}

HttpResponse HandleUnload(const Context& context, const Route& route,
                          const http_listener::HttpRequest& request) {
  if (const Status status = CheckRepository(route); !status.ok()) return Error(status);
  const auto with_steps = ParseUnload(*request.body);
  if (!with_steps.ok()) return Error(with_steps.status());
  return Done(context.server.UnloadModel(route.model, *with_steps));
}

}  // namespace inflight::kserve_http
