// SPDX-License-Identifier: Apache-2.0
// Options of `inflight serve`: Triton's flags with their meaning (those of
// triton-inference-server/server/src/command_line_parser.cc), and ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"
#include "protocol/cog/cog_server.h"
#include "protocol/http_listener/http_listener.h"
#include "protocol/kserve/access/access_policy.h"
#include "protocol/kserve/grpc/grpc_options.h"
#include "protocol/kserve/http/http_server.h"
#include "protocol/metrics/metrics_server.h"
#include "protocol/openai/response_store.h"
#include "protocol/openai/tools.h"
#include "protocol/sagemaker/sagemaker_server.h"
#include "protocol/vertex_ai/vertex_ai_server.h"
#include "quantization_options.h"
#include "serving/repository/server_options.h"

namespace inflight::tool {

// Where HTTP and gRPC listen unless an option says otherwise; started as tritonserver, as that
// does.
constexpr char kThisMachine[] = "127.0.0.1";
constexpr char kEveryInterface[] = "0.0.0.0";

enum class SandboxMode { kOff, kOn, kBestEffort };

struct ServeOptions {
  serving::ServerOptions server;
  QuantizationOptions quantization;
  std::string model_control_mode = "none";
  std::string ranks = "wait";
  bool enable_expert_parallel = false;
  std::vector<std::string> lora_modules;
  std::string lora_dir;
  bool disable_auto_complete_config = false;
  std::optional<bool> strict_model_config;  // former flag of the same

  // --- front ends: what their servers read, with its defaults ---
  kserve::AccessRules access;
  std::shared_ptr<kserve::AccessPolicy> policy;  // of these rules, once they are loaded
  SandboxMode sandbox = SandboxMode::kOff;
  std::vector<std::string> sandbox_read;
  bool allow_http = true;
  http_listener::ListenerOptions http = [] {
    http_listener::ListenerOptions listener = kserve_http::HttpOptions().listener;
    listener.address = kThisMachine;
    return listener;
  }();
  kserve_http::EndpointOptions endpoints;  // of all that speak HTTP
  std::vector<std::string> http_allowed_host;
  std::vector<std::string> cors_origin;
  std::string http_header_forward_pattern;
  // Administration's own places, over HTTP by the limits and the TLS of `http`.
  std::optional<int> admin_port;
  std::optional<std::string> admin_address;
  std::string admin_socket;
  bool allow_grpc = true;
  kserve_grpc::GrpcOptions grpc = {.address = kThisMachine};
  std::string grpc_header_forward_pattern;
  bool allow_metrics = true;
  // An empty address is that of HTTP.
  inflight::metrics::MetricsOptions metrics = [] {
    inflight::metrics::MetricsOptions options;
    options.listener.address.clear();
    return options;
  }();
  // Of the listeners below name, place and threads count; their limits are those of `http`.
  bool allow_sagemaker = false;
  http_listener::ListenerOptions sagemaker = inflight::sagemaker::SageMakerOptions().listener;
  std::string sagemaker_safe_port_range;
  bool allow_vertex_ai = false;
  http_listener::ListenerOptions vertex_ai = inflight::vertex_ai::VertexAiOptions().listener;
  std::string vertex_ai_default_model;
  std::optional<int> cog_port;  // unset: this front end is not there
  cog::CogOptions cog = [] {
    cog::CogOptions options;
    options.listener.address = kThisMachine;
    return options;
  }();

  bool allow_page = true;    // for browsers, beside KServe and OpenAI's API over HTTP
  bool allow_openai = true;  // beside KServe, over HTTP
  openai::MessageFormats message_formats;
  int64_t stored_responses_byte_size = int64_t{64} << 20;  // 0: none are stored
  int64_t stored_responses_secs = 3600;
  std::shared_ptr<openai::ResponseStore> stored_responses;  // of all ports, once it is made
  std::optional<int> openai_port;  // a port of its own; unset: there is none
  http_listener::ListenerOptions openai{.name = "OpenAI", .address = kThisMachine};
  std::vector<std::string> served_model_name;
  std::string model;                         // DIR as an option
  bool download = false;                     // what is named ORG/NAME and is not here
  std::vector<std::string> model_arguments;  // as the command line has them

  std::string shadow_of;  // empty: of none
  std::optional<int> shadow_port;
  std::string shadow_report;
  std::vector<std::string> shadow_ignore;

  std::vector<std::string> metrics_config;
  std::vector<std::string> cache_config;
  std::string prompt_table_dir;
  int64_t response_cache_byte_size = 0;
  int64_t request_memory_byte_size = 0;
  std::vector<std::string> trace_config;
  // Former flags of the same settings.
  std::string trace_file;
  std::vector<std::string> trace_level;
  std::string trace_rate;
  std::string trace_count;
  std::string trace_log_frequency;
  bool http_metrics = false;
  int exit_timeout_secs = 30;
  int exit_delay_secs = 0;
  bool hashes_prompts = false;  // in receipts
  bool request_log = true;      // not where the program is called tritonserver
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
