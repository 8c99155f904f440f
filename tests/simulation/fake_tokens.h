// SPDX-License-Identifier: Apache-2.0
// What a fake device generates: each token is a function of the sequence's seed and of all tokens
// before it; of a beam search, who goes on from whom and whether it is over are functions of its
// seed and step.
#pragma once

#include <cstdint>
#include <vector>

#include "inflight/request.h"

namespace inflight::testing {

uint64_t Mix(uint64_t x);  // splitmix64's finalizer
// The hash of the tokens of `hash` and one more; that of none is 0.
uint64_t Chain(uint64_t hash, TokenId token);

struct Draw {
  TokenId token;
  float log_prob;
};

// The token after those of `hash`, for a sequence of this seed.
Draw DrawToken(uint64_t hash, uint64_t seed, int vocab_size);

// The beam that beam j goes on from in step n = 1, 2, ... of a search.
int ParentOf(uint64_t seed, int n, int j, int width);
uint64_t BeamSeed(uint64_t seed, int j);
// Whether a search is over after step n.
bool IsOver(uint64_t seed, int n);

struct ExpectedResult {
  std::vector<TokenId> ids;  // without the end id
  std::vector<Beam> beams;   // of a beam search, which has no ids
  std::vector<float> log_probs;
  float cum_log_prob = 0;
  FinishReason reason = FinishReason::kNotFinished;
};

// What `request` yields alone on an idle device.
ExpectedResult ExpectedOutput(const Request& request, int vocab_size);

}  // namespace inflight::testing
