// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_stage.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace inflight::tokenizer {

std::optional<char> ByteOfPiece(std::string_view piece) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  const size_t high = kDigits.find(piece[3]), low = kDigits.find(piece[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<char>(16 * high + low);
}

void SentencePieceStage::Pass(std::string_view text) {
  if (text.empty()) return;
  has_text_ = true;
  next_.Text(text);
}

void SentencePieceStage::EndToken() {
  const auto byte = step_.has_bytes ? ByteOfPiece(piece_) : std::nullopt;
  if (byte) {
    bytes_ += *byte;
    FlushBytes(/*at_end=*/false);
  } else {
    FlushBytes(/*at_end=*/true);
    Piece(piece_);
  }
  piece_.clear();
}

void SentencePieceStage::Finish() {
  FlushBytes(/*at_end=*/true);
  next_.EndToken();
  next_.Finish();
}

void SentencePieceStage::Piece(std::string_view piece) {
  if (took_blank_ || has_text_) at_start_ = false;
  took_blank_ = false;
  if (at_start_ && step_.strips_first && piece.starts_with(kMetaspace)) {
    piece.remove_prefix(kMetaspace.size());
    took_blank_ = !step_.strips_all;
  }
  out_.clear();
  for (size_t i = 0; i < piece.size();) {
    const size_t mark = std::min(piece.find(kMetaspace, i), piece.size());
    out_ += piece.substr(i, mark - i);
    if (mark < piece.size()) out_ += ' ';
    i = mark + kMetaspace.size();
  }
  Pass(out_);
}

void SentencePieceStage::FlushBytes(bool at_end) {
  const std::string_view bytes = bytes_;
  size_t i = 0;
  out_.clear();
  while (i < bytes.size()) {
    const Utf8Prefix prefix = ClassifyUtf8(bytes.substr(i));
    if (prefix.kind == Utf8Prefix::kCharacter) {
      out_ += bytes.substr(i, prefix.size);
      i += prefix.size;
      continue;
    }
    if (prefix.kind == Utf8Prefix::kIncomplete && !at_end) break;
    out_ += kReplacementChar;
    ++i;
  }
  bytes_.erase(0, i);
  Pass(out_);
}

}  // namespace inflight::tokenizer
