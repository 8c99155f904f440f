// SPDX-License-Identifier: Apache-2.0
// Events of blocks as bytes: MessagePack arrays, as vllm-project/vllm/vllm/distributed/kv_events.py
// describes them (docs/kv-events.md has the fields).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inflight/kv_events.h"

namespace inflight::kv_events {

// One block, stored or removed.
struct Event {
  bool is_stored = false;
  KvMedium medium = KvMedium::kDevice;
  bool has_parent = false;
  uint64_t hash = 0;
  uint64_t parent_hash = 0;
  uint64_t salt = 0;
  std::vector<TokenId> tokens;  // of a stored one
};

struct MediumNames {
  const char* device = "GPU";
  const char* host = "CPU";
};

// `events` in order. Stored blocks that go on from one another, and removed ones of one medium, are
// one entry. `all_cleared`: before them an entry says that the server holds none of what was told.
// `seconds` since 1970.
std::string EncodeBatch(double seconds, bool all_cleared, std::span<const Event> events,
                        const MediumNames& media);

}  // namespace inflight::kv_events
