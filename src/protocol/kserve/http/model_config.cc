// SPDX-License-Identifier: Apache-2.0
// The configuration of a model (docs/reference/protocol/http.md, "Configurations").
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "json/json_writer.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/model_config_json.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

namespace pb = ::google::protobuf;

void WriteMessage(const pb::Message& message, json::Writer& out);

// A singular field, or element `index` of a repeated one.
class FieldReader {
 public:
  FieldReader(const pb::Message& message, const pb::FieldDescriptor& field, int index)
      : message_(message), field_(field), index_(index) {}

  void Write(json::Writer& out) const {
    const pb::Reflection& r = *message_.GetReflection();
    const bool is_repeated = field_.is_repeated();
    switch (field_.cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_INT32:
        out.Int(is_repeated ? r.GetRepeatedInt32(message_, &field_, index_)
                            : r.GetInt32(message_, &field_));
        break;
      case pb::FieldDescriptor::CPPTYPE_INT64:
        out.Int(is_repeated ? r.GetRepeatedInt64(message_, &field_, index_)
                            : r.GetInt64(message_, &field_));
        break;
      case pb::FieldDescriptor::CPPTYPE_UINT32:
        out.Uint(is_repeated ? r.GetRepeatedUInt32(message_, &field_, index_)
                             : r.GetUInt32(message_, &field_));
        break;
      case pb::FieldDescriptor::CPPTYPE_UINT64:
        out.Uint(is_repeated ? r.GetRepeatedUInt64(message_, &field_, index_)
                             : r.GetUInt64(message_, &field_));
        break;
      case pb::FieldDescriptor::CPPTYPE_FLOAT:
        out.Double(is_repeated ? r.GetRepeatedFloat(message_, &field_, index_)
                               : r.GetFloat(message_, &field_));
        break;
      case pb::FieldDescriptor::CPPTYPE_DOUBLE:
        out.Double(is_repeated ? r.GetRepeatedDouble(message_, &field_, index_)
                               : r.GetDouble(message_, &field_));
        break;
      case pb::FieldDescriptor::CPPTYPE_BOOL:
        out.Bool(is_repeated ? r.GetRepeatedBool(message_, &field_, index_)
                             : r.GetBool(message_, &field_));
        break;
      case pb::FieldDescriptor::CPPTYPE_ENUM:
        out.String((is_repeated ? r.GetRepeatedEnum(message_, &field_, index_)
                                : r.GetEnum(message_, &field_))
                       ->name());
        break;
      case pb::FieldDescriptor::CPPTYPE_STRING:
        out.String(is_repeated ? r.GetRepeatedString(message_, &field_, index_)
                               : r.GetString(message_, &field_));
        break;
      case pb::FieldDescriptor::CPPTYPE_MESSAGE:
        WriteMessage(is_repeated ? r.GetRepeatedMessage(message_, &field_, index_)
                                 : r.GetMessage(message_, &field_),
                     out);
        break;
    }
  }

 private:
  const pb::Message& message_;
  const pb::FieldDescriptor& field_;
  const int index_;
};

// {"<key>": value, ...}; keys are strings whatever their type.
void WriteMap(const pb::Message& message, const pb::FieldDescriptor& field, json::Writer& out) {
  const pb::Reflection& r = *message.GetReflection();
  out.BeginObject();
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    const pb::Message& entry = r.GetRepeatedMessage(message, &field, i);
    const pb::FieldDescriptor* key = entry.GetDescriptor()->map_key();
    std::string key_text;
    json::Writer key_writer(key_text);
    FieldReader(entry, *key, 0).Write(key_writer);
    if (key->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING) {
      key_text = entry.GetReflection()->GetString(entry, key);
    }
    out.Key(key_text);
    FieldReader(entry, *entry.GetDescriptor()->map_value(), 0).Write(out);
  }
  out.EndObject();
}

void WriteRepeated(const pb::Message& message, const pb::FieldDescriptor& field,
                   json::Writer& out) {
  out.BeginArray();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    FieldReader(message, field, i).Write(out);
  }
  out.EndArray();
}

// All fields but unset messages and unset members of a oneof.
void WriteMessage(const pb::Message& message, json::Writer& out) {
  const pb::Descriptor& type = *message.GetDescriptor();
  out.BeginObject();
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    if (field.has_presence() && !message.GetReflection()->HasField(message, &field)) continue;
    out.Key(field.name());
    if (field.is_map()) {
      WriteMap(message, field, out);
    } else if (field.is_repeated()) {
      WriteRepeated(message, field, out);
    } else {
      FieldReader(message, field, 0).Write(out);
    }
  }
  out.EndObject();
}

}  // namespace

std::string ModelConfigJson(const ::inference::ModelConfig& config) {
  std::string body;
  json::Writer out(body);
  WriteMessage(config, out);
  return body;
}

http_listener::HttpResponse HandleModelConfig(const Context& context, const Route& route,
                                              const http_listener::HttpRequest&) {
  const auto model = context.server.FindModel(route.model, route.version);
  if (!model.ok()) return Error(model.status());
  return Answer(200, kJson, ModelConfigJson((*model)->complete_config()));
}

}  // namespace inflight::kserve_http
