// SPDX-License-Identifier: Apache-2.0
// Accepting drafts by what they were drawn from (arXiv:2211.17192, algorithm 1): a draft x that was
// drawn from q is accepted with probability min(1, p(x) / q(x)), p being what the target draws
// from; else a token is drawn from max(p - q, 0), normalised. What comes is distributed as p.
#pragma once

#include <span>
#include <vector>

#include "decoding/sampling_rule.h"

namespace inflight::decoding {

struct Distribution {
  struct Share {
    TokenId id;
    double share;  // > 0
  };
  std::vector<Share> shares;  // by id; they add up to 1
  double kept = 1;            // sum of exp(l - max) over what top-k and min-p keep; for log-probs
};

// What Sampler draws from a row of processed logits, [vocab_size]: all that temperature, bans,
// min-p, top-k and top-p leave, in whole units of 2^-30 as in weights.h. One token of a greedy
// rule, or where no logit is finite. `top_p` is the slot's. Typical-p is not looked at.
Distribution DistributionOf(const SamplingRule& rule, float top_p, std::span<const float> logits);

// `token`, if p(token) >= accept_at * q(token) and p(token) > 0; else the first, by id, at which
// the cumulative share of max(p - q, 0) reaches `replace_at`. Both numbers are in (0, 1].
TokenId AcceptOrReplace(const Distribution& p, const Distribution& q, TokenId token,
                        double accept_at, double replace_at);

}  // namespace inflight::decoding
