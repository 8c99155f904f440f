// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/responses that their clients may come back to: by their ids, and to go on from
// (previous_response_id).
//
// A client finds its own alone: those of the key that they were made with; clients without keys are
// one. What was not used for the longest time goes first, when there is no room, and goes anyway
// when it was not used for so long. What is kept is charged to the memory of requests.
//
// Threads: all methods are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/client.h"
#include "base/clock.h"
#include "base/memory_account.h"

namespace inflight::openai {

struct StoredResponse {
  std::string conversation =
      {};                     // its messages in the form of chat, joined by commas; no instructions
  std::string response = {};  // the object, as it was answered
  std::string items = {};     // an array: those that it was made from, each with an id
};

class ResponseStore {
 public:
  // `memory`: that is charged; null: nothing is.
  ResponseStore(size_t max_bytes, int64_t max_idle_s, const std::shared_ptr<MemoryAccount>& memory,
                Clock& clock = Clock::System());

  // False where there is no room for it even when all others are gone.
  bool Put(const Identity& client, const std::string& id, StoredResponse response);
  // Null where there is none; else it was used now.
  std::shared_ptr<const StoredResponse> Find(const Identity& client, const std::string& id);
  // Whether there was one.
  bool Remove(const Identity& client, const std::string& id);

  size_t num_bytes() const;

 private:
  struct Entry {
    std::string id;
    Identity client;
    std::shared_ptr<const StoredResponse> response;
    size_t bytes = 0;
    int64_t used_ns = 0;
  };
  using Entries = std::list<Entry>;  // the one that was used last first

  // With mutex_ held.
  Entries::iterator FindEntry(const Identity& client, const std::string& id);
  void DropIdle();
  void Drop(Entries::iterator entry);

  const size_t max_bytes_;
  const int64_t max_idle_ns_;
  Clock& clock_;
  mutable std::mutex mutex_;
  MemoryCharge charge_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> by_id_;
  size_t num_bytes_ = 0;
};

}  // namespace inflight::openai
