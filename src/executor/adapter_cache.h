// SPDX-License-Identifier: Apache-2.0
// The adapters (LoRA) that an executor keeps, by id: made from what requests bring, on the threads
// that enqueue them, and given up when there is no room, the one first that was not used for the
// longest time. One that a request has stays until the request's end.
//
// Memory: one piece of the device's, booked as "adapters" when the executor is made or, where
// nobody asked for it, when the first adapter comes. It is given out in ranges of bytes.
// Threads: any.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "executor/free_ranges.h"
#include "inflight/adapter.h"
#include "inflight/status.h"
#include "model/adapter.h"
#include "model/engine.h"
#include "tensor/buffer.h"

namespace inflight::executor {

class AdapterCache {
 public:
  // `num_bytes` are the most that the adapters take together, and with `is_booked` taken now.
  static Result<std::unique_ptr<AdapterCache>> Create(std::shared_ptr<const model::Engine> engine,
                                                      Device& device, uint64_t num_bytes,
                                                      bool is_booked);

  // The adapter that the request is to run with. kNotFound where nobody brought it ("LoRA task 7
  // not found in cache. Please send LoRA weights with request"), kResourceExhausted where all
  // others are in use ("PEFT Cache is full. Could not store taskId=7"), kInvalidArgument as of
  // model::MakeAdapter. Tensors of an adapter that is here are ignored.
  Result<std::shared_ptr<const model::Adapter>> Get(const LoraUse& use);

  int num_adapters() const;
  uint64_t used_bytes() const;
  uint64_t max_bytes() const { return max_bytes_; }

 private:
  using Key = std::pair<bool, uint64_t>;  // is_own, id
  struct Entry {
    Key key;
    std::shared_ptr<const model::Adapter> adapter;
    size_t size = 0;
  };
  using Entries = std::list<Entry>;  // the newest use first

  AdapterCache(std::shared_ptr<const model::Engine> engine, Device& device, uint64_t num_bytes)
      : engine_(std::move(engine)), device_(device), max_bytes_(num_bytes), free_(num_bytes) {}

  Result<std::shared_ptr<const model::Adapter>> Make(const LoraUse& use, const Key& key);
  std::shared_ptr<const model::Adapter> Find(const Key& key);
  Result<size_t> TakeRange(size_t size, uint64_t id);
  bool GiveUpOne();

  const std::shared_ptr<const model::Engine> engine_;
  Device& device_;
  const uint64_t max_bytes_;
  mutable std::mutex mutex_;  // of all below
  Buffer memory_;
  FreeRanges free_;
  Entries entries_;
  std::map<Key, Entries::iterator> by_key_;
  uint64_t used_bytes_ = 0;
};

}  // namespace inflight::executor
