// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace inflight::executor {

// tokens[slot][at] = id, of a slot that then has `num_tokens`; slot -1: none. Its key and value
// stand `kv_shift` places behind `at`, where a tree of drafts had it, and move to `at`. Tokens of a
// slot follow each other, the first ones first.
struct alignas(16) DrawnToken {  // a GPU writes it at once
  int16_t slot = -1;
  uint16_t kv_shift = 0;
  int32_t at = 0;
  int32_t id = 0;
  int32_t num_tokens = 0;

  bool operator==(const DrawnToken&) const = default;
};

}  // namespace inflight::executor
