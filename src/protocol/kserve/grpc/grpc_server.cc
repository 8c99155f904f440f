// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "protocol/kserve/grpc/acceptor.h"
#include "protocol/kserve/grpc/inference_service.h"
#include "protocol/kserve/grpc/thread_memory.h"
#include "protocol/kserve/grpc/tls.h"

namespace inflight::kserve_grpc {
namespace {

Status CheckRange(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return Status::Ok();
  return InvalidArgument(std::string(name) + ": got " + std::to_string(value) + ", allowed are " +
                         std::to_string(min) + " to " + std::to_string(max));
}

Status CheckOptions(const GrpcOptions& o) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();  // gRPC's channel arguments are int
  RETURN_IF_ERROR(CheckRange("grpc-port", o.port, 0, 65535));
  RETURN_IF_ERROR(CheckRange("grpc max_message_bytes", o.max_message_bytes, 1, kMax));
  RETURN_IF_ERROR(CheckRange("grpc-keepalive-time", o.keepalive_time_ms, 1, kMax));
  RETURN_IF_ERROR(CheckRange("grpc-keepalive-timeout", o.keepalive_timeout_ms, 1, kMax));
  RETURN_IF_ERROR(
      CheckRange("grpc-http2-max-pings-without-data", o.http2_max_pings_without_data, 0, kMax));
  RETURN_IF_ERROR(CheckRange("grpc-http2-min-recv-ping-interval-without-data",
                             o.http2_min_recv_ping_interval_without_data_ms, 0, kMax));
  RETURN_IF_ERROR(CheckRange("grpc-http2-max-ping-strikes", o.http2_max_ping_strikes, 0, kMax));
  RETURN_IF_ERROR(
      CheckRange("grpc-max-connection-age", o.max_connection_age_ms.value_or(1), 1, kMax));
  RETURN_IF_ERROR(CheckRange("grpc-max-connection-age-grace",
                             o.max_connection_age_grace_ms.value_or(0), 0, kMax));
  RETURN_IF_ERROR(CheckRange("grpc-max-connections", o.max_connections, 1, kMax));
  RETURN_IF_ERROR(CheckRange("grpc-max-calls", o.max_calls, 1, kMax));
  RETURN_IF_ERROR(
      CheckRange("grpc-max-concurrent-streams", o.max_concurrent_streams.value_or(1), 1, kMax));
  RETURN_IF_ERROR(CheckRange("grpc-max-response-pool-size", o.max_pending_responses, 1, kMax));
  return CheckRange("grpc max_pending_response_bytes", o.max_pending_response_bytes, 1,
                    std::numeric_limits<int64_t>::max());
}

Result<grpc_compression_level> CompressionLevel(const std::string& name) {
  static constexpr std::pair<const char*, grpc_compression_level> kLevels[] = {
      {"none", GRPC_COMPRESS_LEVEL_NONE},
      {"low", GRPC_COMPRESS_LEVEL_LOW},
      {"medium", GRPC_COMPRESS_LEVEL_MED},
      {"high", GRPC_COMPRESS_LEVEL_HIGH}};
  for (const auto& [known, level] : kLevels) {
    if (name == known) return level;
  }
  return InvalidArgument("grpc-infer-response-compression-level: got '" + name +
                         "', allowed are none, low, medium and high");
}

void SetChannelArguments(const GrpcOptions& o, ::grpc::ServerBuilder& builder) {
  const auto set = [&builder](const char* key, int64_t value) {
    builder.AddChannelArgument(key, static_cast<int>(value));
  };
  set(GRPC_ARG_KEEPALIVE_TIME_MS, o.keepalive_time_ms);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, o.keepalive_timeout_ms);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, o.keepalive_permit_without_calls ? 1 : 0);
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, o.http2_max_pings_without_data);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      o.http2_min_recv_ping_interval_without_data_ms);
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, o.http2_max_ping_strikes);
  if (o.max_concurrent_streams) set(GRPC_ARG_MAX_CONCURRENT_STREAMS, *o.max_concurrent_streams);
  if (o.max_connection_age_ms) set(GRPC_ARG_MAX_CONNECTION_AGE_MS, *o.max_connection_age_ms);
  if (o.max_connection_age_grace_ms) {
    set(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, *o.max_connection_age_grace_ms);
  }
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // message_bytes.h unpacks, within the limit
  builder.SetMaxReceiveMessageSize(o.max_message_bytes);
  builder.SetMaxSendMessageSize(-1);
  builder.SetResourceQuota(
      ::grpc::ResourceQuota("inflight").Resize(static_cast<size_t>(o.max_total_bytes)));
}

