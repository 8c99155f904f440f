// SPDX-License-Identifier: Apache-2.0
#include "protocol/vertex_ai/redirect.h"

#include <string>

namespace inflight::vertex_ai {

using kserve_http::Endpoint;

std::optional<kserve_http::Route> FindRedirect(std::string_view path) {
  auto route = kserve_http::FindRoute("/" + std::string(path));
  if (!route) return std::nullopt;
  switch (route->endpoint) {
    case Endpoint::kLive:
    case Endpoint::kReady:
    case Endpoint::kServerMetadata:
    case Endpoint::kModelMetadata:
    case Endpoint::kModelReady:
    case Endpoint::kModelConfig:
    case Endpoint::kStatistics:
    case Endpoint::kInfer:
    case Endpoint::kIndex:
    case Endpoint::kLoad:
    case Endpoint::kUnload:
    case Endpoint::kSharedMemoryStatus:
    case Endpoint::kSharedMemoryRegister:
    case Endpoint::kSharedMemoryUnregister:
      return route;
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
    case Endpoint::kTraceSetting:
    case Endpoint::kLogging:
      break;
  }
  return std::nullopt;
}

}  // namespace inflight::vertex_ai
