// SPDX-License-Identifier: Apache-2.0
// What a model's configuration says of its tensors, as clients see it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model_config.pb.h"

namespace inflight::kserve_http {

// Of a ModelInput or ModelOutput: with a leading -1 when the model batches; -1 is variable.
template <typename Io>
std::vector<int64_t> MetadataShape(const ::inference::ModelConfig& config, const Io& io) {
  std::vector<int64_t> shape;
  if (config.max_batch_size() > 0) shape.push_back(-1);
  shape.insert(shape.end(), io.dims().begin(), io.dims().end());
  return shape;
}

inline const ::inference::ModelInput* FindInput(const ::inference::ModelConfig& config,
                                                std::string_view name) {
  for (const auto& input : config.input()) {
    if (input.name() == name) return &input;
  }
  return nullptr;
}

}  // namespace inflight::kserve_http
