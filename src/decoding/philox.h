// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a pure function of (seed, position), so that a sampled token
// depends on neither slot, batch, interleaving nor backend, and a resumed sequence draws what it
// would have drawn.
//
// Philox4x32 with 10 rounds: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// Key = the sequence's seed, counter = the absolute position of the token being drawn, and what the
// number is for.
#pragma once

#include <array>
#include <cstdint>

namespace inflight::decoding {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A draft is drawn by the same number as the token in its place would be: whether it is accepted,
// and what replaces it, is up to others.
enum class DrawUse : uint32_t { kToken = 0, kAcceptance = 1, kReplacement = 2 };

// Uniform in (0, 1], 53 bits.
constexpr double UniformAt(uint64_t seed, uint64_t position, DrawUse use = DrawUse::kToken) {
  const PhiloxBlock block =
      Philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                  static_cast<uint32_t>(use), 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32 | block[1]) >> 11;
  return (static_cast<double>(bits) + 1.0) * 0x1p-53;
}

}  // namespace inflight::decoding
