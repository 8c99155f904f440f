// SPDX-License-Identifier: Apache-2.0
// The Unigram language model of a tokenizer.json, as the `tokenizers` package has it (best_cut.h).
//
// It differs from SentencePiece's own (unigram.h): sums are float64 and never re-based, every entry
// of the vocabulary is a piece, and a character without one scores 10 less than the least entry. A
// run of such characters, and of the unknown token where the text spells it, becomes one string:
// the id of that string if it is in the vocabulary, else its <0xNN> tokens if byte_fallback and all
// are there, else the unknown id.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/best_cut.h"
#include "tokenizer/model.h"
#include "tokenizer/piece_trie.h"

namespace inflight::tokenizer {

class JsonUnigramModel final : public Model {
 public:
  struct Piece {
    std::string_view text;
    double score;
  };

  // `pieces` by id; of those that are listed again the last id is meant. kInvalidArgument: a piece
  // of more than kMaxPieceBytes, or too many of them.
  static Result<std::shared_ptr<const JsonUnigramModel>> Create(const std::vector<Piece>& pieces,
                                                                std::optional<TokenId> unk_id,
                                                                bool byte_fallback);

  std::unique_ptr<ModelScratch> NewScratch() const override {
    return std::make_unique<CutScratch<double>>();
  }
  // Sets unk_missing where a character has no piece and there is no unknown id.
  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<TokenId>& out) const override;
  std::string_view kind() const override { return "Unigram"; }
  bool CoversAll() const override { return has_all_bytes_; }

 private:
  void AppendUnknown(std::string_view run, std::vector<TokenId>& out) const;

  PieceTrie trie_;
  std::vector<double> scores_;  // by id
  double unk_score_ = 0;
  TokenId unk_id_ = -1;                  // -1: none
  std::array<TokenId, 256> byte_ids_{};  // of <0x00> to <0xFF> with byte_fallback; -1: none
  bool has_all_bytes_ = false;
};

}  // namespace inflight::tokenizer
