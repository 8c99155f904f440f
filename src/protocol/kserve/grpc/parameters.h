// SPDX-License-Identifier: Apache-2.0
// Request and response parameters as gRPC messages: which keys the protocol reserves, which member
// of InferParameter each accepts (docs/reference/protocol/grpc.md, "Parameters"), and the way back.
#pragma once

#include <string>

#include "grpc_service.pb.h"
#include "inflight/status.h"
#include "serving/core/request.h"

namespace inflight::kserve_grpc {

using ParameterMap = google::protobuf::Map<std::string, ::inference::InferParameter>;

// Fills the reserved fields of `request`, its custom parameters and `enable_empty_final`
// (`triton_enable_empty_final_response`). kInvalidArgument names the key and what it accepts;
// kUnimplemented for string correlation ids.
Status ParseParameters(const ParameterMap& parameters, serving::Request& request,
                       bool& enable_empty_final);

void WriteParameters(const serving::Parameters& parameters, ParameterMap& out);

}  // namespace inflight::kserve_grpc
