// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unknown_pieces.h"

#include <cstdlib>

namespace inflight::tokenizer {

UnknownPieces::UnknownPieces(const SentencePieceProto& proto)
    : unk_id_(proto.unk_id), byte_fallback_(proto.byte_fallback) {
  for (size_t id = 0; id < proto.pieces.size(); ++id) {
    const auto& piece = proto.pieces[id];
    if (piece.type != SentencePieceProto::Type::kByte) continue;
    const auto byte = std::strtoul(piece.text.c_str() + 1, nullptr, 16);
    byte_ids_[byte & 0xFF] = static_cast<TokenId>(id);
  }
}

}  // namespace inflight::tokenizer
