// SPDX-License-Identifier: Apache-2.0
// From a path to an endpoint (docs/reference/protocol/http.md, "Routing"): matched as a whole,
// case-sensitively, without percent-decoding; a trailing slash never matches.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "protocol/kserve/access/restriction.h"

namespace inflight::kserve_http {

enum class Endpoint {
  kLive,
  kReady,
  kServerMetadata,
  kModelMetadata,
  kModelReady,
  kModelConfig,
  kStatistics,
  kInfer,
  kGenerate,
  kGenerateStream,
  kIndex,
  kLoad,
  kUnload,
  kSharedMemoryStatus,
  kSharedMemoryRegister,
  kSharedMemoryUnregister,
  kTraceSetting,
  kLogging,
};

struct Route {
  Endpoint endpoint;
  std::string model;       // empty = all models (statistics)
  std::string version;     // digits without leading zeros; empty = the latest
  std::string repository;  // of load and unload; empty where the path has none
  std::string region;      // of shared memory; empty = all
  bool is_cuda = false;    // shared memory of GPUs
};

std::optional<Route> FindRoute(std::string_view path);

kserve::Api ApiOf(Endpoint endpoint);

bool AllowsMethod(Endpoint endpoint, std::string_view method);

}  // namespace inflight::kserve_http
