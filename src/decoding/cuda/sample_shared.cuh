// SPDX-License-Identifier: Apache-2.0
// What the threads of a CTA share while they draw from a row, and what the CTAs of its cluster
// write to each other (sample_row.cuh).
#pragma once

#include <cstdint>

#include "decoding/cuda/row_chunk.cuh"

namespace inflight::decoding {

constexpr int kMaxCandidates = 2048;  // that one CTA sorts
constexpr int kCandidatesPerThread = kMaxCandidates / kThreads;
// Narrowing ends at a bin of so many tokens: with fewer than k before it they can be sorted.
constexpr uint32_t kMaxInBin = kMaxCandidates - kMaxTopK;
constexpr float kBinsPerDistance = 8;  // of the first histogram: 32 are more than kWeightless
constexpr float kNear = 8.0F;

// Of a chunk, or of the row.
struct RowSums {
  uint64_t mass;       // weights not below min_weight
  uint64_t near_mass;  // of those within kNear
  float exps;          // exp(-distance), not rounded to units; where log-probs are wanted
};

struct SampleShared : ChunkShared {
  double uniform;
  // Written by every CTA of the cluster, [its rank].
  RowSums sums[kMaxClusterSize];
  uint32_t list_sizes[kMaxClusterSize];

  RowSums warp_sums[kNumWarps];
  FoundBin found;
  uint32_t list_size;  // more than kMaxCandidates: the list is not whole
  uint32_t num_kept;
  union {
    struct {
      uint32_t counts[kNumBins];
      uint32_t low_masses[kNumBins], high_masses[kNumBins];  // words of 64-bit sums
      uint32_t row_counts[kNumBins];
      uint64_t row_masses[kNumBins];
    };
    uint32_t list[kMaxCandidates];  // indices into the chunk
    struct {
      uint32_t head_of_list[kMaxCandidates / 2];
      uint64_t keys[kThreads];  // of CTA 0: of all lists, when they are so few
    };
  };
};

}  // namespace inflight::decoding
