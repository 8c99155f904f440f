// SPDX-License-Identifier: Apache-2.0
// What the server knows about itself and its models as gRPC messages: metadata, statistics, index.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grpc_service.pb.h"
#include "inflight/status.h"
#include "serving/server/server.h"

namespace inflight::kserve_grpc {

void WriteServerMetadata(const serving::ServerMetadata& metadata,
                         ::inference::ServerMetadataResponse& out);

// `versions`: all ready versions if the request named none, otherwise that one.
void WriteModelMetadata(const serving::Model& model, const std::vector<std::string>& versions,
                        ::inference::ModelMetadataResponse& out);

// Versions of a model that answer requests, ascending.
std::vector<std::string> ReadyVersions(const serving::Server& server, std::string_view name);

// Statistics of one version, of all versions of a model (empty version), or of everything loaded
// (empty name). Unlike elsewhere an unknown model is kInvalidArgument
// (docs/reference/protocol/common.md, "Finding a model").
Status WriteStatistics(const serving::Server& server, const std::string& name,
                       const std::string& version, ::inference::ModelStatisticsResponse& out);

void WriteIndex(const std::vector<serving::IndexEntry>& entries,
                ::inference::RepositoryIndexResponse& out);

}  // namespace inflight::kserve_grpc
