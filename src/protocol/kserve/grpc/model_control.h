// SPDX-License-Identifier: Apache-2.0
// Requests to load and unload models (docs/reference/protocol/grpc.md, "Load and unload").
#pragma once

#include <string>

#include "grpc_service.pb.h"
#include "inflight/status.h"
#include "serving/repository/model_control.h"

namespace inflight::kserve_grpc {

// kUnimplemented for a named repository: there is one list of all.
Status CheckRepository(const std::string& name);

// kUnimplemented for a named repository, kInvalidArgument names the parameter that is none of ours.
Result<serving::LoadOverride> ParseLoad(const ::inference::RepositoryModelLoadRequest& request);

// Whether models that only this ensemble uses go with it.
Result<bool> ParseUnload(const ::inference::RepositoryModelUnloadRequest& request);

}  // namespace inflight::kserve_grpc
