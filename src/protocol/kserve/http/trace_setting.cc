// SPDX-License-Identifier: Apache-2.0
// What is traced, read and changed (docs/reference/protocol/http.md, "Trace settings").
#include <array>

#include "base/status_macros.h"
#include "json/json_reader.h"
#include "json/json_writer.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

using json::Value;

constexpr std::array<std::string_view, 5> kSettings = {"trace_file", "trace_level", "trace_rate",
                                                       "trace_count", "log_frequency"};

Result<std::vector<std::string>> ValuesOf(std::string_view name, const Value& value) {
  std::vector<std::string> values;
  if (value.kind() == Value::Kind::kNull) return values;  // clears
  if (name != "trace_level") {
    ASSIGN_OR_RETURN(std::string text, value.AsString());
    values.push_back(std::move(text));
    return values;
  }
  RETURN_IF_ERROR(value.ForEachElement([&](Value element) -> Status {
    ASSIGN_OR_RETURN(std::string level, element.AsString());
    values.push_back(std::move(level));
    return Status::Ok();
  }));
  if (values.empty()) values.emplace_back("OFF");  // no levels, which is not to clear them
  return values;
}

Result<serving::TraceUpdate> Parse(const std::string& body) {
  ASSIGN_OR_RETURN(const Value root, Value::Parse(body));
  const auto members = root.Pick<kSettings.size()>(kSettings);
  serving::TraceUpdate update;
  for (size_t i = 0; i < kSettings.size(); ++i) {
    if (!members[i]) continue;
    ASSIGN_OR_RETURN(const auto values, ValuesOf(kSettings[i], *members[i]));
    RETURN_IF_ERROR(
        serving::ChangeTraceSetting(kSettings[i], values, serving::TraceWords::kHttp, update));
  }
  return update;
}

std::string Write(const serving::Tracer::Description& settings) {
  std::string body;
  json::Writer out(body);
  out.BeginObject();
  for (const auto& [name, values] : settings) {
    out.Key(name);
    if (name != "trace_level") {
      out.String(values.front());
      continue;
    }
    out.BeginArray();
    for (const std::string& level : values) out.String(level);
    out.EndArray();
  }
  out.EndObject();
  return body;
}

}  // namespace

http_listener::HttpResponse HandleTraceSetting(const Context& context, const Route& route,
                                               const http_listener::HttpRequest& request) {
  if (!route.model.empty() && !context.server.FindModel(route.model, {}).ok()) {
    return Error(InvalidArgument("Request for unknown model : " + route.model));
  }
  serving::Tracer& tracer = context.server.tracer();
  if (request.method == "POST") {
    const auto update = Parse(*request.body);
    if (!update.ok()) return Error(update.status());
    tracer.Update(route.model, *update);
  }
  return Answer(200, kJson, Write(tracer.Describe(route.model)));
}

}  // namespace inflight::kserve_http
