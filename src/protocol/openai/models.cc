// SPDX-License-Identifier: Apache-2.0
// GET /v1/models and /v1/models/{id}.
#include <utility>

#include "base/percent_encoding.h"
#include "json/json_writer.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/error.h"

namespace inflight::openai {
namespace {

void WriteModel(const ServedModel& served, int64_t started_s, json::Writer& out) {
  out.BeginObject().Key("id").String(served.name).Key("object").String("model");
  out.Key("created").Int(started_s).Key("owned_by").String("inflight");
  if (!served.parent.empty()) out.Key("parent").String(served.parent);
  out.Key("max_model_len").Int(served.text->limits.max_seq_len).EndObject();
}

}  // namespace

// NOLINTBEGIN(performance-unnecessary-value-param): endpoints have one signature
void HandleModels(const Context& context, const std::string&, const http_listener::HttpRequest&,
                  std::shared_ptr<http_listener::HttpResponder> responder) {
  std::string body;
  json::Writer out(body);
  out.BeginObject().Key("object").String("list").Key("data").BeginArray();
  for (const ServedModel& served : context.models.List())
    WriteModel(served, context.started_s, out);
  for (const ServedModel& adapter : context.models.Adapters())
    WriteModel(adapter, context.started_s, out);
  out.EndArray().EndObject();
  responder->Send(kserve_http::Answer(200, kserve_http::kJson, std::move(body)));
}

void HandleModel(const Context& context, const std::string& model,
                 const http_listener::HttpRequest&,
                 std::shared_ptr<http_listener::HttpResponder> responder) {
  const auto served = context.models.Find(PercentDecode(model));
  if (!served.ok()) return responder->Send(Error(served.status()));
  std::string body;
  json::Writer out(body);
  WriteModel(*served, context.started_s, out);
  responder->Send(kserve_http::Answer(200, kserve_http::kJson, std::move(body)));
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace inflight::openai
