// SPDX-License-Identifier: Apache-2.0
// Metadata of the server and of a model (docs/reference/protocol/http.md, "Health and metadata").
#include "json/json_writer.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/model_tensors.h"
#include "protocol/kserve/http/response.h"
#include "serving/tensors/data_types.h"

namespace inflight::kserve_http {
namespace {

template <typename Ios>
void WriteTensors(const ::inference::ModelConfig& config, const Ios& ios, json::Writer& out) {
  out.BeginArray();
  for (const auto& io : ios) {
    out.BeginObject();
    out.Key("name").String(io.name());
    out.Key("datatype").String(serving::DataTypeName(serving::FromProto(io.data_type())));
    out.Key("shape").BeginArray();
    for (const int64_t dim : MetadataShape(config, io)) out.Int(dim);
    out.EndArray().EndObject();
  }
  out.EndArray();
}

void WriteVersions(const Context& context, const Route& route, json::Writer& out) {
  out.BeginArray();
  if (!route.version.empty()) {
    out.String(route.version);
  } else {
    for (const auto& model : context.server.models()) {
      if (model->name() == route.model && model->ready()) out.String(model->version());
    }
  }
  out.EndArray();
}

}  // namespace

http_listener::HttpResponse HandleServerMetadata(const Context& context, const Route&,
                                                 const http_listener::HttpRequest&) {
  const serving::ServerMetadata& metadata = context.server.metadata();
  std::string body;
  json::Writer out(body);
  out.BeginObject();
  out.Key("name").String(metadata.name);
  out.Key("version").String(metadata.version);
  out.Key("extensions").BeginArray();
  for (const std::string& extension : metadata.extensions) out.String(extension);
  out.EndArray().EndObject();
  return Answer(200, kJson, std::move(body));
}

http_listener::HttpResponse HandleModelMetadata(const Context& context, const Route& route,
                                                const http_listener::HttpRequest&) {
  const auto model = context.server.FindModel(route.model, route.version);
  if (!model.ok()) return Error(model.status());
  const ::inference::ModelConfig& config = (*model)->config();
  std::string body;
  json::Writer out(body);
  out.BeginObject();
  out.Key("name").String(config.name());
  out.Key("versions");
  WriteVersions(context, route, out);
  out.Key("platform").String(config.platform().empty() ? config.backend() : config.platform());
  out.Key("inputs");
  WriteTensors(config, config.input(), out);
  out.Key("outputs");
  WriteTensors(config, config.output(), out);
  out.EndObject();
  return Answer(200, kJson, std::move(body));
}

}  // namespace inflight::kserve_http
