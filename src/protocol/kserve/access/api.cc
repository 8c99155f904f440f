// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/access/api.h"

#include <algorithm>
#include <array>

namespace inflight::kserve {
namespace {

constexpr std::array<std::string_view, kNumRoles> kRoleNames = {
    "health", "inference", "metrics", "control", "settings", "shared_memory"};

constexpr bool kChanges = true;      // the server, by some of its calls
constexpr bool kAdministers = true;  // it: regions of shared memory are the clients' own business
// clang-format off
constexpr std::array<ApiRow, kNumApis> kApis = {{
    {"health",           Role::kHealth,       !kChanges, !kAdministers},
    {"metadata",         Role::kInference,    !kChanges, !kAdministers},
    {"inference",        Role::kInference,    !kChanges, !kAdministers},
    {"shared-memory",    Role::kSharedMemory,  kChanges, !kAdministers},
    {"model-config",     Role::kInference,    !kChanges, !kAdministers},
    {"model-repository", Role::kControl,       kChanges,  kAdministers},
    {"statistics",       Role::kMetrics,      !kChanges, !kAdministers},
    {"trace",            Role::kSettings,      kChanges,  kAdministers},
    {"logging",          Role::kSettings,      kChanges,  kAdministers},
    {"metrics",          Role::kMetrics,      !kChanges, !kAdministers},
    {"profile",          Role::kControl,       kChanges,  kAdministers},  // it takes time and memory
}};
// clang-format on

}  // namespace

std::string_view NameOf(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

std::optional<Role> FindRole(std::string_view name) {
  const auto* const found = std::find(kRoleNames.begin(), kRoleNames.end(), name);
  if (found == kRoleNames.end()) return std::nullopt;
  return static_cast<Role>(found - kRoleNames.begin());
}

const ApiRow& RowOf(Api api) { return kApis[static_cast<size_t>(api)]; }

std::optional<Api> FindApi(std::string_view name) {
  const auto* const found =
      std::find_if(kApis.begin(), kApis.end(), [&](const ApiRow& row) { return row.name == name; });
  if (found == kApis.end()) return std::nullopt;
  return static_cast<Api>(found - kApis.begin());
}

}  // namespace inflight::kserve
