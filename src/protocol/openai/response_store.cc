// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/response_store.h"

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
  if (!entries_.MakeRoom(client, bytes, max_bytes_)) return false;
  while (!charge_.Resize(entries_.bytes() + bytes).ok()) {
    if (entries_.DropFor(client, bytes)) continue;
    Discharge();
    return false;
  }
  const auto place =
      entries_.Add(client, bytes,
                   {.id = id,
                    .response = std::make_shared<const StoredResponse>(std::move(response)),
                    .used_ns = clock_.NowNs()});
  by_id_.emplace(id, place);
  return true;
}

std::shared_ptr<const StoredResponse> ResponseStore::Find(const Identity& client,
                                                          const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto place = FindEntry(client, id);
  if (!place) return nullptr;
  Entry& entry = (*place)->value;
  entry.used_ns = clock_.NowNs();
  entries_.Touch(*place);
  return entry.response;
}

size_t ResponseStore::BytesOf(const Identity& client, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->owner != client) return 0;
  return found->second->value.response->num_bytes();
}

bool ResponseStore::Remove(const Identity& client, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto place = FindEntry(client, id);
  if (!place) return false;
  entries_.Drop(*place);
  Discharge();
  return true;
}

size_t ResponseStore::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return entries_.bytes();
}

std::optional<ResponseStore::Entries::Place> ResponseStore::FindEntry(const Identity& client,
                                                                      const std::string& id) {
  DropIdle();
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->owner != client) return std::nullopt;
  return found->second;
}

void ResponseStore::DropIdle() {
  const int64_t now_ns = clock_.NowNs();
  entries_.DropOld([&](const Entry& entry) { return now_ns - entry.used_ns > max_idle_ns_; });
  Discharge();
}

}  // namespace inflight::openai
