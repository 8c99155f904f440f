// SPDX-License-Identifier: Apache-2.0
// WordPiece: a word becomes the longest token that it begins with, then the longest that goes on,
// and so forth; tokens that go on have a prefix in the vocabulary ("##"). Where none fits, and for
// a word of too many characters, the whole word is unknown.
//
// Cost: the characters of a word times the longest token (kMaxPieceBytes), whatever the word.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/piece_trie.h"

namespace inflight::tokenizer {

struct WordPieceConfig {
  std::string unk_token;
  std::string continuing_subword_prefix;
  uint64_t max_input_chars_per_word = 0;
};

class WordPieceModel final : public Model {
 public:
  // kInvalidArgument: a token of more than kMaxPieceBytes.
  static Result<std::shared_ptr<const WordPieceModel>> Create(Vocab vocab, WordPieceConfig config);

  std::unique_ptr<ModelScratch> NewScratch() const override;
  // Sets unk_missing where a word is unknown and unk_token is not in the vocabulary.
  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<TokenId>& out) const override;
  std::string_view kind() const override { return "WordPiece"; }
  bool CoversAll() const override { return false; }

 private:
  bool AppendPieces(std::string_view word, std::vector<TokenId>& out) const;

  WordPieceConfig config_;
  PieceTrie trie_;                             // of all tokens
  std::optional<uint32_t> continuation_root_;  // where the prefix leads in it
  std::optional<TokenId> unk_id_;
};

}  // namespace inflight::tokenizer
