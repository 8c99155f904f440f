// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/access.h"

#include "base/status_macros.h"

namespace inflight::kserve_grpc {

kserve::Admission Admit(const Access& access, kserve::Api api, const grpc_listener::Rpc& rpc) {
  return access.policy->Admit({.entrance = kserve::Entrance::kGrpc, .headers = rpc.metadata()},
                              api);
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
