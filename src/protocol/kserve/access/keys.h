// SPDX-License-Identifier: Apache-2.0
// Who a request is from and what it may do, by the key that it brings (docs/reference/access.md).
//
// A key is known by its SHA-256 alone, and compared in constant time. Keys are random (`inflight
// key`), so that a hash without salt tells nothing of them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/client.h"
#include "base/clock.h"
#include "inflight/status.h"
#include "protocol/kserve/access/admission.h"
#include "protocol/kserve/access/api.h"

namespace inflight::kserve {

using KeyHash = Identity;  // SHA-256
KeyHash HashKey(std::string_view key);
std::string ToHex(const KeyHash& hash);
std::string NewKey();  // 256 random bits, in URL-safe letters

struct KeyFiles {
  std::vector<std::string> given = {};  // --api-key: keys with the roles of those of api_keys
  std::string access;                   // --access: keys with roles and rates, in JSON
  std::string
      api_keys;  // --api-key-file: a key a line, or sha256:<hex>; may infer and read metrics

  bool empty() const { return given.empty() && access.empty() && api_keys.empty(); }
};

// Threads: all methods are thread-safe.
class Keys {
 public:
  // kInvalidArgument names the file, the key's place and what is wrong with it.
  static Result<std::unique_ptr<Keys>> Load(const KeyFiles& files, Clock& clock = Clock::System());
  ~Keys();

  // Whether a request with this Authorization header ("" = none) may do what the role says.
  // kUnauthenticated: it needs a key, or has none that is known; kPermissionDenied: its key has
  // other roles; kResourceExhausted: its key had too many requests, of those that count.
  Admission Admit(std::string_view authorization, Role role, bool counts = true);

  // Whether it may see sums, over all keys, of what was found in the KV cache: not who may infer,
  // and so ask before and after, unless it may control.
  bool SeesReuse(std::string_view authorization);

  // Of the key that it names; null: none, or one that is not known.
  std::shared_ptr<const Client> Find(std::string_view authorization);

  // Reads files that have changed since; what keys have used of their bounds stays used. Where the
  // files are wrong, the error, and the former stays.
  Status ReloadIfChanged();

 private:
  struct Key;
  struct Table;
  using Times = std::array<std::filesystem::file_time_type, 2>;

  Keys(KeyFiles files, Clock& clock);
  static Result<std::shared_ptr<Table>> Read(const KeyFiles& files, int64_t now_ns);
  Times ReadTimes() const;

  const KeyFiles files_;
  Clock& clock_;
  std::mutex mutex_;
  Times times_;
  std::shared_ptr<Table> table_;
};

}  // namespace inflight::kserve
