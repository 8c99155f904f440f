// SPDX-License-Identifier: Apache-2.0
// What is logged, read and changed (docs/reference/protocol/http.md, "logging").
#include "base/log_settings.h"
#include "base/status_macros.h"
#include "json/json_reader.h"
#include "json/json_writer.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

using json::Value;

bool IsSet(const std::optional<Value>& value) {
  return value && value->kind() != Value::Kind::kNull;
}

Status SetFlag(const std::optional<Value>& value, logging::Level level) {
  if (!IsSet(value)) return Status::Ok();
  ASSIGN_OR_RETURN(const bool is_enabled, value->AsBool());
  logging::SetEnabled(level, is_enabled);
  return Status::Ok();
}

// One by one: what stands before a faulty member is changed, as Triton leaves it.
Status Apply(const std::string& body) {
  ASSIGN_OR_RETURN(const Value root, Value::Parse(body));
  const auto [file, info, warning, error, verbose, format] = root.Pick<6>(
      {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"});
  if (IsSet(file)) {
    return Unimplemented("log file location can not be updated through network protocol");
  }
  RETURN_IF_ERROR(SetFlag(info, logging::Level::kInfo));
  RETURN_IF_ERROR(SetFlag(warning, logging::Level::kWarning));
  RETURN_IF_ERROR(SetFlag(error, logging::Level::kError));
  if (IsSet(verbose)) {
    ASSIGN_OR_RETURN(const uint64_t level, verbose->AsUint());
    logging::SetVerboseLevel(static_cast<uint32_t>(level));  // cut to 32 bits, as Triton does
  }
  if (IsSet(format)) {
    ASSIGN_OR_RETURN(const std::string name, format->AsString());
    const auto found = logging::FindFormat(name);
    if (!found) return Unavailable("invalid argument for --log_format, got: " + name);
    logging::SetFormat(*found);
  }
  return Status::Ok();
}

}  // namespace

http_listener::HttpResponse HandleLogging(const Context&, const Route&,
                                          const http_listener::HttpRequest& request) {
  if (request.method == "POST") {
    if (const Status status = Apply(*request.body); !status.ok()) return Error(status);
  }
  const logging::Settings settings = logging::CurrentSettings();
  std::string body;
  json::Writer out(body);
  out.BeginObject();
  out.Key("log_file").String(settings.file);
  out.Key("log_info").Bool(settings.info);
  out.Key("log_warning").Bool(settings.warning);
  out.Key("log_error").Bool(settings.error);
  out.Key("log_verbose_level").Uint(settings.verbose_level);
  out.Key("log_format").String(logging::FormatName(settings.format));
  out.EndObject();
  return Answer(200, kJson, std::move(body));
}

}  // namespace inflight::kserve_http
