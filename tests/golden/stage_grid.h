// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace inflight::golden {

// How many GPUs a model has, in how many stages, and by what they hand rows over.
struct StageGrid {
  int num_gpus = 2;
  int num_stages = 2;
  const char* collectives = "peers";  // as of INFLIGHT_CUDA_COLLECTIVES

  int stage_size() const { return num_gpus / num_stages; }
  bool uses_nccl() const { return collectives == std::string("nccl"); }
  std::string Name() const {
    return std::to_string(stage_size()) + "x" + std::to_string(num_stages) +
           (collectives == std::string("peers") ? "" : collectives);
  }
};

}  // namespace inflight::golden
