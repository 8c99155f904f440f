// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/log_settings.h"

#include <string>

#include "base/log_settings.h"
#include "base/status_macros.h"

namespace inflight::kserve_grpc {
namespace {

using ::inference::LogSettingsRequest;
using Value = LogSettingsRequest::SettingValue;

const Value* Find(const LogSettingsRequest& request, const char* name) {
  const auto found = request.settings().find(name);
  return found == request.settings().end() ? nullptr : &found->second;
}

Status SetFlag(const LogSettingsRequest& request, const char* name, logging::Level level) {
  const Value* value = Find(request, name);
  if (value == nullptr) return Status::Ok();
  if (value->parameter_choice_case() != Value::kBoolParam) {
    return InvalidArgument("expect boolean for '" + std::string(name) + "'");
  }
  logging::SetEnabled(level, value->bool_param());
  return Status::Ok();
}

}  // namespace

Status ApplyLogSettings(const LogSettingsRequest& request) {
  if (Find(request, "log_file") != nullptr) {
    return Unimplemented("log file location can not be updated through network protocol");
  }
  RETURN_IF_ERROR(SetFlag(request, "log_info", logging::Level::kInfo));
  RETURN_IF_ERROR(SetFlag(request, "log_warning", logging::Level::kWarning));
  RETURN_IF_ERROR(SetFlag(request, "log_error", logging::Level::kError));
  if (const Value* level = Find(request, "log_verbose_level")) {
    if (level->parameter_choice_case() != Value::kUint32Param) {
      return InvalidArgument("expect int32 for 'log_verbose_level'");
    }
    logging::SetVerboseLevel(level->uint32_param());
  }
  if (const Value* format = Find(request, "log_format")) {
    if (format->parameter_choice_case() != Value::kStringParam) {
      return InvalidArgument("expect string for 'log_format'");
    }
    const auto found = logging::FindFormat(format->string_param());
    if (!found) {
      return InvalidArgument("invalid argument for log_format, got: " + format->string_param());
    }
    logging::SetFormat(*found);
  }
  return Status::Ok();
}

void WriteLogSettings(::inference::LogSettingsResponse& response) {
  const logging::Settings settings = logging::CurrentSettings();
  auto& out = *response.mutable_settings();
  out["log_file"].set_string_param(settings.file);
  out["log_info"].set_bool_param(settings.info);
  out["log_warning"].set_bool_param(settings.warning);
  out["log_error"].set_bool_param(settings.error);
  out["log_verbose_level"].set_uint32_param(settings.verbose_level);
  out["log_format"].set_string_param(std::string(logging::FormatName(settings.format)));
}

}  // namespace inflight::kserve_grpc
