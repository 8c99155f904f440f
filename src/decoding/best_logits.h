// SPDX-License-Identifier: Apache-2.0
// The best logits of a row, processed, and what their log-probs need: what a device hands over of a
// row that a beam search goes on from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "inflight/request.h"

namespace inflight::decoding {

// Its entries follow it in memory, best first; ties by the lower id. None where the largest logit
// is not finite; fewer than asked where fewer are possible: NaN and -inf are not.
struct BestLogits {
  struct Entry {
    TokenId id = 0;
    float logit = 0;
  };

  static constexpr int kMaxCount = 256;
  static constexpr size_t Bytes(int count) {
    return sizeof(BestLogits) + static_cast<size_t>(count) * sizeof(Entry);
  }

  double sum_of_exps = 0;  // exp(logit - max) of the whole row
  float max = 0;
  int32_t num_entries = 0;

  std::span<const Entry> entries() const {
    return {reinterpret_cast<const Entry*>(this + 1), static_cast<size_t>(num_entries)};
  }
};

}  // namespace inflight::decoding
