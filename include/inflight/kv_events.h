// SPDX-License-Identifier: Apache-2.0
// What a router of many servers wants to know of each: which blocks of which prompts it holds, so
// that a request goes where its beginning is (docs/kv-events.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "inflight/request.h"

namespace inflight {

// Where blocks are told of over ZeroMQ, in the format that vLLM publishes. An empty endpoint:
// nowhere.
struct KvEventsOptions {
  std::string endpoint;  // of a PUB socket that is bound: "tcp://127.0.0.1:5557", "ipc:///…"
  std::string replay_endpoint;  // of a ROUTER socket that sends batches again; empty = none
  std::string topic;            // first frame of each message
  int buffer_steps = 10'000;    // batches that are kept to be sent again
};

// The model's device, or the host's pool beside it.
enum class KvMedium : uint8_t { kDevice, kHost };

// A full block whose K and V other requests may reuse from now on.
struct StoredKvBlock {
  uint64_t hash = 0;                // of its tokens, all before them and the salt
  uint64_t parent_hash = 0;         // of the block before it
  bool has_parent = false;          // false: it begins a prompt
  std::span<const TokenId> tokens;  // [block_size] valid during the call only
  uint64_t salt = 0;                // Request::cache_salt
  KvMedium medium = KvMedium::kDevice;
};

// Called on the step loop's thread: must not block, nor throw.
class KvObserver {
 public:
  virtual ~KvObserver() = default;
  virtual void OnStored(const StoredKvBlock& block) noexcept = 0;
  virtual void OnRemoved(uint64_t hash, KvMedium medium) noexcept = 0;
  // All that was told is gone at once. Where false is returned each block is told by OnRemoved.
  virtual bool OnCleared() noexcept { return false; }
};

}  // namespace inflight
