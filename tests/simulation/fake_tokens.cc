// SPDX-License-Identifier: Apache-2.0
#include "simulation/fake_tokens.h"

#include "decoding/stop.h"

namespace inflight::testing {
namespace {

std::vector<Beam> ExpectedBeams(const Request& request, int vocab_size) {
  const int width = request.sampling.beam_width;
  const uint64_t seed = request.sampling.seed.value_or(0);
  uint64_t prompt_hash = 0;
  for (const TokenId token : request.input_ids) prompt_hash = Chain(prompt_hash, token);
  std::vector<Beam> beams(static_cast<size_t>(width));
  std::vector<uint64_t> hashes(beams.size(), prompt_hash);
  for (int n = 1; n <= request.max_tokens; ++n) {
    const auto beams_before = beams;
    const auto hashes_before = hashes;
    for (int j = 0; j < width; ++j) {
      const auto parent = static_cast<size_t>(ParentOf(seed, n, j, width));
      const auto beam = static_cast<size_t>(j);
      const TokenId token = DrawToken(hashes_before[parent], BeamSeed(seed, j), vocab_size).token;
      beams[beam] = beams_before[parent];
      beams[beam].output_ids.push_back(token);
      hashes[beam] = Chain(hashes_before[parent], token);
    }
    if (IsOver(seed, n)) break;
  }
  if (request.sampling.num_return_sequences) {
    beams.resize(static_cast<size_t>(*request.sampling.num_return_sequences));
  }
  return beams;
}

}  // namespace

uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

uint64_t Chain(uint64_t hash, TokenId token) { return Mix(hash ^ static_cast<uint64_t>(token)); }

Draw DrawToken(uint64_t hash, uint64_t seed, int vocab_size) {
  const uint64_t bits = Mix(hash ^ Mix(seed));
  return {.token = static_cast<TokenId>(bits % static_cast<uint64_t>(vocab_size)),
          .log_prob = -static_cast<float>((bits >> 40) % 1024) / 64.0F};
}

int ParentOf(uint64_t seed, int n, int j, int width) {
  if (n == 1) return 0;
  const uint64_t bits = Mix(seed ^ Mix(static_cast<uint64_t>(n * 1000 + j)));
  if (bits % 2 == 0) return j;
  return static_cast<int>((bits >> 8) % static_cast<uint64_t>(width));
}

uint64_t BeamSeed(uint64_t seed, int j) { return Mix(seed) + static_cast<uint64_t>(j); }

bool IsOver(uint64_t seed, int n) { return Mix(seed + static_cast<uint64_t>(n)) % 24 == 0; }

ExpectedResult ExpectedOutput(const Request& request, int vocab_size) {
  ExpectedResult expected;
  if (request.sampling.beam_width > 1) {
    expected.beams = ExpectedBeams(request, vocab_size);
    expected.reason = FinishReason::kLength;
    return expected;
  }
  const int num_prompt = static_cast<int>(request.input_ids.size());
  const decoding::StopCriteria stop{.end_ids = request.end_ids,
                                    .stop_words = request.stop_words,
                                    .num_prompt_tokens = num_prompt,
                                    .max_seq_len = num_prompt + request.max_tokens};
  std::vector<TokenId> tokens = request.input_ids;
  uint64_t hash = 0;
  for (const TokenId token : tokens) hash = Chain(hash, token);
  while (expected.reason == FinishReason::kNotFinished) {
    const Draw draw = DrawToken(hash, request.sampling.seed.value_or(0), vocab_size);
    tokens.push_back(draw.token);
    hash = Chain(hash, draw.token);
    expected.cum_log_prob += draw.log_prob;
    expected.reason = decoding::CheckStop(stop, tokens);
    if (expected.reason != FinishReason::kEndId) {
      expected.ids.push_back(draw.token);
      expected.log_probs.push_back(draw.log_prob);
    }
  }
  return expected;
}

}  // namespace inflight::testing
