// SPDX-License-Identifier: Apache-2.0
#include "model/weight_stream.h"

#include <algorithm>

#include "base/check.h"
#include "model/weight_slots.h"

namespace inflight::model {
namespace {

constexpr uint64_t kBufferAlignment = 256;

}  // namespace

LayerRing::LayerRing(int num_layers) : num_layers_(num_layers) {
  CHECK(num_layers == 0 || num_layers > kNumBuffers);
}

int LayerRing::NextInBuffer(int k) const {
  CHECK(k >= 0 && k < num_layers_);
  return k + kNumBuffers < num_layers_ ? k + kNumBuffers : BufferOf(k);
}

int LayerRing::num_copies_per_step() const {
  int num_copies = 0;
  for (int k = 0; k < num_layers_; ++k) num_copies += NextInBuffer(k) != k ? 1 : 0;
  return num_copies;
}

uint64_t RingOffset(int buffer, uint64_t layer_bytes) {
  const uint64_t aligned =
      (layer_bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  return static_cast<uint64_t>(buffer) * aligned;
}

uint64_t RingBytes(int num_layers, uint64_t layer_bytes) {
  return RingOffset(LayerRing(num_layers).num_buffers(), layer_bytes);
}

uint64_t RingBytes(const Engine& engine) {
  uint64_t largest = 0;
  for (const HostLayer& layer : engine.host_layers) largest = std::max(largest, layer.num_bytes);
  return RingBytes(static_cast<int>(engine.host_layers.size()), largest);
}

DecoderWeights MovedWeights(const Engine& engine, const std::vector<std::byte*>& places) {
  CHECK_EQ(places.size(), engine.host_layers.size());
  DecoderWeights weights = engine.weights;
  std::vector<const HostLayer*> host_layers(weights.layers.size());
  std::vector<std::byte*> place_of(weights.layers.size());
  for (size_t k = 0; k < places.size(); ++k) {
    const auto layer = static_cast<size_t>(engine.host_layers[k].layer);
    host_layers[layer] = &engine.host_layers[k];
    place_of[layer] = places[k];
  }
  for (const WeightSlot& slot : WeightSlots(engine.config, weights)) {
    if (slot.layer < 0) continue;
    const HostLayer* const host = host_layers[static_cast<size_t>(slot.layer)];
    if (host == nullptr) continue;
    const auto moved = [&](const void* data) {
      const auto offset = static_cast<const std::byte*>(data) - host->data;
      CHECK(offset >= 0 && static_cast<uint64_t>(offset) < host->num_bytes);
      return place_of[static_cast<size_t>(slot.layer)] + offset;
    };
    SetData(slot, moved(DataOf(slot)));
  }
  return weights;
}

}  // namespace inflight::model
