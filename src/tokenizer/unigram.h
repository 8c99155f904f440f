// SPDX-License-Identifier: Apache-2.0
// The Unigram language model of SentencePiece models (best_cut.h).
//
// Equal to the `sentencepiece` package 0.2.3 to the last bit, because sums of float32 decide
// between cuts that are nearly equal: the same order of additions, and the same re-basing of sums
// that have grown large. json_unigram.h is that of tokenizer.json files.
#pragma once

#include "tokenizer/best_cut.h"
#include "tokenizer/model.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/sentencepiece_proto.h"
#include "tokenizer/unknown_pieces.h"

namespace inflight::tokenizer {

class UnigramModel final : public Model {
 public:
  // kInvalidArgument: a piece that is listed twice.
  static Result<std::shared_ptr<const UnigramModel>> Create(const SentencePieceProto& proto);

  std::unique_ptr<ModelScratch> NewScratch() const override {
    return std::make_unique<CutScratch<float>>();
  }
  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<TokenId>& out) const override;
  std::string_view kind() const override { return "Unigram"; }
  bool CoversAll() const override { return unknown_.has_bytes(); }

 private:
  PieceTrie trie_;
  UnknownPieces unknown_;
  float unk_score_ = 0;
};

}  // namespace inflight::tokenizer
