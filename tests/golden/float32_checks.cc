// SPDX-License-Identifier: Apache-2.0
#include "float32_checks.h"

#include <algorithm>
#include <cmath>

#include "constants.h"

namespace inflight::golden {

Difference Compare(const Expected& expected, const std::vector<std::vector<float>>& logits) {
  Difference out;
  const size_t vocab = logits.front().size();
  for (size_t i = 0; i < expected.positions.size(); ++i)
    for (size_t v = 0; v < vocab; ++v) {
      const float want = expected.logits[i * vocab + v];
      const float got = logits[static_cast<size_t>(expected.positions[i])][v];
      const float difference = std::fabs(want - got);
      if (!(difference <= out.worst)) out = {difference, expected.positions[i], v, got, want};
    }
  return out;
}

std::string Describe(const Difference& d) {
  return "position " + std::to_string(d.position) + ", token " + std::to_string(d.token) +
         ": found " + std::to_string(d.found) + ", expected " + std::to_string(d.expected);
}

std::vector<std::vector<TokenId>> Greedy(const std::shared_ptr<const model::Engine>& engine,
                                         const ops::OpTable& table, Device& device,
                                         std::span<const Expected> prompts, size_t num_steps) {
  PagedModel model(engine, table, device, prompts.size(), kBlockSize);
  std::vector<std::vector<TokenId>> ids(prompts.size());
  for (size_t step = 0; step < num_steps; ++step) {
    std::vector<Piece> pieces;
    for (size_t s = 0; s < prompts.size(); ++s)
      pieces.push_back({s, step == 0 ? std::span<const TokenId>(prompts[s].prompt)
                                     : std::span<const TokenId>(&ids[s].back(), 1)});
    std::ranges::stable_partition(pieces, [](const Piece& p) { return p.tokens.size() == 1; });
    const auto logits = model.Step(pieces, /*last_only=*/true);
    for (size_t i = 0; i < pieces.size(); ++i)
      ids[pieces[i].sequence].push_back(
          static_cast<TokenId>(std::ranges::max_element(logits[i]) - logits[i].begin()));
  }
  return ids;
}

}  // namespace inflight::golden
