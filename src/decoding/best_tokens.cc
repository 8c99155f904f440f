// SPDX-License-Identifier: Apache-2.0
#include "decoding/best_tokens.h"

#include <algorithm>
#include <array>
#include <limits>

#include "decoding/draft_tree.h"

namespace inflight::decoding {

// Few are wanted, and most of a row is worse than the worst of them: one comparison a logit.
void BestTokens(const float* logits, int vocab_size, int count, int32_t* ids) {
  if (count == 0) return;
  std::array<float, DraftTree::kMaxChoices> best{};
  std::fill_n(best.begin(), count, -std::numeric_limits<float>::infinity());
  std::fill_n(ids, count, 0);
  for (int id = 0; id < vocab_size; ++id) {
    const float value = logits[id];
    if (!(value > best[static_cast<size_t>(count) - 1])) continue;
    int place = count - 1;
    for (; place > 0 && value > best[static_cast<size_t>(place) - 1]; --place) {
      best[static_cast<size_t>(place)] = best[static_cast<size_t>(place) - 1];
      ids[place] = ids[place - 1];
    }
    best[static_cast<size_t>(place)] = value;
    ids[place] = id;
  }
}

}  // namespace inflight::decoding
