// SPDX-License-Identifier: Apache-2.0
// The adapters (LoRA) that an executor keeps, by id: made from what requests bring, on the threads
// that enqueue them, and given up when there is no room, the one first that was not used for the
// longest time. One that a request has stays until the request's end. On a GPU what clients brought
// is kept in host memory, too, from which what was given up comes again.
//
// Memory: one piece of the device's, booked as "adapters" when the executor is made or, where
// nobody asked for it, when the first adapter comes. It is given out in ranges of bytes.
// On a GPU factors are made on the host and copied beside the steps that run, and a table there
// says where each adapter's parts are. Of a model on several GPUs the leader's cache gives out
// places for all ranks: each has its part of an adapter at the same place of its own memory.
// Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "executor/free_ranges.h"
#include "executor/host_adapters.h"
#include "inflight/adapter.h"
#include "inflight/executor.h"
#include "inflight/status.h"
#include "model/adapter.h"
#include "model/engine.h"
#include "tensor/buffer.h"
#include "tensor/upload_lane.h"

namespace inflight::executor {

struct AdapterCacheOptions {
  uint64_t num_bytes = 0;   // the most that factors take together
  bool is_booked = false;   // taken when the cache is made
  int max_num_tokens = 0;   // CUDA: of a step
  uint64_t host_bytes = 0;  // of what is kept as clients brought it
};

// An adapter that the leader of ranks on GPUs has, for the others, which write their parts of it.
struct AdapterCopy {
  const LoraTensors* whole = nullptr;
  size_t offset = 0;  // in the memory of each rank
  size_t size = 0;    // there, at most
  int index = 0;      // in the tables
};

// The caches of the other ranks.
class AdapterFollowers {
 public:
  virtual ~AdapterFollowers() = default;
  virtual Status TakeAdapterMemory() = 0;                    // while no rank computes
  virtual Status WriteAdapter(const AdapterCopy& copy) = 0;  // returns when it is there
};

class AdapterCache {
 public:
  static constexpr int kMaxAdapters = 256;  // on a GPU

  static Result<std::unique_ptr<AdapterCache>> Create(std::shared_ptr<const model::Engine> engine,
                                                      Device& device,
                                                      const AdapterCacheOptions& options);

  // Makes this cache that of the leader of ranks on GPUs. `when_idle` does what it is given while
  // no rank computes: memory is taken so. Before the first Get; both outlive it.
  using WhenIdle = std::function<Status(const std::function<Status()>& take)>;
  void Lead(AdapterFollowers* others, WhenIdle when_idle);
  // Of one of the others, which nobody asks for adapters.
  Status TakeMemory();
  Status Write(const AdapterCopy& copy);

  // On a GPU: bytes of the table, and of what kernels keep between shrink and expand.
  static uint64_t TableBytes(const model::ModelConfig& config, const model::LoraLimits& limits,
                             int max_num_tokens);

  // On a GPU: both, and nothing else. There once Get has given an adapter.
  ops::LoraDevice tables() const;

  // The adapter that the request is to run with. kNotFound where nobody brought it, or it was given
  // up ("LoRA task 7
  // not found in cache. Please send LoRA weights with request"), kResourceExhausted where all
  // others are in use ("PEFT Cache is full. Could not store taskId=7"), kInvalidArgument as of
  // model::MakeAdapter. Tensors of an adapter that is here are ignored.
  Result<std::shared_ptr<const model::Adapter>> Get(const LoraUse& use, uint64_t client_id = 0);

  AdapterStats stats() const;
  bool Holds(uint64_t serial) const;  // Adapter::serial
  int num_adapters() const;
  uint64_t used_bytes() const;
  uint64_t max_bytes() const { return max_bytes_; }

 private:
  using Key = AdapterKey;
  struct Entry {
    Key key;
    std::shared_ptr<const model::Adapter> adapter;
    size_t size = 0;
  };
  using Entries = std::list<Entry>;  // the newest use first

  AdapterCache(std::shared_ptr<const model::Engine> engine, Device& device,
               const AdapterCacheOptions& options);

  Result<std::shared_ptr<const model::Adapter>> Make(
      const std::shared_ptr<const LoraTensors>& whole, const Key& key);
  Status CheckWhole(const LoraTensors& whole) const;
  Result<uint64_t> SizeOf(const LoraTensors& whole, const LoraTensors& part) const;
  std::shared_ptr<const model::Adapter> Find(const Key& key);
  // Where an adapter's factors and its parts are to be.
  struct Place {
    size_t offset = 0;
    int index = 0;
  };
  Status TakeOfAll();      // under mutex_
  Status TakeOwnMemory();  // under mutex_
  Result<Place> TakePlace(size_t size, uint64_t id);
  void GivePlace(const Place& place, size_t size);
  bool GiveUpOne();
  Result<model::Adapter> Write(const LoraTensors& tensors, const Place& place, size_t size);
  Status Upload(std::span<const std::byte> from, std::byte* to);
  Status UploadParts(const model::Adapter& adapter);

  const std::shared_ptr<const model::Engine> engine_;
  Device& device_;
  model::OwnBiases own_biases_;
  const uint64_t max_bytes_;
  const bool is_cuda_;
  const int max_num_tokens_;
  AdapterFollowers* others_ = nullptr;
  WhenIdle when_idle_;
  mutable std::mutex mutex_;  // of all below
  Buffer memory_;
  Buffer tables_;
  FreeRanges free_;
  HostAdapters brought_;
  std::vector<int> free_indices_;
  Entries entries_;
  std::map<Key, Entries::iterator> by_key_;
  uint64_t used_bytes_ = 0;
  std::mutex upload_mutex_;  // of the lane
  std::unique_ptr<UploadLane> lane_;
};

}  // namespace inflight::executor
