// SPDX-License-Identifier: Apache-2.0
#include "grpc_front_end.h"

#include "base/status_macros.h"

namespace inflight::tool {
Result<std::unique_ptr<kserve_grpc::GrpcServer>> StartGrpc(serving::Server& server,
                                                           const ServeOptions& options) {
  kserve_grpc::GrpcOptions grpc = options.grpc;
  grpc.policy = options.policy;
  grpc.request_log = options.request_log;
  ASSIGN_OR_RETURN(grpc.header_forward,
                   kserve::HeaderForward::Make(options.grpc_header_forward_pattern));
  return kserve_grpc::GrpcServer::Start(server, grpc);
}

}  // namespace inflight::tool
