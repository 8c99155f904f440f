// SPDX-License-Identifier: Apache-2.0
// Options of `inflight serve`: Triton's flags with their meaning (those of
// triton-inference-server/server/src/command_line_parser.cc), and ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"
#include "quantization_options.h"
#include "serving/repository/server_options.h"

namespace inflight::tool {

struct ListenerOptions {
  bool allow = true;
  std::string address = "0.0.0.0";
  int port = 0;
};

struct ServeOptions {
  serving::ServerOptions server;
  QuantizationOptions quantization;
  std::string model_control_mode = "none";
  bool disable_auto_complete_config = false;
  std::optional<bool> strict_model_config;  // former flag of the same
  ListenerOptions http{.port = 8000};
  ListenerOptions grpc{.port = 8001};
  ListenerOptions metrics{.address = "", .port = 8002};  // address: the HTTP one where empty
  int http_threads = 0;
  std::vector<std::string> http_restricted_api;
  std::string http_header_forward_pattern;
  int64_t http_max_input_bytes = 64 << 20;
  int http_max_connections = 16384;
  int64_t http_max_total_input_bytes = int64_t{8} << 30;
  int64_t http_max_stream_buffer_bytes = 4 << 20;
  int http_header_timeout_ms = 30'000;
  int http_body_timeout_ms = 60'000;
  int http_idle_timeout_ms = 0;
  int http_write_timeout_ms = 60'000;
  bool http_reuse_port = false;
  bool grpc_reuse_port = false;
  std::vector<std::string> grpc_restricted_protocol;
  std::string grpc_header_forward_pattern;
  int64_t grpc_keepalive_time_ms = 7200000;
  int64_t grpc_keepalive_timeout_ms = 20000;
  bool grpc_keepalive_permit_without_calls = false;
  int grpc_http2_max_pings_without_data = 2;
  int64_t grpc_http2_min_recv_ping_interval_without_data_ms = 300000;
  int grpc_http2_max_ping_strikes = 2;
  std::optional<int64_t> grpc_max_connection_age_ms;
  std::optional<int64_t> grpc_max_connection_age_grace_ms;
  bool grpc_use_ssl = false;
  bool grpc_use_ssl_mutual = false;
  std::string grpc_server_cert;
  std::string grpc_server_key;
  std::string grpc_root_cert;
  std::string grpc_response_compression = "none";
  int grpc_max_input_bytes = 2147483647;
  int64_t grpc_max_total_input_bytes = int64_t{8} << 30;
  int grpc_max_connections = 16384;
  int grpc_max_calls = 16384;
  std::optional<int> grpc_max_concurrent_streams;
  int grpc_max_response_pool_size = 16384;
  ListenerOptions sagemaker{.allow = false, .port = 8080};
  std::string sagemaker_safe_port_range;
  int sagemaker_threads = 0;
  ListenerOptions vertex_ai{.allow = false, .port = 8080};
  int vertex_ai_threads = 0;
  std::string vertex_ai_default_model;
  bool metrics_failure_reasons = true;
  int metrics_interval_ms = 2000;
  std::vector<std::string> metrics_config;
  bool allow_gpu_metrics = true;
  bool allow_cpu_metrics = true;
  std::vector<std::string> cache_config;
  int64_t response_cache_byte_size = 0;
  std::vector<std::string> trace_config;
  // Former flags of the same settings.
  std::string trace_file;
  std::vector<std::string> trace_level;
  std::string trace_rate;
  std::string trace_count;
  std::string trace_log_frequency;
  int exit_timeout_secs = 30;
  int log_verbose = 0;
  bool log_info = true;
  bool log_warning = true;
  bool log_error = true;
  std::string log_format = "default";
  std::string log_file;
  std::vector<config::WithoutEffect> without_effect;  // flags of tritonserver that were given
  std::vector<std::string> backend_config;
  std::string rate_limit = "off";
  std::vector<std::string> rate_limit_resource;
  // Written when ready: the ports in use, for callers that asked for any free one.
  std::string port_file;
};

config::Schema<ServeOptions> ServeSchema();

}  // namespace inflight::tool
