// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding as SentencePiece defines it: neighbours merge if their text is a piece, the
// piece of the highest score first, of equal ones the leftmost.
//
// So a piece of n characters is up to n - 1 merges that share a rank, and BpeModel does the work.
// User-defined pieces are cut out before and never merge. Two things BpeModel cannot say are done
// here, without its cache: unused pieces, which help to merge and are taken apart again, and pieces
// with a character that is no piece itself.
#pragma once

#include <unordered_map>
#include <utility>

#include "tokenizer/bpe.h"
#include "tokenizer/sentencepiece_proto.h"
#include "tokenizer/string_matcher.h"
#include "tokenizer/unknown_pieces.h"

namespace inflight::tokenizer {

class SentencePieceBpe final : public Model {
 public:
  // kInvalidArgument: a piece that is listed twice.
  static Result<std::shared_ptr<const SentencePieceBpe>> Create(const SentencePieceProto& proto);

  std::unique_ptr<ModelScratch> NewScratch() const override;
  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<TokenId>& out) const override;
  std::string_view kind() const override { return "BPE"; }
  bool CoversAll() const override { return unknown_.has_bytes(); }

 private:
  struct Scratch;
  struct Symbols;  // what texts consist of while they merge: pieces, and characters of pieces

  static Symbols FindSymbols(const SentencePieceProto& proto);
  static std::vector<RankedMerge> FindMerges(const SentencePieceProto& proto,
                                             const Symbols& symbols);
  void EncodeGeneral(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
  void Split(std::string_view text, Scratch& scratch) const;
  void Merge(Scratch& scratch) const;
  void TakeApart(TokenId symbol, std::string_view text, int depth, Scratch& scratch,
                 std::vector<TokenId>& out) const;

  BpeModel bpe_;
  StringMatcher user_defined_;
  UnknownPieces unknown_;

  // Of models that BpeModel cannot run. Symbols beyond the pieces' ids are characters without one.
  bool is_general_ = false;
  MergeTable merges_;
  std::unordered_map<std::string, TokenId> characters_;
  std::vector<std::string> extra_;  // texts of the symbols beyond the pieces
  std::vector<bool> is_unused_;     // by id
};

}  // namespace inflight::tokenizer