// gRPC looks at certificates where it listens itself, else when the first client comes.
bool CanListenWith(const std::shared_ptr<::grpc::ServerCredentials>& credentials) {
  ::grpc::ServerBuilder builder;
  ::grpc::CallbackGenericService service;  // there has to be one
  builder.RegisterCallbackGenericService(&service);
  builder.AddListeningPort("unix-abstract:inflight-tls-" + std::to_string(getpid()), credentials);
  return builder.BuildAndStart() != nullptr;
}

// gRPC's own lines (a peer's broken HTTP/2, a refused bind) are for debugging: what concerns an
// operator comes back as a status and is reported once, by us.
void LogToVerbose(gpr_log_func_args* args) {
  logging::Verbose("gRPC", {{"file", args->file}, {"line", args->line}, {"text", args->message}});
}

}  // namespace

class GrpcServer::Impl {
 public:
  Impl(serving::Server& server, const GrpcOptions& options, grpc_compression_level compression)
      : access_{options.policy, options.restrictions, options.header_forward},
        calls_(static_cast<size_t>(options.max_calls)),
        service_(server, calls_,
                 {.max_message_bytes = options.max_message_bytes,
                  .max_pending_responses = options.max_pending_responses,
                  .max_pending_bytes = static_cast<size_t>(options.max_pending_response_bytes)},
                 access_, options.memory != nullptr ? options.memory : MemoryAccount::Make({}),
                 compression) {}

  Status Listen(const GrpcOptions& options) {
    gpr_set_log_function(LogToVerbose);
    ASSIGN_OR_RETURN(const auto credentials, MakeCredentials(options.tls));
    auto acceptor = Acceptor::Listen({.address = options.address,
                                      .port = options.port,
                                      .reuse_port = options.reuse_port,
                                      .max_connections = options.max_connections});
    if (!acceptor.ok()) {
      return Unavailable("grpc: cannot listen on " + options.address + ":" +
                         std::to_string(options.port) + ": " + acceptor.status().message() +
                         "; is the port taken or the address not this machine's? choose others "
                         "with --grpc-port and --grpc-address");
    }
    if (!options.tls.server_cert.empty() && !CanListenWith(credentials)) {
      return Unavailable(
          "grpc: cannot listen with TLS: do --grpc-server-cert and --grpc-server-key belong to "
          "each "
          "other?");
    }
    ::grpc::ServerBuilder builder;
    SetChannelArguments(options, builder);
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        ::grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    builder.RegisterService(&service_);
    grpc_ = builder.BuildAndStart();
    if (grpc_ == nullptr) {
      return Unavailable("grpc: the server does not start (--log-verbose=1 tells why)");
    }
    acceptor_ = *std::move(acceptor);
    acceptor_->Start([this](int socket) {
      ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = socket;
      connections_->HandleNewConnection(&connection);
    });
    memory_.emplace(*grpc_);
    return Status::Ok();
  }

  void Stop(int64_t drain_ms) {
    if (grpc_ == nullptr) return;
    memory_.reset();
    calls_.Stop();
    if (!calls_.WaitUntilIdle(std::chrono::milliseconds(drain_ms))) {
      logging::Warning("gRPC calls were still running after the drain time and are cancelled",
                       {{"drain_ms", drain_ms}});
    }
    acceptor_->Stop();
    grpc_->Shutdown(std::chrono::system_clock::now());  // cancels what is open, waits for its end
    grpc_.reset();
  }

  int port() const { return acceptor_->port(); }

 private:
  const Access access_;
  ActiveCalls calls_;
  InferenceService service_;
  std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<Acceptor> acceptor_;  // ends after gRPC has
  std::unique_ptr<::grpc::Server> grpc_;
  std::optional<ThreadMemory> memory_;
};

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(serving::Server& server,
                                                      const GrpcOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const grpc_compression_level compression,
                   CompressionLevel(options.response_compression));
  auto impl = std::make_unique<Impl>(server, options, compression);
  RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() { Stop(0); }
int GrpcServer::port() const { return impl_->port(); }
void GrpcServer::Stop(int64_t drain_ms) { impl_->Stop(drain_ms); }

}  // namespace inflight::kserve_grpc
