// SPDX-License-Identifier: Apache-2.0
// What a call's metadata decides: whether its API is open to the client, and which of the metadata
// the model sees.
#pragma once

#include <memory>

#include "inflight/status.h"
#include "protocol/grpc_listener/rpc.h"
#include "protocol/kserve/access/access_policy.h"
#include "protocol/kserve/access/header_forward.h"
#include "serving/core/request.h"

namespace inflight::kserve_grpc {

struct Access {
  std::shared_ptr<kserve::AccessPolicy> policy;
  kserve::HeaderForward header_forward;
};

// What the policy says of the call's metadata.
kserve::Admission Admit(const Access& access, kserve::Api api, const grpc_listener::Rpc& rpc);

// Metadata that goes to the model as parameters. kInvalidArgument for a reserved name.
Result<serving::Parameters> ForwardedParameters(const Access& access,
                                                const grpc_listener::Rpc& rpc);

}  // namespace inflight::kserve_grpc
