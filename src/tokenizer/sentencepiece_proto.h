// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.model says: the ModelProto message of the SentencePiece package
// (sentencepiece_model.proto), read from its wire format. Fields that only matter in training are
// skipped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::tokenizer {

struct SentencePieceProto {
  enum class Type {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  enum class ModelType { kUnigram = 1, kBpe = 2 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };
  struct NormalizerSpec {
    std::string precompiled_charsmap;
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;
  };

  std::vector<Piece> pieces;  // by id
  ModelType model_type = ModelType::kUnigram;
  bool byte_fallback = false;  // then there is a piece of type kByte for each byte
  bool treat_whitespace_as_suffix = false;
  std::string unk_surface = " \xE2\x81\x87 ";  // U+2047: what an unknown piece decodes to
  std::string bos_piece = "<s>", eos_piece = "</s>", pad_piece = "<pad>";
  NormalizerSpec normalizer;
  int unk_id = -1;  // of the piece of type kUnknown; -1 only with byte_fallback

  // kInvalidArgument: not such a message, or one that the package would not load; names the field.
  // kUnimplemented: model types WORD and CHAR, a denormalizer.
  static Result<SentencePieceProto> Parse(std::string_view file);

  // For models that come in other files: checks the pieces as Parse does, and finds unk_id.
  Status CheckPieces();

  // Text can become such a piece (or, if kUnused, the pieces it was merged from).
  static bool IsSpelled(Type type) {
    return type == Type::kNormal || type == Type::kUserDefined || type == Type::kUnused;
  }
};

}  // namespace inflight::tokenizer
