// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace inflight::executor {

// tokens[slot][at] = id, of a slot that then has `num_tokens`; slot -1: none.
struct DrawnToken {
  int32_t slot = -1;
  int32_t at = 0;
  int32_t id = 0;
  int32_t num_tokens = 0;

  bool operator==(const DrawnToken&) const = default;
};

}  // namespace inflight::executor
