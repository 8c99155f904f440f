// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/predictions.h"

namespace inflight::cog {

bool Predictions::IsFull() const {
  const std::lock_guard lock(mutex_);
  return num_running_ >= most_;
}

std::shared_ptr<Prediction> Predictions::Find(const Identity& client, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find({client, id});
  return found == by_id_.end() ? nullptr : found->second;
}

std::shared_ptr<Prediction> Predictions::Add(const Identity& client, PredictionStart start) {
  std::optional<Key> key;
  if (start.request.id) key.emplace(client, *start.request.id);
  start.on_end = [self = shared_from_this(), key] { self->Remove(key); };
  auto prediction = std::make_shared<Prediction>(std::move(start));
  const std::lock_guard lock(mutex_);
  if (num_running_ >= most_) return nullptr;
  if (key && !by_id_.emplace(*key, prediction).second) return nullptr;
  ++num_running_;
  return prediction;
}

void Predictions::Remove(const std::optional<Key>& key) {
  std::shared_ptr<Prediction> removed;  // ends without the mutex
  const std::lock_guard lock(mutex_);
  --num_running_;
  if (!key) return;
  const auto found = by_id_.find(*key);
  if (found == by_id_.end()) return;
  removed = std::move(found->second);
  by_id_.erase(found);
}

}  // namespace inflight::cog
