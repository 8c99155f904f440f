// SPDX-License-Identifier: Apache-2.0
#include "reach.h"

#include "base/log.h"
#include "protocol/tcp_listener/endpoints.h"
#include "shadow_of.h"

namespace inflight::tool {
namespace {

using tcp_listener::IsLoopback;

struct ReachedPort {
  const char* name;
  std::string address;
  bool is_served;
  bool is_plain = true;
  bool infers = true;
};

// Those of the ports that other machines reach and that `is_meant`: "HTTP, metrics".
std::string PortsInReach(const ServeOptions& options, bool (*is_meant)(const ReachedPort& port)) {
  const ReachedPort ports[] = {
      {"HTTP", options.http.address, options.allow_http, !options.http.tls.is_on()},
      {"gRPC", options.grpc.address, options.allow_grpc, !options.grpc.tls.is_on()},
      {"metrics", MetricsAddress(options), options.allow_metrics,
       !options.metrics.listener.tls.is_on(), /*infers=*/false},
      {"admin", AdminAddress(options), options.admin_port.has_value(), !options.http.tls.is_on()},
      {"SageMaker", options.sagemaker.address, options.allow_sagemaker},
      {"Vertex AI", options.vertex_ai.address, options.allow_vertex_ai},
      {"cog", options.cog.listener.address, options.cog_port.has_value()},
      {"OpenAI", options.openai.address, options.openai_port.has_value(),
       !options.http.tls.is_on()},
      {"shadow", ShadowAddress(options), options.shadow_port.has_value()},
  };
  std::string names;
  for (const ReachedPort& port : ports) {
    if (!port.is_served || !is_meant(port) || IsLoopback(port.address)) continue;
    names += (names.empty() ? "" : ", ") + std::string(port.name);
  }
  return names;
}

}  // namespace

const std::string& MetricsAddress(const ServeOptions& options) {
  const std::string& own = options.metrics.listener.address;
  return own.empty() ? options.http.address : own;
}

std::string AdminAddress(const ServeOptions& options) {
  return options.admin_address.value_or(kThisMachine);
}

std::string AdminPlace(const ServeOptions& options) {
  std::string place = options.admin_port ? "the port of --admin-port" : "";
  if (options.admin_socket.empty()) return place;
  return place + (place.empty() ? "" : " and ") + "the socket of --admin-socket";
}

void LogReach(const ServeOptions& options) {
  const std::string admin = AdminPlace(options);
  if (!admin.empty()) {
    if (options.admin_port && !IsLoopback(AdminAddress(options)) &&
        !options.policy->asks_for_keys()) {
      logging::Warning(
          "--admin-port can be reached from other machines: whoever reaches it may load models and "
          "change settings (--access asks for keys)");
    }
    logging::Info(
        "the index, load and unload of models, trace and log settings and profiles are answered "
        "on " +
        admin + " alone");
  }
  const std::string open =
      PortsInReach(options, [](const ReachedPort& port) { return port.infers; });
  if (options.policy->asks_for_keys()) {
    logging::Info(
        "HTTP, gRPC and metrics serve by keys: --access and --api-key-file say who may what");
    const auto is_plain = [](const ReachedPort& port) { return port.is_plain; };
    if (const std::string plain = PortsInReach(options, is_plain); !plain.empty()) {
      logging::Warning(
          "keys go over the network as they are: give ports TLS (--http-use-ssl, "
          "--grpc-use-ssl, --metrics-use-ssl), put a proxy with TLS before those of platforms, or "
          "listen on 127.0.0.1",
          {{"ports", plain}});
    }
  } else if (!open.empty()) {
    logging::Info("ports can be reached from other machines: whoever reaches them may infer" +
                      std::string(admin.empty() ? ", load models and change settings" : "") +
                      " (--api-key-file and --access ask for keys), but for what "
                      "--http-restricted-api and --grpc-restricted-protocol ask a header for",
                  {{"ports", open}});
  } else if (options.allow_http || options.allow_grpc) {
    logging::Info(
        "HTTP and gRPC can be reached from this machine alone; --http-address 0.0.0.0 and "
        "--grpc-address 0.0.0.0 open them");
  }
}

}  // namespace inflight::tool
