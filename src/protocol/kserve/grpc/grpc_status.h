// SPDX-License-Identifier: Apache-2.0
// Our status as a gRPC status: the same text, and the codes of docs/reference/protocol/common.md.
#pragma once

#include "inflight/status.h"
#include "protocol/grpc_listener/rpc.h"

namespace inflight::kserve_grpc {

using grpc_listener::RpcCode;
using grpc_listener::RpcStatus;

RpcStatus ToGrpcStatus(const Status& status);

// What new calls get from Stop on.
Status Stopping();
RpcStatus ShuttingDown();  // the same

}  // namespace inflight::kserve_grpc
