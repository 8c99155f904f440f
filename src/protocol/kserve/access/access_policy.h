// SPDX-License-Identifier: Apache-2.0
// Who may do what, by the key that a request brings: one policy for every front end
// (docs/reference/access.md).
//
// A key is known by its SHA-256 alone, and compared in constant time. Keys are random (`inflight
// key`), so that a hash without salt tells nothing of them.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/client.h"
#include "base/clock.h"
#include "inflight/status.h"
#include "protocol/kserve/access/restriction.h"

namespace inflight::kserve {

enum class Role : uint8_t {
  kHealth,
  kInference,     // and what a client has to know of a model for it
  kMetrics,       // and statistics
  kControl,       // models are loaded and unloaded
  kSettings,      // of trace and log
  kSharedMemory,  // regions are registered
};
inline constexpr size_t kNumRoles = 6;
using Roles = std::bitset<kNumRoles>;

Role RoleOf(Api api);

using KeyHash = Identity;  // SHA-256
KeyHash HashKey(std::string_view key);
std::string ToHex(const KeyHash& hash);
std::string NewKey();  // 256 random bits, in URL-safe letters

struct AccessFiles {
  std::string access;  // --access: keys with roles and rates, in JSON
  std::string
      api_keys;  // --api-key-file: a key a line, or sha256:<hex>; may infer and read metrics

  bool empty() const { return access.empty() && api_keys.empty(); }
};

// What the policy says of one request.
struct Admission {
  Status status = {};                         // OK, or why it may not
  int64_t retry_after_s = 0;                  // of kResourceExhausted: when it may again
  std::shared_ptr<const Client> client = {};  // of its key; null: it has none that is known

  bool ok() const { return status.ok(); }
};

// Threads: all methods are thread-safe.
class AccessPolicy {
 public:
  // kInvalidArgument names the file, the key's place and what is wrong with it.
  static Result<std::shared_ptr<AccessPolicy>> Load(const AccessFiles& files,
                                                    Clock& clock = Clock::System());
  ~AccessPolicy();

  // Whether a request with this Authorization header ("" = none) may do what the role says.
  // kUnauthenticated: it needs a key, or has none that is known; kPermissionDenied: its key has
  // other roles; kResourceExhausted: its key had too many requests.
  Admission Admit(std::string_view authorization, Role role) {
    return Look(authorization, role, /*counts=*/true);
  }
  // The same of a request that is admitted once more when it is whole: it counts for no rate yet.
  Admission Check(std::string_view authorization, Role role) {
    return Look(authorization, role, /*counts=*/false);
  }

  // Reads files that have changed since; what keys have used of their bounds stays used. Where the
  // files are wrong, the error, and the former stays.
  Status ReloadIfChanged();

 private:
  struct Key;
  struct Table;
  using Times = std::array<std::filesystem::file_time_type, 2>;

  AccessPolicy(AccessFiles files, Clock& clock);
  static Result<std::shared_ptr<Table>> Read(const AccessFiles& files, int64_t now_ns);
  Times ReadTimes() const;
  Admission Look(std::string_view authorization, Role role, bool counts);

  const AccessFiles files_;
  Clock& clock_;
  std::mutex mutex_;
  Times times_;
  std::shared_ptr<Table> table_;
};

}  // namespace inflight::kserve
