// SPDX-License-Identifier: Apache-2.0
#include "model/kv_places.h"

#include <algorithm>

#include "base/check.h"

namespace inflight::model {

KvPlaces::KvPlaces(const ModelConfig& config, const AttentionWindows& windows)
    : windows_(windows.Different(LayersOfModel(config))), has_layers_(windows_.size()) {
  for (const ops::SlidingWindow& sliding : windows_)
    groups_.push_back(windows.GroupOf(sliding.window));
  std::vector<int> num_kv_layers(static_cast<size_t>(windows.num_groups()));
  for (int i = 0; i < config.num_layers; ++i) {
    const auto layer = static_cast<size_t>(config.part.first_layer + i);
    const auto window =
        static_cast<size_t>(std::ranges::find(windows_, windows.Of(layer)) - windows_.begin());
    has_layers_[window] = true;
    window_of_.push_back(static_cast<int>(window));
    kv_layer_of_.push_back(num_kv_layers[static_cast<size_t>(groups_[window])]++);
  }
}

KvPlaces::Inputs KvPlaces::Of(int window, const Batch& batch, const ops::KvCacheView& kv) const {
  const int group = groups_[static_cast<size_t>(window)];
  if (group == 0) return {&batch.paged, &kv};
  CHECK_LE(static_cast<size_t>(group), batch.other_groups.size());
  const GroupInputs& inputs = batch.other_groups[static_cast<size_t>(group - 1)];
  return {&inputs.paged, &inputs.kv};
}

}  // namespace inflight::model
