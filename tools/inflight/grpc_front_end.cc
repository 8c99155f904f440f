// SPDX-License-Identifier: Apache-2.0
#include "grpc_front_end.h"

#include <string>

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
  kserve_grpc::GrpcOptions grpc;
  grpc.address = options.grpc.address;
  grpc.port = options.grpc.port;
  grpc.reuse_port = options.grpc_reuse_port;
  grpc.keepalive_time_ms = options.grpc_keepalive_time_ms;
  grpc.keepalive_timeout_ms = options.grpc_keepalive_timeout_ms;
  grpc.keepalive_permit_without_calls = options.grpc_keepalive_permit_without_calls;
  grpc.http2_max_pings_without_data = options.grpc_http2_max_pings_without_data;
  grpc.http2_min_recv_ping_interval_without_data_ms =
      options.grpc_http2_min_recv_ping_interval_without_data_ms;
  grpc.http2_max_ping_strikes = options.grpc_http2_max_ping_strikes;
  grpc.max_connection_age_ms = options.grpc_max_connection_age_ms;
  grpc.max_connection_age_grace_ms = options.grpc_max_connection_age_grace_ms;
  grpc.max_message_bytes = options.grpc_max_input_bytes;
  grpc.max_total_bytes = options.grpc_max_total_input_bytes;
  grpc.max_connections = options.grpc_max_connections;
  grpc.max_calls = options.grpc_max_calls;
  grpc.max_concurrent_streams = options.grpc_max_concurrent_streams;
  grpc.max_pending_responses = options.grpc_max_response_pool_size;
  grpc.response_compression = options.grpc_response_compression;
  grpc.tls = {.is_enabled = options.grpc_use_ssl,
              .wants_client_cert = options.grpc_use_ssl_mutual,
              .server_cert = options.grpc_server_cert,
              .server_key = options.grpc_server_key,
              .root_cert = options.grpc_root_cert};
  ASSIGN_OR_RETURN(grpc.restrictions,
                   kserve::Restrictions::Parse(options.grpc_restricted_protocol));
  ASSIGN_OR_RETURN(grpc.header_forward,
                   kserve::HeaderForward::Make(options.grpc_header_forward_pattern));
  ASSIGN_OR_RETURN(auto started, kserve_grpc::GrpcServer::Start(server, grpc));
  return std::unique_ptr<GrpcFrontEnd>(std::make_unique<FrontEnd>(std::move(started)));
}

}  // namespace inflight::tool
