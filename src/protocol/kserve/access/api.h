// SPDX-License-Identifier: Apache-2.0
// What may be asked of a server, in the groups that rules of access are about, whatever the
// protocol. The table in api.cc says all that is known of a group; docs/reference/access.md has the
// roles, docs/reference/protocol/common.md the groups by their names.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace inflight::kserve {

// What a key may do.
enum class Role : uint8_t {
  kHealth,
  kInference,     // and what a client has to know of a model for it
  kMetrics,       // and statistics
  kControl,       // models are loaded and unloaded, profiles taken
  kSettings,      // of trace and log
  kSharedMemory,  // regions are registered
};
inline constexpr size_t kNumRoles = 6;
using Roles = std::bitset<kNumRoles>;

std::string_view NameOf(Role role);
std::optional<Role> FindRole(std::string_view name);

// A group of endpoints, of RPCs and of routes of hosting platforms.
enum class Api : uint8_t {
  kHealth,
  kMetadata,
  kInference,
  kSharedMemory,
  kModelConfig,
  kModelRepository,
  kStatistics,
  kTrace,
  kLogging,
  kMetrics,
  kProfile,
};
inline constexpr size_t kNumApis = 11;

struct ApiRow {
  std::string_view name;  // "model-repository"
  Role role;              // that a key needs for it
  bool changes_the_server;
  // It is answered at --admin-port and --admin-socket alone, where there is one of them.
  bool is_administration;
};

const ApiRow& RowOf(Api api);
std::optional<Api> FindApi(std::string_view name);

}  // namespace inflight::kserve
