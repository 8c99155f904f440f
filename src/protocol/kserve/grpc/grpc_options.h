// SPDX-License-Identifier: Apache-2.0
// What a gRPC server is told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/memory_account.h"
#include "protocol/kserve/access/access_policy.h"
#include "protocol/kserve/access/header_forward.h"
#include "protocol/tls/port_tls.h"

namespace inflight::kserve_grpc {

// Defaults: docs/reference/protocol/grpc.md, "Channel".
struct GrpcOptions {
  std::string address = "0.0.0.0";  // a host, an IPv6 address, or gRPC's `ipv6:[::1]`
  int port = 8001;                  // 0 = one is picked
  bool reuse_port = false;          // share the port with other processes (SO_REUSEPORT)

  // A further one takes the place of one of the client that has most: one without calls, or where
  // that has more than its own, the one whose last bytes came longest ago; else it is closed.
  int max_connections = 16384;

  int max_message_bytes = 64 << 20;  // of a request, unpacked; responses have no bound

  // Charged with what connections hold. Null: one of the server's own, with the default limits.
  std::shared_ptr<MemoryAccount> memory;

  int64_t keepalive_time_ms = 7200000;
  int64_t keepalive_timeout_ms = 20000;
  bool keepalive_permit_without_calls = false;
  int http2_max_pings_without_data = 2;
  int64_t http2_min_recv_ping_interval_without_data_ms = 300000;
  int http2_max_ping_strikes = 2;
  std::optional<int64_t> max_connection_age_ms;
  std::optional<int64_t> max_connection_age_grace_ms;

  tls::PortTlsOptions tls{.port = "grpc"};
  // Of responses to inference, by an algorithm that the client takes: none, low, medium or high.
  // --grpc-infer-response-compression-level
  std::string response_compression = "none";

  int max_calls = 16384;  // of inference at a time; further ones are UNAVAILABLE
  // Calls of one connection at a time, of any kind; clients keep further ones waiting. None: as
  // many as they like.
  std::optional<int> max_concurrent_streams;

  // Of one stream, whose client does not read: its model waits then, an LLM too, or its requests
  // are cancelled (StreamLimits).
  int max_pending_responses = 16384;
  int64_t max_pending_response_bytes = int64_t{256} << 20;

  bool request_log = false;      // a line for each call that ends
  bool with_reflection = false;  // the services describe themselves to whoever asks

  std::shared_ptr<kserve::AccessPolicy> policy = std::make_shared<kserve::AccessPolicy>();
  kserve::HeaderForward header_forward;  // --grpc-header-forward-pattern
};

}  // namespace inflight::kserve_grpc
