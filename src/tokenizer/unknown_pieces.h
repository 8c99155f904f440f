// SPDX-License-Identifier: Apache-2.0
// What SentencePiece models give for characters without a piece: the <0xNN> pieces of their bytes,
// or one unknown id for each run of them.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "tokenizer/sentencepiece_proto.h"

namespace inflight::tokenizer {

class UnknownPieces {
 public:
  UnknownPieces() = default;
  explicit UnknownPieces(const SentencePieceProto& proto);

  TokenId id() const { return unk_id_; }
  bool has_bytes() const { return byte_fallback_; }
  // Appends for one character. `after_unknown`: the character before it had no piece either.
  void Append(std::string_view character, bool after_unknown, std::vector<TokenId>& out) const {
    if (!byte_fallback_) {
      if (!after_unknown) out.push_back(unk_id_);
      return;
    }
    for (const char c : character) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  }

 private:
  TokenId unk_id_ = -1;
  bool byte_fallback_ = false;
  std::array<TokenId, 256> byte_ids_{};
};

}  // namespace inflight::tokenizer
