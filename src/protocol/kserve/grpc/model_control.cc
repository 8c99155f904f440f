// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/model_control.h"

#include <string>
#include <string_view>

#include "base/status_macros.h"

namespace inflight::kserve_grpc {
namespace {

using ::inference::ModelRepositoryParameter;

constexpr std::string_view kFile = "file:";

Status WrongType(const std::string& name, const char* expected) {
  return InvalidArgument("invalid value type for load parameter '" + name + "', expected " +
                         expected + ".");
}

}  // namespace

Status CheckRepository(const std::string& name) {
  if (name.empty()) return Status::Ok();
  return Unimplemented("'repository_name' specification is not supported");
}

Result<serving::LoadOverride> ParseLoad(const ::inference::RepositoryModelLoadRequest& request) {
  RETURN_IF_ERROR(CheckRepository(request.repository_name()));
  serving::LoadOverride override;
  for (const auto& [name, value] : request.parameters()) {
    if (name == "config") {
      if (value.parameter_choice_case() != ModelRepositoryParameter::kStringParam) {
        return WrongType(name, "string_param");
      }
      override.config_json = value.string_param();
    } else if (name.starts_with(kFile)) {
      if (value.parameter_choice_case() != ModelRepositoryParameter::kBytesParam) {
        return WrongType(name, "bytes_param");
      }
      override.files[name.substr(kFile.size())] = value.bytes_param();
    } else {
      return InvalidArgument("unrecognized load parameter '" + name + "'.");
    }
  }
  return override;
}

Result<bool> ParseUnload(const ::inference::RepositoryModelUnloadRequest& request) {
  RETURN_IF_ERROR(CheckRepository(request.repository_name()));
  const auto found = request.parameters().find("unload_dependents");
  if (found == request.parameters().end()) return false;
  if (found->second.parameter_choice_case() != ModelRepositoryParameter::kBoolParam) {
    return InvalidArgument(
        "invalid value type for 'unload_dependents' parameter, expected bool_param.");
  }
  return found->second.bool_param();
}

}  // namespace inflight::kserve_grpc
