// SPDX-License-Identifier: Apache-2.0
#include "executor/host_adapters.h"

#include <cstring>
#include <utility>

namespace inflight::executor {
namespace {

Identity OwnerOf(const AdapterKey& key) {
  Identity owner = {};
  std::memcpy(owner.data(), &key.client_id, sizeof(key.client_id));
  return owner;
}

uint64_t BytesOf(const LoraTensors& tensors) {
  uint64_t bytes =
      sizeof(LoraTensors) + tensors.weights.size() + tensors.rows.size() * sizeof(LoraTensors::Row);
  for (const LoraTensors::Bias& bias : tensors.biases)
    bytes += sizeof(bias) + bias.values.size() * sizeof(float);
  return bytes;
}

}  // namespace

HostAdapters::HostAdapters(uint64_t max_bytes)
    : max_bytes_(max_bytes), kept_([this](Kept& gone) { by_key_.erase(gone.key); }) {}

void HostAdapters::Keep(const AdapterKey& key, std::shared_ptr<const LoraTensors> tensors) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) kept_.Drop(found->second);
  const uint64_t bytes = BytesOf(*tensors);
  const Identity owner = OwnerOf(key);
  if (bytes > max_bytes_ || !kept_.MakeRoom(owner, bytes, max_bytes_)) return;
  by_key_[key] = kept_.Add(owner, bytes, {.key = key, .tensors = std::move(tensors)});
}

std::shared_ptr<const LoraTensors> HostAdapters::Find(const AdapterKey& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  kept_.Touch(found->second);
  return found->second->value.tensors;
}

}  // namespace inflight::executor
