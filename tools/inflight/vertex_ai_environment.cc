// SPDX-License-Identifier: Apache-2.0
#include "vertex_ai_environment.h"

#include <charconv>

#include "environment.h"

namespace inflight::tool {

Status SetFromVertexAi(ServeOptions& options) {
  if (Environment("AIP_MODE") == "PREDICTION") {
    options.allow_vertex_ai = true;
    options.allow_http = false;
    options.allow_grpc = false;
  }
  const std::string port = Environment("AIP_HTTP_PORT");
  if (port.empty()) return Status::Ok();
  const char* end = port.data() + port.size();
  const auto [parsed, error] = std::from_chars(port.data(), end, options.vertex_ai.port);
  const bool is_port = error == std::errc{} && parsed == end && options.vertex_ai.port >= 0 &&
                       options.vertex_ai.port <= 65535;
  if (is_port) return Status::Ok();
  return InvalidArgument("AIP_HTTP_PORT: got '" + port + "', a port is 0 to 65535");
}

void AddVertexAiStorage(ServeOptions& options) {
  if (!options.allow_vertex_ai || !options.server.model_dirs.empty() ||
      !options.server.model_repositories.empty()) {
    return;
  }
  const std::string storage = Environment("AIP_STORAGE_URI");
  if (!storage.empty()) options.server.model_repositories.push_back(storage);
}

}  // namespace inflight::tool
