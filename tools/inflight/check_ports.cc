// SPDX-License-Identifier: Apache-2.0
#include "check_ports.h"

#include <string>
#include <vector>

#include "base/status_macros.h"
#include "protocol/kserve/access/header_forward.h"
#include "reach.h"
#include "shadow_of.h"

namespace inflight::tool {
namespace {

struct Place {
  const char* asked;  // what comes there, in the words of tritonserver
  std::string address;
  int port = 0;  // 0: one is picked
};

std::vector<Place> PlacesOf(const ServeOptions& options) {
  std::vector<Place> places;
  const auto add = [&](bool is_there, const char* asked, const std::string& address, int port) {
    if (is_there && port != 0) places.push_back({asked, address, port});
  };
  add(options.allow_http, "HTTP requests", options.http.address, options.http.port);
  add(options.allow_grpc, "GRPC requests", options.grpc.address, options.grpc.port);
  add(options.allow_metrics, "metrics requests", MetricsAddress(options),
      options.metrics.listener.port);
  add(options.allow_sagemaker, "SageMaker requests", options.sagemaker.address,
      options.sagemaker.port);
  add(options.allow_vertex_ai, "Vertex AI requests", options.vertex_ai.address,
      options.vertex_ai.port);
  add(options.cog_port.has_value(), "cog requests", options.cog.listener.address,
      options.cog_port.value_or(0));
  add(options.openai_port.has_value(), "OpenAI requests", options.openai.address,
      options.openai_port.value_or(0));
  add(options.shadow_port.has_value(), "requests of a shadow", ShadowAddress(options),
      options.shadow_port.value_or(0));
  return places;
}

}  // namespace

Status CheckPorts(const ServeOptions& options) {
  RETURN_IF_ERROR(CheckShadowOf(options));
  const std::vector<Place> places = PlacesOf(options);
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = i + 1; j < places.size(); ++j) {
      if (places[i].address != places[j].address || places[i].port != places[j].port) continue;
      return InvalidArgument(std::string("The server cannot listen to ") + places[i].asked +
                             " and " + places[j].asked + " at the same address and port " +
                             places[i].address + ":" + std::to_string(places[i].port));
    }
  }
  RETURN_IF_ERROR(kserve::HeaderForward::Make(options.http_header_forward_pattern)
                      .status()
                      .WithPrefix("--http-header-forward-pattern"));
  return kserve::HeaderForward::Make(options.grpc_header_forward_pattern)
      .status()
      .WithPrefix("--grpc-header-forward-pattern");
}

}  // namespace inflight::tool
