// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/grpc_server.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "protocol/grpc_listener/grpc_listener.h"
#include "protocol/kserve/grpc/inference_service.h"

namespace inflight::kserve_grpc {
namespace {

Status CheckRange(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return Status::Ok();
  return InvalidArgument(std::string(name) + ": got " + std::to_string(value) + ", allowed are " +
                         std::to_string(min) + " to " + std::to_string(max));
}

Status CheckOptions(const GrpcOptions& o) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
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

Result<CompressionLevel> ParseCompression(const std::string& name) {
  static constexpr std::pair<const char*, CompressionLevel> kLevels[] = {
      {"none", CompressionLevel::kNone},
      {"low", CompressionLevel::kLow},
      {"medium", CompressionLevel::kMedium},
      {"high", CompressionLevel::kHigh}};
  for (const auto& [known, level] : kLevels) {
    if (name == known) return level;
  }
  return InvalidArgument("grpc-infer-response-compression-level: got '" + name +
                         "', allowed are none, low, medium and high");
}

std::optional<std::chrono::milliseconds> ToMs(std::optional<int64_t> count) {
  return count ? std::optional(std::chrono::milliseconds(*count)) : std::nullopt;
}

grpc_listener::KeepaliveOptions ToKeepalive(const GrpcOptions& o) {
  using Ms = std::chrono::milliseconds;
  return {.time = Ms(o.keepalive_time_ms),
          .timeout = Ms(o.keepalive_timeout_ms),
          .permits_without_calls = o.keepalive_permit_without_calls,
          .max_pings_without_data = o.http2_max_pings_without_data,
          .min_ping_interval = Ms(o.http2_min_recv_ping_interval_without_data_ms),
          .max_ping_strikes = o.http2_max_ping_strikes,
          .max_age = ToMs(o.max_connection_age_ms),
          .max_age_grace = ToMs(o.max_connection_age_grace_ms)};
}

// Beside those at which models wait, what others may have made before they are held.
int MostPending(const GrpcOptions& o) {
  const StreamLimits defaults;
  const int more = defaults.max_pending_responses - defaults.held_at_responses;
  const int room = std::numeric_limits<int>::max() - o.max_pending_responses;
  return o.max_pending_responses + std::min(more, room);
}

constexpr std::chrono::milliseconds kFlush{1000};  // for answers that are on their way

}  // namespace

class GrpcServer::Impl {
 public:
  Impl(serving::Server& server, const GrpcOptions& options, CompressionLevel compression)
      : access_{options.policy, options.header_forward},
        calls_(static_cast<size_t>(options.max_calls)),
        service_(server, calls_, access_,
                 {.limits = {.max_message_bytes = options.max_message_bytes,
                             .held_at_responses = options.max_pending_responses,
                             .max_pending_responses = MostPending(options),
                             .max_pending_bytes =
                                 static_cast<size_t>(options.max_pending_response_bytes)},
                  .compression = compression,
                  .with_reflection = options.with_reflection}) {}

  Status Listen(const GrpcOptions& options) {
    ASSIGN_OR_RETURN(auto tls, tls::MakePortTls(options.tls, "h2"));
    auto listener = grpc_listener::GrpcListener::Listen(
        service_, {.address = options.address,
                   .port = options.port,
                   .reuse_port = options.reuse_port,
                   .max_connections = options.max_connections,
                   .session = {.max_message_bytes = static_cast<size_t>(options.max_message_bytes),
                               .max_concurrent_streams = options.max_concurrent_streams,
                               .keepalive = ToKeepalive(options),
                               .request_log = options.request_log},
                   .memory = options.memory,
                   .tls = std::move(tls)});
    if (!listener.ok()) {
      return Unavailable("grpc: cannot listen on " + options.address + ":" +
                         std::to_string(options.port) + ": " + listener.status().message() +
                         "; is the port taken or the address not this machine's? choose others "
                         "with --grpc-port and --grpc-address");
    }
    listener_ = *std::move(listener);
    listener_->Run();
    return Status::Ok();
  }

  void Stop(int64_t drain_ms) {
    if (listener_ == nullptr || std::exchange(is_stopped_, true)) return;
    calls_.Stop();
    const bool is_idle = calls_.WaitUntilIdle(std::chrono::milliseconds(drain_ms));
    if (!is_idle) {
      logging::Warning("gRPC calls were still running after the drain time and are cancelled",
                       {{"drain_ms", drain_ms}});
    }
    listener_->Disconnect(is_idle ? kFlush : std::chrono::milliseconds(0));
    calls_.WaitUntilIdle(
        std::chrono::hours(24));  // what was cancelled ends with its model's answer
    listener_->Stop();
  }

  int port() const { return listener_->port(); }

 private:
  const Access access_;
  ActiveCalls calls_;
  InferenceService service_;
  std::unique_ptr<grpc_listener::GrpcListener> listener_;  // ends before the service
  bool is_stopped_ = false;
};

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(serving::Server& server,
                                                      const GrpcOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const CompressionLevel compression,
                   ParseCompression(options.response_compression));
  auto impl = std::make_unique<Impl>(server, options, compression);
  RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() { Stop(0); }
int GrpcServer::port() const { return impl_->port(); }
void GrpcServer::Stop(int64_t drain_ms) { impl_->Stop(drain_ms); }

}  // namespace inflight::kserve_grpc
