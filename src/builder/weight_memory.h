// SPDX-License-Identifier: Apache-2.0
// The memory that an engine's weights lie in. Engines lay them out from byte 0 on, one tensor after
// the other; layers that a GPU streams (model/weight_stream.h) are cut out of that range into
// pinned host memory, and what is left moves together in the device's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "artifact/engine_load.h"
#include "builder/builder.h"
#include "model/engine.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace inflight::builder {

// Where a layer's weights lie in the layout; multiples of 64 bytes.
struct LayerRange {
  int layer = 0;
  uint64_t offset_bytes = 0;
  uint64_t num_bytes = 0;
};

// What kind of memory, as of OpenOptions.
struct WeightPlace {
  bool can_release = false;
  const model::Engine* into = nullptr;
};
inline WeightPlace WeightPlaceOf(const OpenOptions& options) {
  return {.can_release = options.can_release, .into = options.into};
}

class WeightMemory {
 public:
  // `num_bytes` in all, of which `host` lies in pinned memory: ascending, apart from each other.
  // kResourceExhausted says how much is needed where, what is free and what helps.
  static Result<WeightMemory> Allocate(Device& device, uint64_t num_bytes,
                                       std::span<const LayerRange> host,
                                       const WeightPlace& place = {});

  // Parts of the layout, ascending, without gaps, and where each lies.
  std::span<const artifact::LoadTarget> parts() const { return parts_; }
  const artifact::LoadTarget& PartOf(uint64_t offset_bytes) const;
  std::byte* At(uint64_t offset_bytes) const;

  // The engine keeps the memory, and has its host_layers from it.
  void GiveTo(model::Engine* engine);

 private:
  Result<std::byte*> TakeDeviceMemory(Device& device, uint64_t num_bytes, const WeightPlace& place);
  void Place(uint64_t end, std::byte* data, bool is_on_host);

  Buffer device_;
  std::shared_ptr<ReleasableMemory> releasable_;  // in its place, or null
  std::vector<PinnedBuffer> host_;
  std::vector<model::HostLayer> host_layers_;
  std::vector<artifact::LoadTarget> parts_;
};

}  // namespace inflight::builder
