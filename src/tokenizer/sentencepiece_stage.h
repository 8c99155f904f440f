// SPDX-License-Identifier: Apache-2.0
// Pieces -> text as the `sentencepiece` package decodes: U+2581 becomes a blank, the blank that the
// normalizer put in front goes, a run of <0xNN> pieces becomes its characters.
//
// A byte that begins no character becomes one U+FFFD. Bytes that more bytes could complete wait.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/decoder.h"

namespace inflight::tokenizer {

// The byte of <0xNN>, NN in capitals: pieces of other spellings are text.
std::optional<char> ByteOfPiece(std::string_view piece);

class SentencePieceStage final : public DecodeStage {
 public:
  SentencePieceStage(const DecoderStep& step, DecodeStage& next) : step_(step), next_(next) {}

  void Text(std::string_view part) override { piece_ += part; }
  void EndToken() override;
  void Finish() override;

 private:
  void Piece(std::string_view piece);
  void FlushBytes(bool at_end);
  void Pass(std::string_view text);

  const DecoderStep& step_;
  DecodeStage& next_;
  std::string piece_, bytes_, out_;
  bool at_start_ = true;     // no text yet, nor a blank taken off
  bool took_blank_ = false;  // the piece before gave its leading blank away
  bool has_text_ = false;
};

}  // namespace inflight::tokenizer
