// SPDX-License-Identifier: Apache-2.0
// Drafts out of texts (arXiv:2411.04975): what followed the longest end of a sequence's text
// wherever that stood before, in the text itself or in outputs of sequences that ended lately. Of
// several places the token that most of them have is proposed, behind it what most of those have
// that agree so far. Agents, retries and evaluations write what they or others wrote before.
//
// Threads: Draft may run for several sequences at once; Keep runs alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inflight/request.h"

namespace inflight::decoding {

class SuffixDrafts {
 public:
  static constexpr int kShortestMatch = 3;
  static constexpr int kLongestMatch = 32;
  static constexpr int kMaxPlaces = 32;  // that are looked at, of each of both texts the newest

  // `max_kept` tokens of outputs are kept, at 20 bytes each; a power of two. The oldest leave.
  explicit SuffixDrafts(int max_kept);
  static uint64_t Bytes(int max_kept);

  // The output of a sequence that ended.
  void Keep(std::span<const TokenId> output);

  // Up to `max_drafts` tokens that may follow `tokens`, into `drafts`, which keeps its capacity.
  // Of equally many places the newest counts, the text's own before others. Costs O(tokens).
  void Draft(std::span<const TokenId> tokens, int max_drafts, std::vector<TokenId>* drafts) const;

 private:
  // Where a text may go on: the token at `next` of the kept outputs, or of the text itself.
  struct Place {
    bool is_kept = false;
    int64_t next = 0;
  };
  class Search;

  static constexpr TokenId kEnd = -1;  // behind each output
  bool Holds(int64_t position) const;
  TokenId Kept(int64_t position) const {
    return kept_[static_cast<size_t>(position) & (kept_.size() - 1)];
  }
  size_t HashOf(const TokenId* last) const;  // of kShortestMatch tokens
  void Append(TokenId token);

  std::vector<TokenId> kept_;    // [max_kept] a ring; position p at p % max_kept
  std::vector<int64_t> before_;  // [max_kept] the newest earlier position behind tokens of one hash
  std::vector<int64_t> newest_;  // [max_kept] by hash: the newest position behind such tokens
  int64_t size_ = 1;             // positions so far; 0 is none
};

}  // namespace inflight::decoding
