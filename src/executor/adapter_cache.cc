// SPDX-License-Identifier: Apache-2.0
#include "executor/adapter_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::executor {
namespace {

constexpr const char* kShare = "adapters";

}  // namespace

Result<std::unique_ptr<AdapterCache>> AdapterCache::Create(
    std::shared_ptr<const model::Engine> engine, Device& device, uint64_t num_bytes,
    bool is_booked) {
  std::unique_ptr<AdapterCache> cache(new AdapterCache(std::move(engine), device, num_bytes));
  if (is_booked) {
    ASSIGN_OR_RETURN(cache->memory_, Buffer::Allocate(device, kShare, num_bytes));
  }
  return cache;
}

Result<std::shared_ptr<const model::Adapter>> AdapterCache::Get(const LoraUse& use) {
  const Key key = {use.is_own, use.id};
  {
    const std::lock_guard lock(mutex_);
    if (auto found = Find(key)) {
      if (use.tensors != nullptr && !use.is_own)
        logging::Verbose("weights of an adapter that is cached are ignored", {{"task_id", use.id}});
      return found;
    }
  }
  if (use.tensors == nullptr)
    return NotFound(fmt::format("LoRA task {} not found in cache. Please send LoRA weights with "
                                "request",
                                use.id))
        .WithField("lora_task_id");
  return Make(use, key);
}

// The numbers are written without the lock: a range belongs to who took it.
Result<std::shared_ptr<const model::Adapter>> AdapterCache::Make(const LoraUse& use,
                                                                 const Key& key) {
  ASSIGN_OR_RETURN(const uint64_t size,
                   model::AdapterBytes(engine_->config, engine_->limits.lora, *use.tensors));
  size_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    ASSIGN_OR_RETURN(offset, TakeRange(size, use.id));
  }
  std::byte* const target = memory_.data() + offset;
  Result<model::Adapter> made =
      model::MakeAdapter(engine_->config, *use.tensors, target, /*device=*/target);
  const std::lock_guard lock(mutex_);
  auto found = made.ok() ? Find(key) : nullptr;  // another request brought it meanwhile
  if (!made.ok() || found != nullptr) {
    free_.Give(offset, size);
    used_bytes_ -= size;
    if (found != nullptr) return found;
    return made.status();
  }
  made->offset = offset;
  entries_.push_front({.key = key,
                       .adapter = std::make_shared<const model::Adapter>(*std::move(made)),
                       .size = size});
  by_key_[key] = entries_.begin();
  return entries_.front().adapter;
}

std::shared_ptr<const model::Adapter> AdapterCache::Find(const Key& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->adapter;
}

Result<size_t> AdapterCache::TakeRange(size_t size, uint64_t id) {
  if (size > max_bytes_)
    return InvalidArgument(
        "lora_weights",
        fmt::format("the adapter takes {} bytes, the cache of adapters has {} (load the model with "
                    "a larger lora_cache_host_memory_bytes or lora_cache_gpu_memory_fraction)",
                    size, max_bytes_));
  if (memory_.size() == 0) {
    Result<Buffer> memory = Buffer::Allocate(device_, kShare, max_bytes_);
    if (!memory.ok()) return memory.status().WithPrefix("lora_weights");
    memory_ = *std::move(memory);
  }
  std::optional<size_t> offset = free_.Take(size);
  while (!offset && GiveUpOne()) offset = free_.Take(size);
  if (!offset)
    return ResourceExhausted(fmt::format(
        "PEFT Cache is full. Could not store taskId={}: its {} bytes have no room beside adapters "
        "of requests that run or wait (try again later)",
        id, size));
  used_bytes_ += size;
  return *offset;
}

// The last one that no request has: only this list holds it, and only this class hands it out.
bool AdapterCache::GiveUpOne() {
  const auto last = std::find_if(entries_.rbegin(), entries_.rend(),
                                 [](const Entry& entry) { return entry.adapter.use_count() == 1; });
  if (last == entries_.rend()) return false;
  const auto entry = std::prev(last.base());
  free_.Give(entry->adapter->offset, entry->size);
  used_bytes_ -= entry->size;
  by_key_.erase(entry->key);
  entries_.erase(entry);
  return true;
}

int AdapterCache::num_adapters() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(entries_.size());
}

uint64_t AdapterCache::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace inflight::executor
