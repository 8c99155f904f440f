// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/route.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace inflight::kserve_http {
namespace {

using Segments = std::vector<std::string_view>;

// "/v2/models/m" -> {"v2", "models", "m"}; empty when a segment is empty.
Segments Split(std::string_view path) {
  constexpr size_t kMaxSegments = 8;  // the longest route has seven
  Segments segments;
  while (path.starts_with('/') && segments.size() < kMaxSegments) {
    path.remove_prefix(1);
    const size_t length = std::min(path.find('/'), path.size());
    if (length == 0) return {};
    segments.push_back(path.substr(0, length));
    path.remove_prefix(length);
  }
  return path.empty() ? segments : Segments{};
}

std::optional<std::string> ParseVersion(std::string_view text) {
  if (text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  return std::string(text.substr(std::min(text.find_first_not_of('0'), text.size() - 1)));
}

// Below "/v2/models/".
std::optional<Route> FindModelRoute(const Segments& s) {
  static constexpr std::pair<std::string_view, Endpoint> kActions[] = {
      {"ready", Endpoint::kModelReady},  {"config", Endpoint::kModelConfig},
      {"stats", Endpoint::kStatistics},  {"infer", Endpoint::kInfer},
      {"generate", Endpoint::kGenerate}, {"generate_stream", Endpoint::kGenerateStream},
  };
  Route route{.endpoint = Endpoint::kModelMetadata, .model = std::string(s[2])};
  size_t next = 3;
  if (s.size() > 4 && s[3] == "versions") {
    auto version = ParseVersion(s[4]);
    if (!version) return std::nullopt;
    route.version = *std::move(version);
    next = 5;
  }
  if (s.size() == next) return route;
  if (next == 3 && s.size() == 5 && s[3] == "trace" && s[4] == "setting") {
    route.endpoint = Endpoint::kTraceSetting;
    return route;
  }
  if (s.size() != next + 1) return std::nullopt;
  for (const auto& [name, endpoint] : kActions) {
    if (s[next] != name) continue;
    route.endpoint = endpoint;
    return route;
  }
  return std::nullopt;
}

// Below "/v2/repository/": [R/]index, where R is ignored, and [R/]models/M/{load,unload}.
std::optional<Route> FindRepositoryRoute(const Segments& s) {
  if (s.size() <= 4 && s.back() == "index") return Route{.endpoint = Endpoint::kIndex};
  if (s.size() < 5 || s.size() > 6 || s[s.size() - 3] != "models") return std::nullopt;
  Route route{.endpoint = Endpoint::kLoad, .model = std::string(s[s.size() - 2])};
  if (s.size() == 6) route.repository = s[2];
  if (s.back() == "load") return route;
  route.endpoint = Endpoint::kUnload;
  if (s.back() == "unload") return route;
  return std::nullopt;
}

// Below "/v2/systemsharedmemory/" and "/v2/cudasharedmemory/":
// [region/G/]{status,register,unregister}.
std::optional<Route> FindSharedMemoryRoute(const Segments& s) {
  static constexpr std::pair<std::string_view, Endpoint> kActions[] = {
      {"status", Endpoint::kSharedMemoryStatus},
      {"register", Endpoint::kSharedMemoryRegister},
      {"unregister", Endpoint::kSharedMemoryUnregister},
  };
  if (s.size() != 3 && !(s.size() == 5 && s[2] == "region")) return std::nullopt;
  for (const auto& [name, endpoint] : kActions) {
    if (s.back() != name) continue;
    return Route{.endpoint = endpoint,
                 .region = s.size() == 5 ? std::string(s[3]) : std::string(),
                 .is_cuda = s[1] == "cudasharedmemory"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Route> FindRoute(std::string_view path) {
  const Segments s = Split(path);
  if (s.empty() || s[0] != "v2") return std::nullopt;
  if (s.size() == 1) return Route{.endpoint = Endpoint::kServerMetadata};
  if (s.size() == 2) {
    if (s[1] == "logging") return Route{.endpoint = Endpoint::kLogging};
    return std::nullopt;
  }
  if (s[1] == "health" && s.size() == 3) {
    if (s[2] == "live") return Route{.endpoint = Endpoint::kLive};
    if (s[2] == "ready") return Route{.endpoint = Endpoint::kReady};
    return std::nullopt;
  }
  if (s[1] == "models") {
    if (s.size() == 3 && s[2] == "stats") return Route{.endpoint = Endpoint::kStatistics};
    return FindModelRoute(s);
  }
  if (s[1] == "repository") return FindRepositoryRoute(s);
  if (s[1] == "systemsharedmemory" || s[1] == "cudasharedmemory") return FindSharedMemoryRoute(s);
  if (s[1] == "trace" && s.size() == 3 && s[2] == "setting") {
    return Route{.endpoint = Endpoint::kTraceSetting};
  }
  return std::nullopt;
}

kserve::Api ApiOf(Endpoint endpoint) {
  using kserve::Api;
  switch (endpoint) {
    case Endpoint::kLive:
    case Endpoint::kReady:
    case Endpoint::kModelReady:
      return Api::kHealth;
    case Endpoint::kServerMetadata:
    case Endpoint::kModelMetadata:
      return Api::kMetadata;
    case Endpoint::kModelConfig:
      return Api::kModelConfig;
    case Endpoint::kStatistics:
      return Api::kStatistics;
    case Endpoint::kInfer:
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
      return Api::kInference;
    case Endpoint::kIndex:
    case Endpoint::kLoad:
    case Endpoint::kUnload:
      return Api::kModelRepository;
    case Endpoint::kSharedMemoryStatus:
    case Endpoint::kSharedMemoryRegister:
    case Endpoint::kSharedMemoryUnregister:
      return Api::kSharedMemory;
    case Endpoint::kTraceSetting:
      return Api::kTrace;
    case Endpoint::kLogging:
      break;
  }
  return Api::kLogging;
}

bool AllowsMethod(Endpoint endpoint, std::string_view method) {
  switch (endpoint) {
    case Endpoint::kLive:
    case Endpoint::kReady:
    case Endpoint::kServerMetadata:
    case Endpoint::kModelMetadata:
    case Endpoint::kModelReady:
    case Endpoint::kModelConfig:
    case Endpoint::kStatistics:
    case Endpoint::kSharedMemoryStatus:
      return method == "GET";
    case Endpoint::kInfer:
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
    case Endpoint::kIndex:
    case Endpoint::kLoad:
    case Endpoint::kUnload:
    case Endpoint::kSharedMemoryRegister:
    case Endpoint::kSharedMemoryUnregister:
      return method == "POST";
    case Endpoint::kTraceSetting:
    case Endpoint::kLogging:
      return method == "GET" || method == "POST";
  }
  return false;
}

}  // namespace inflight::kserve_http
