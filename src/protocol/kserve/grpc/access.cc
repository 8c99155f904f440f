// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/access.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/letter_case.h"
#include "base/status_macros.h"

namespace inflight::kserve_grpc {
namespace {

constexpr char kPrefix[] = "triton-grpc-protocol-";

std::string_view AuthorizationOf(const grpc_listener::Rpc& rpc) {
  const std::string* authorization = rpc.FindMetadata("authorization");
  return authorization != nullptr ? std::string_view(*authorization) : std::string_view();
}

}  // namespace

Status CheckAccess(const Access& access, kserve::Api api, const grpc_listener::Rpc& rpc) {
  if (access.policy != nullptr) {
    RETURN_IF_ERROR(access.policy->Admit(AuthorizationOf(rpc), kserve::RoleOf(api)).status);
  }
  const kserve::RequiredHeader* required = access.restrictions.Of(api);
  if (required == nullptr) return Status::Ok();
  std::string key = kPrefix + required->name;
  std::transform(key.begin(), key.end(), key.begin(), AsciiLower);  // as all metadata keys are
  const auto& metadata = rpc.metadata();
  if (std::any_of(metadata.begin(), metadata.end(), [&](const auto& entry) {
        return entry.first == key && entry.second == required->value;
      })) {
    return Status::Ok();
  }
  return Unavailable("This protocol is restricted, expecting header '" + key + "'");
}

std::shared_ptr<const Client> ClientOf(const Access& access, const grpc_listener::Rpc& rpc) {
  if (access.policy == nullptr) return {};
  return access.policy->Check(AuthorizationOf(rpc), kserve::Role::kInference).client;
}

Result<serving::Parameters> ForwardedParameters(const Access& access,
                                                const grpc_listener::Rpc& rpc) {
  serving::Parameters parameters;
  if (access.header_forward.empty()) return parameters;
  for (const auto& [name, value] : rpc.metadata()) {
    ASSIGN_OR_RETURN(const bool goes, access.header_forward.Matches(name));
    if (goes) parameters[name] = value;
  }
  return parameters;
}

}  // namespace inflight::kserve_grpc
