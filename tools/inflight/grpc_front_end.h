// SPDX-License-Identifier: Apache-2.0
// The gRPC port as the options of `inflight serve` ask for it.
#pragma once

#include <memory>

#include "protocol/kserve/grpc/grpc_server.h"
#include "serve_options.h"
#include "serving/server/server.h"

namespace inflight::tool {

Result<std::unique_ptr<kserve_grpc::GrpcServer>> StartGrpc(serving::Server& server,
                                                           const ServeOptions& options);

}  // namespace inflight::tool
