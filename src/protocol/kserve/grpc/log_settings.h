// SPDX-License-Identifier: Apache-2.0
// LogSettings: what is logged, read and changed while the server runs
// (docs/reference/protocol/grpc.md, "Trace and log settings").
#pragma once

#include "grpc_service.pb.h"
#include "inflight/status.h"

namespace inflight::kserve_grpc {

// One by one: what comes before a faulty setting is changed, as Triton leaves it. Unknown ones are
// passed over.
Status ApplyLogSettings(const ::inference::LogSettingsRequest& request);

void WriteLogSettings(::inference::LogSettingsResponse& response);

}  // namespace inflight::kserve_grpc
