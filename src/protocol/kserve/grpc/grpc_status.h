// SPDX-License-Identifier: Apache-2.0
// Our status as a gRPC status: the same text, and the codes of docs/reference/protocol/common.md.
#pragma once

#include <grpcpp/support/status.h>

#include "inflight/status.h"

namespace inflight::kserve_grpc {

::grpc::Status ToGrpcStatus(const Status& status);

// What new calls get from Stop on.
Status Stopping();
::grpc::Status ShuttingDown();  // the same

}  // namespace inflight::kserve_grpc
