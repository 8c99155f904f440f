// SPDX-License-Identifier: Apache-2.0
// Adapters (LoRA) that clients brought, whole, as they came: from here a GPU's cache has those
// again that it gave up. Who has most here makes room first (base/fair_lru.h); what is larger than
// all the room is not kept. Threads: one at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "base/fair_lru.h"
#include "inflight/adapter.h"

namespace inflight::executor {

// Whose an adapter's id is.
struct AdapterKey {
  bool is_own = false;     // the program's
  uint64_t client_id = 0;  // 0 where is_own
  uint64_t id = 0;
  auto operator<=>(const AdapterKey&) const = default;
};

class HostAdapters {
 public:
  explicit HostAdapters(uint64_t max_bytes);
  HostAdapters(const HostAdapters&) = delete;
  HostAdapters& operator=(const HostAdapters&) = delete;

  // In place of what had the key.
  void Keep(const AdapterKey& key, std::shared_ptr<const LoraTensors> tensors);
  // Null where there is none; it is used now.
  std::shared_ptr<const LoraTensors> Find(const AdapterKey& key);

  uint64_t used_bytes() const { return kept_.bytes(); }

 private:
  struct Kept {
    AdapterKey key;
    std::shared_ptr<const LoraTensors> tensors;
  };
  using Places = FairLru<Kept>;

  const uint64_t max_bytes_;
  std::map<AdapterKey, Places::Place> by_key_;
  Places kept_;
};

}  // namespace inflight::executor
