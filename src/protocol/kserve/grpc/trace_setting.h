// SPDX-License-Identifier: Apache-2.0
// TraceSetting: what is traced, of all models or of one, read and changed
// (docs/reference/protocol/grpc.md, "Trace and log settings").
#pragma once

#include "grpc_service.pb.h"
#include "inflight/status.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

// All settings are changed or, with an error, none; then all that are in force are written.
Status AnswerTraceSetting(const ::inference::TraceSettingRequest& request, serving::Server& server,
                          ::inference::TraceSettingResponse& response);

}  // namespace inflight::kserve_grpc
