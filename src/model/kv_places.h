// SPDX-License-Identifier: Apache-2.0
// What each layer of a decoder sees, and in which KV group its keys and values are.
#pragma once

#include <cstddef>
#include <vector>

#include "model/config.h"
#include "model/decoder.h"
#include "ops/attention.h"

namespace inflight::model {

class KvPlaces {
 public:
  KvPlaces() = default;
  // Of the layers of `config`, which may be a part of the model. `windows`: LayerWindows of it,
  // with the KV groups.
  KvPlaces(const ModelConfig& config, const AttentionWindows& windows);

  // Those that layers of the model have, each once.
  const std::vector<ops::SlidingWindow>& windows() const { return windows_; }
  bool has_layers(size_t window) const { return has_layers_[window]; }
  // Which of them is the layer's.
  int window_of(size_t layer) const { return window_of_[layer]; }
  // The layer's place among those of its group.
  int kv_layer_of(size_t layer) const { return kv_layer_of_[layer]; }

  // Of layers with that window; `kv` is the first group's.
  struct Inputs {
    const ops::PagedBatch* paged;
    const ops::KvCacheView* kv;
  };
  Inputs Of(int window, const Batch& batch, const ops::KvCacheView& kv) const;

 private:
  std::vector<ops::SlidingWindow> windows_;
  std::vector<int> groups_;  // [windows]
  std::vector<bool> has_layers_;
  std::vector<int> window_of_, kv_layer_of_;  // [num_layers]
};

}  // namespace inflight::model
