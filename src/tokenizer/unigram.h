// SPDX-License-Identifier: Apache-2.0
// The Unigram language model: of all ways to cut a text into pieces, the one of the largest sum of
// scores (arXiv:1804.10959, section 3.1; Viterbi).
//
// Equal to the `sentencepiece` package 0.2.3 to the last bit, because sums of float32 decide
// between cuts that are nearly equal: the same order of additions, and the same re-basing of sums
// that have grown large. Of equal sums the one found first stays (the piece that begins earlier).
// Cost: text bytes times the longest piece, no allocation once the scratch has grown.
#pragma once

#include "tokenizer/model.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/sentencepiece_proto.h"
#include "tokenizer/unknown_pieces.h"

namespace inflight::tokenizer {

struct UnigramScratch final : ModelScratch {
  // The best cut that ends at a byte offset: its last piece.
  struct Node {
    float score;
    int32_t begin;  // -1: no piece ends here
    TokenId id;
  };
  std::vector<Node> nodes;  // by offset, [text bytes + 1]
  std::vector<int32_t> ends;

  size_t grown_bytes() const override {
    return nodes.capacity() * sizeof(nodes[0]) + ends.capacity() * sizeof(ends[0]);
  }
};

class UnigramModel final : public Model {
 public:
  // kInvalidArgument: a piece that is listed twice.
  static Result<std::shared_ptr<const UnigramModel>> Create(const SentencePieceProto& proto);

  std::unique_ptr<ModelScratch> NewScratch() const override {
    return std::make_unique<UnigramScratch>();
  }
  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<TokenId>& out) const override;
  bool CoversAll() const override { return unknown_.has_bytes(); }

 private:
  void FindBestCut(std::string_view text, std::vector<UnigramScratch::Node>& nodes) const;

  PieceTrie trie_;
  UnknownPieces unknown_;
  float unk_score_ = 0;
};

}  // namespace inflight::tokenizer
