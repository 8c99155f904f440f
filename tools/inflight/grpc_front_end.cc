// SPDX-License-Identifier: Apache-2.0
#include "grpc_front_end.h"

#include <string>

#include "base/status_macros.h"
#include "protocol/kserve/grpc/grpc_server.h"

namespace inflight::tool {
namespace {

class FrontEnd : public GrpcFrontEnd {
 public:
  explicit FrontEnd(std::unique_ptr<kserve_grpc::GrpcServer> server) : server_(std::move(server)) {}
  int port() const override { return server_->port(); }
  void Stop(int64_t drain_ms) override { server_->Stop(drain_ms); }

 private:
  std::unique_ptr<kserve_grpc::GrpcServer> server_;
};

}  // namespace

Result<std::unique_ptr<GrpcFrontEnd>> StartGrpc(serving::Server& server,
                                                const ServeOptions& options) {
  kserve_grpc::GrpcOptions grpc = options.grpc;
  grpc.policy = options.policy;
  ASSIGN_OR_RETURN(grpc.restrictions,
                   kserve::Restrictions::Parse(options.grpc_restricted_protocol));
  ASSIGN_OR_RETURN(grpc.header_forward,
                   kserve::HeaderForward::Make(options.grpc_header_forward_pattern));
  ASSIGN_OR_RETURN(auto started, kserve_grpc::GrpcServer::Start(server, grpc));
  return std::unique_ptr<GrpcFrontEnd>(std::make_unique<FrontEnd>(std::move(started)));
}

}  // namespace inflight::tool
