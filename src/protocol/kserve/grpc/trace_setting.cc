// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/trace_setting.h"

#include "base/status_macros.h"

namespace inflight::kserve_grpc {

Status AnswerTraceSetting(const ::inference::TraceSettingRequest& request, serving::Server& server,
                          ::inference::TraceSettingResponse& response) {
  const std::string& model = request.model_name();
  if (!model.empty() && !server.FindModel(model, {}).ok()) {
    return InvalidArgument("Request for unknown model : " + model);
  }
  if (!request.settings().empty()) {
    serving::TraceUpdate update;
    for (const auto& [name, setting] : request.settings()) {
      const std::vector<std::string> values(setting.value().begin(), setting.value().end());
      RETURN_IF_ERROR(
          serving::ChangeTraceSetting(name, values, serving::TraceWords::kGrpc, update));
    }
    server.tracer().Update(model, update);
  }
  for (const auto& [name, values] : server.tracer().Describe(model)) {
    auto& out = (*response.mutable_settings())[name];
    for (const std::string& value : values) out.add_value(value);
  }
  return Status::Ok();
}

}  // namespace inflight::kserve_grpc
