// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/endpoint_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace inflight::kserve_http {
namespace {

using http_listener::kGet;
using http_listener::kPost;
using http_listener::Router;
using kserve::Api;
using serving::RegionKind;

// Of two rows with the path of a request, the first counts: "stats" is no model's name.
// clang-format off
const Endpoint kEndpoints[] = {
    {"/v2/health/live", kGet, Api::kHealth, HandleLive, kText405},
    {"/v2/health/ready", kGet, Api::kHealth, HandleReady, kText405},
    {"/v2", kGet, Api::kMetadata, HandleServerMetadata},

    {"/v2/models/stats", kGet, Api::kStatistics, HandleStatistics},
    {"/v2/models/{model}[/versions/{version}]", kGet, Api::kMetadata, HandleModelMetadata},
    {"/v2/models/{model}[/versions/{version}]/ready", kGet, Api::kHealth, HandleModelReady, kText405},
    {"/v2/models/{model}[/versions/{version}]/config", kGet, Api::kModelConfig, HandleModelConfig},
    {"/v2/models/{model}[/versions/{version}]/stats", kGet, Api::kStatistics, HandleStatistics},
    {"/v2/models/{model}[/versions/{version}]/infer", kPost, Api::kInference, HandleInfer, kTakesBinary | kText405},
    {"/v2/models/{model}[/versions/{version}]/generate", kPost, Api::kInference, HandleGenerate, kNotOnVertexAi},
    {"/v2/models/{model}[/versions/{version}]/generate_stream", kPost, Api::kInference, HandleGenerateStream, kNotOnVertexAi},

    {"/v2/repository[/{repository}]/index", kPost, Api::kModelRepository, HandleIndex},
    {"/v2/repository[/{repository}]/models/{model}/load", kPost, Api::kModelRepository, HandleLoad, kWaits},
    {"/v2/repository[/{repository}]/models/{model}/unload", kPost, Api::kModelRepository, HandleUnload, kWaits},

    {"/v2/systemsharedmemory[/region/{region}]/status", kGet, Api::kSharedMemory, HandleSharedMemoryStatus<RegionKind::kSystem>},
    {"/v2/systemsharedmemory[/region/{region}]/register", kPost, Api::kSharedMemory, HandleSharedMemoryRegister<RegionKind::kSystem>},
    {"/v2/systemsharedmemory[/region/{region}]/unregister", kPost, Api::kSharedMemory, HandleSharedMemoryUnregister<RegionKind::kSystem>},
    {"/v2/cudasharedmemory[/region/{region}]/status", kGet, Api::kSharedMemory, HandleSharedMemoryStatus<RegionKind::kCuda>},
    {"/v2/cudasharedmemory[/region/{region}]/register", kPost, Api::kSharedMemory, HandleSharedMemoryRegister<RegionKind::kCuda>},
    {"/v2/cudasharedmemory[/region/{region}]/unregister", kPost, Api::kSharedMemory, HandleSharedMemoryUnregister<RegionKind::kCuda>},

    {"/v2/trace/setting", kGet | kPost, Api::kTrace, HandleTraceSetting, kNotOnVertexAi},
    {"/v2/models/{model}/trace/setting", kGet | kPost, Api::kTrace, HandleTraceSetting, kNotOnVertexAi},
    {"/v2/logging", kGet | kPost, Api::kLogging, HandleLogging, kNotOnVertexAi},

    {"/sleep", kPost, Api::kModelRepository, HandleSleep, kWaits | kNotOnVertexAi},
    {"/wake_up", kPost, Api::kModelRepository, HandleWakeUp, kWaits | kNotOnVertexAi},
    {"/is_sleeping", kGet, Api::kModelRepository, HandleIsSleeping, kNotOnVertexAi},

    {"/v2/debug/profile", kPost, Api::kProfile, HandleProfile, kNotOnVertexAi},
};
// clang-format on

const Router& TheRouter() {
  // Triton takes HEAD and OPTIONS for wrong methods.
  static const Router router = Router::Of(kEndpoints, http_listener::Implied::kNothing);
  return router;
}

// Digits without leading zeros; none for anything else.
std::optional<std::string> ParseVersion(std::string_view text) {
  if (text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  if (text.empty()) return std::string();
  return std::string(text.substr(std::min(text.find_first_not_of('0'), text.size() - 1)));
}

}  // namespace

std::span<const Endpoint> Endpoints() { return kEndpoints; }

const Endpoint& EndpointAt(std::string_view path) {
  const auto* const row = std::find_if(std::begin(kEndpoints), std::end(kEndpoints),
                                       [&](const Endpoint& e) { return e.path == path; });
  CHECK(row != std::end(kEndpoints));
  return *row;
}

std::optional<FoundRoute> FindRoute(std::string_view method, std::string_view path) {
  const auto match = TheRouter().Find(method, path);
  if (!match) return std::nullopt;
  auto version = ParseVersion(match->values.Of("version"));
  if (!version) return std::nullopt;
  return FoundRoute{.route = {.endpoint = &kEndpoints[match->row],
                              .model = std::string(match->values.Of("model")),
                              .version = *std::move(version),
                              .repository = std::string(match->values.Of("repository")),
                              .region = std::string(match->values.Of("region"))},
                    .allows_method = match->allows_method};
}

const Endpoint* FindEndpoint(std::string_view method, std::string_view path) {
  const auto match = TheRouter().Find(method, path);
  return match ? &kEndpoints[match->row] : nullptr;
}

}  // namespace inflight::kserve_http
