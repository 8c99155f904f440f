// SPDX-License-Identifier: Apache-2.0
// Our status as clients are told it over gRPC: the same text, and the codes of
// docs/reference/protocol/common.md.
#pragma once

#include "inflight/status.h"

namespace inflight::kserve_grpc {

Status ToGrpcStatus(const Status& status);

// What new calls get from Stop on.
Status Stopping();

}  // namespace inflight::kserve_grpc
