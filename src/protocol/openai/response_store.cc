// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/response_store.h"

#include <iterator>
#include <utility>

namespace inflight::openai {
namespace {

constexpr size_t kBytesBeside = 512;  // of an entry, beside its texts
constexpr int64_t kNsPerSecond = 1'000'000'000;

}  // namespace

ResponseStore::ResponseStore(size_t max_bytes, int64_t max_idle_s,
                             const std::shared_ptr<MemoryAccount>& memory, Clock& clock)
    : max_bytes_(max_bytes),
      max_idle_ns_(max_idle_s * kNsPerSecond),
      clock_(clock),
      charge_(memory == nullptr ? nullptr : memory->NewConnection("stored responses", [] {})) {}

bool ResponseStore::Put(const Identity& client, const std::string& id, StoredResponse response) {
  const size_t bytes = kBytesBeside + id.size() + response.conversation.capacity() +
                       response.response.capacity() + response.items.capacity();
  const std::lock_guard lock(mutex_);
  DropIdle();
  if (bytes > max_bytes_) return false;
  while (num_bytes_ + bytes > max_bytes_) Drop(std::prev(entries_.end()));
  while (!charge_.Resize(num_bytes_ + bytes).ok()) {
    if (entries_.empty()) return false;
    Drop(std::prev(entries_.end()));
  }
  num_bytes_ += bytes;
  entries_.push_front({.id = id,
                       .client = client,
                       .response = std::make_shared<const StoredResponse>(std::move(response)),
                       .bytes = bytes,
                       .used_ns = clock_.NowNs()});
  by_id_.emplace(id, entries_.begin());
  return true;
}

std::shared_ptr<const StoredResponse> ResponseStore::Find(const Identity& client,
                                                          const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto entry = FindEntry(client, id);
  if (entry == entries_.end()) return nullptr;
  entry->used_ns = clock_.NowNs();
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->response;
}

bool ResponseStore::Remove(const Identity& client, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto entry = FindEntry(client, id);
  if (entry == entries_.end()) return false;
  Drop(entry);
  return true;
}

size_t ResponseStore::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

ResponseStore::Entries::iterator ResponseStore::FindEntry(const Identity& client,
                                                          const std::string& id) {
  DropIdle();
  const auto found = by_id_.find(id);
  return found != by_id_.end() && found->second->client == client ? found->second : entries_.end();
}

void ResponseStore::DropIdle() {
  const int64_t now_ns = clock_.NowNs();
  while (!entries_.empty() && now_ns - entries_.back().used_ns > max_idle_ns_)
    Drop(std::prev(entries_.end()));
}

void ResponseStore::Drop(Entries::iterator entry) {
  num_bytes_ -= entry->bytes;
  by_id_.erase(entry->id);
  entries_.erase(entry);
  (void)charge_.Resize(num_bytes_);  // less is always granted
}

}  // namespace inflight::openai
