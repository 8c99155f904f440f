// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "executor/backend.h"

namespace inflight::executor {

// A beam search went on: beam j, whose slot is slots[j], from beam parents[j] by tokens[j].
struct BeamMove {
  std::span<const SlotId> slots;
  std::span<const int32_t> parents;
  std::span<const TokenId> tokens;
  int num_kv_tokens = 0;  // that each beam holds; one less than its tokens
};

}  // namespace inflight::executor
