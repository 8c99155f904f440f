// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/responses that their clients may come back to: by their ids, and to go on from
// (previous_response_id).
//
// A client finds its own alone: those of the key that they were made with; clients without keys are
// one. When there is no room, what the client that has most of it used least recently goes first
// (fair_lru.h); what was not used for so long goes anyway. What is kept is charged to the memory of
// requests.
//
// Threads: all methods are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/client.h"
#include "base/clock.h"
#include "base/fair_lru.h"
#include "base/memory_account.h"

namespace inflight::openai {

struct StoredResponse {
  std::string conversation =
      {};                     // its messages in the form of chat, joined by commas; no instructions
  std::string response = {};  // the object, as it was answered
  std::string items = {};     // an array: those that it was made from, each with an id

  size_t num_bytes() const { return conversation.size() + response.size() + items.size(); }
};

class ResponseStore {
 public:
  // `memory`: that is charged; null: nothing is.
  ResponseStore(size_t max_bytes, int64_t max_idle_s, const std::shared_ptr<MemoryAccount>& memory,
                Clock& clock = Clock::System());

  // False where there is no room for it, unless clients lost what is theirs that then had less.
  bool Put(const Identity& client, const std::string& id, StoredResponse response);
  // Of a conversation that has such an answer, what its reader looks at; 0 where there is none.
  size_t BytesOf(const Identity& client, const std::string& id) const;
  // Null where there is none; else it was used now.
  std::shared_ptr<const StoredResponse> Find(const Identity& client, const std::string& id);
  // Whether there was one.
  bool Remove(const Identity& client, const std::string& id);

  size_t num_bytes() const;

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    int64_t used_ns = 0;
  };
  using Entries = FairLru<Entry>;

  // With mutex_ held.
  std::optional<Entries::Place> FindEntry(const Identity& client, const std::string& id);
  void DropIdle();
  void Discharge() { (void)charge_.Resize(entries_.bytes()); }  // less is always granted

  const size_t max_bytes_;
  const int64_t max_idle_ns_;
  Clock& clock_;
  mutable std::mutex mutex_;
  MemoryCharge charge_;
  std::unordered_map<std::string, Entries::Place> by_id_;
  Entries entries_{[this](const Entry& entry) { by_id_.erase(entry.id); }};
};

}  // namespace inflight::openai
