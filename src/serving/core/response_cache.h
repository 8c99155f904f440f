// SPDX-License-Identifier: Apache-2.0
// Responses of models whose configuration says `response_cache { enable: true }`, for requests with
// the same inputs (docs/reference/repositories.md, "Response cache").
//
// A key is the whole of what it stands for, so no two requests are ever taken for each other: the
// load of a model, the client's identity, its parameters and sequence, requested outputs, and of
// each input name, type, shape and bytes. Id, priority and time-out are no part of it: no answer
// depends on them, only whether there is one.
//
// Room:    keys and contents within `capacity_bytes`. The client that has most of it makes room, by
//          what it used least recently (fair_lru.h), so that none pushes out what others keep. What
//          is larger than all of it is not kept.
// Threads: all methods are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fair_lru.h"
#include "inflight/status.h"
#include "serving/core/request.h"

namespace inflight::serving {

struct CachedResponse {
  std::vector<Tensor> outputs;
  Parameters parameters;
};

class ResponseCache {
 public:
  explicit ResponseCache(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // What all keys of a model begin with; of each load its own, so that a model that is loaded again
  // never gives the answers of the one before.
  std::string NewPrefix();
  static std::string KeyOf(const std::string& prefix, const Request& request);

  std::shared_ptr<const CachedResponse> Find(const std::string& key);  // null = not there
  // Of the client that asked. Copies the outputs, whose bytes may lie in what their request was
  // received in.
  void Insert(const Identity& client, const std::string& key, const Response& response);

  uint64_t used_bytes() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const CachedResponse> response;
  };

  const uint64_t capacity_bytes_;
  mutable std::mutex mutex_;
  uint64_t num_prefixes_ = 0;
  std::unordered_map<std::string_view, FairLru<Entry>::Place> by_key_;  // views of entries_' keys
  FairLru<Entry> entries_{[this](const Entry& entry) { by_key_.erase(entry.key); }};
};

// The words of --cache-config (`local,size=<bytes>`) and the former --response-cache-byte-size;
// null where neither asks for a cache.
// Errors: kInvalidArgument names the word and what is allowed.
Result<std::shared_ptr<ResponseCache>> MakeResponseCache(const std::vector<std::string>& config,
                                                         uint64_t byte_size);

}  // namespace inflight::serving
