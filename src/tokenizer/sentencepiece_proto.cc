// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_proto.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/status_macros.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"
#include "tokenizer/wire_reader.h"

namespace inflight::tokenizer {
namespace {

using Field = WireReader::Field;
using Type = SentencePieceProto::Type;

constexpr std::string_view kNull("\0", 1);

// Calls `read(field)` for each field of `message`, of type Status(const Field&).
template <typename Read>
Status ForEach(std::string_view message, std::string_view path, const Read& read) {
  WireReader reader(message);
  Field field;
  while (reader.Next(field)) RETURN_IF_ERROR(read(field));
  if (reader.malformed()) {
    return InvalidArgument(std::string(path) + ": not a SentencePiece model (malformed protobuf)");
  }
  return Status::Ok();
}

Status Expect(const Field& field, Field::Type type, const std::string& path) {
  if (field.type == type) return Status::Ok();
  return InvalidArgument(path + ": has wire type " + std::to_string(field.type) + ", must be " +
                         std::to_string(type));
}

Status ReadBool(const Field& field, const std::string& path, bool& out) {
  RETURN_IF_ERROR(Expect(field, Field::kVarint, path));
  out = field.value != 0;
  return Status::Ok();
}

Status ReadText(const Field& field, const std::string& path, std::string& out) {
  RETURN_IF_ERROR(Expect(field, Field::kBytes, path));
  if (const auto offset = FindInvalidUtf8(field.bytes)) {
    return InvalidArgument(path + ": not valid UTF-8 at byte " + std::to_string(*offset));
  }
  out = std::string(field.bytes);
  return Status::Ok();
}

Status ReadPiece(std::string_view message, const std::string& path,
                 SentencePieceProto::Piece& piece) {
  return ForEach(message, path, [&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return ReadText(field, path + ".piece", piece.text);
      case 2:
        RETURN_IF_ERROR(Expect(field, Field::kFixed32, path + ".score"));
        piece.score = field.AsFloat();
        if (std::isfinite(piece.score)) return Status::Ok();
        return InvalidArgument(path + ".score: must be a finite number");
      case 3:
        RETURN_IF_ERROR(Expect(field, Field::kVarint, path + ".type"));
        if (field.value < 1 || field.value > 6) {
          return InvalidArgument(path + ".type: got " + std::to_string(field.value) +
                                 ", allowed are 1 to 6");
        }
        piece.type = static_cast<Type>(field.value);
        return Status::Ok();
      default:
        return Status::Ok();
    }
  });
}

Status ReadModelType(const Field& field, SentencePieceProto& proto) {
  const std::string path = "trainer_spec.model_type";
  RETURN_IF_ERROR(Expect(field, Field::kVarint, path));
  if (field.value == 3 || field.value == 4) {
    return Unimplemented(path + ": " + (field.value == 3 ? "WORD" : "CHAR") +
                         " is not supported, only UNIGRAM and BPE");
  }
  if (field.value != 1 && field.value != 2) {
    return InvalidArgument(path + ": got " + std::to_string(field.value) +
                           ", allowed are 1 (UNIGRAM) and 2 (BPE)");
  }
  proto.model_type = static_cast<SentencePieceProto::ModelType>(field.value);
  return Status::Ok();
}

Status ReadTrainerSpec(std::string_view message, SentencePieceProto& proto) {
  const std::string path = "trainer_spec";
  return ForEach(message, path, [&](const Field& field) -> Status {
    switch (field.number) {
      case 3:
        return ReadModelType(field, proto);
      case 24:
        return ReadBool(field, path + ".treat_whitespace_as_suffix",
                        proto.treat_whitespace_as_suffix);
      case 35:
        return ReadBool(field, path + ".byte_fallback", proto.byte_fallback);
      case 44:
        return ReadText(field, path + ".unk_surface", proto.unk_surface);
      case 46:
        return ReadText(field, path + ".bos_piece", proto.bos_piece);
      case 47:
        return ReadText(field, path + ".eos_piece", proto.eos_piece);
      case 48:
        return ReadText(field, path + ".pad_piece", proto.pad_piece);
      default:
        return Status::Ok();
    }
  });
}

Status ReadNormalizerSpec(std::string_view message, const std::string& path,
                          SentencePieceProto::NormalizerSpec& spec) {
  return ForEach(message, path, [&](const Field& field) -> Status {
    switch (field.number) {
      case 2:
        RETURN_IF_ERROR(Expect(field, Field::kBytes, path + ".precompiled_charsmap"));
        spec.precompiled_charsmap = std::string(field.bytes);
        return Status::Ok();
      case 3:
        return ReadBool(field, path + ".add_dummy_prefix", spec.add_dummy_prefix);
      case 4:
        return ReadBool(field, path + ".remove_extra_whitespaces", spec.remove_extra_whitespaces);
      case 5:
        return ReadBool(field, path + ".escape_whitespaces", spec.escape_whitespaces);
      default:
        return Status::Ok();
    }
  });
}

Status ReadDenormalizerSpec(std::string_view message) {
  SentencePieceProto::NormalizerSpec spec;
  RETURN_IF_ERROR(ReadNormalizerSpec(message, "denormalizer_spec", spec));
  if (spec.precompiled_charsmap.empty()) return Status::Ok();
  return Unimplemented(
      "denormalizer_spec.precompiled_charsmap: rewriting decoded text is not supported");
}

// The byte that a name <0xNN> says, in the one spelling that the package takes.
int ByteOf(std::string_view name) {
  if (name.size() != 6) return -1;
  for (int byte = 0; byte < 256; ++byte) {
    char spelled[8];
    std::snprintf(spelled, sizeof spelled, "<0x%02X>", byte);
    if (name == spelled) return byte;
  }
  return -1;
}

Status CheckPiece(const SentencePieceProto& proto, const SentencePieceProto::Piece& piece,
                  const std::string& path) {
  if (piece.text.empty()) return InvalidArgument(path + ".piece: must not be empty");
  if (const Status checked = CheckPieceBytes(piece.text); !checked.ok())
    return checked.WithPrefix(path + ".piece");
  if (piece.text.find('\0') != std::string::npos && piece.text != kNull) {
    return InvalidArgument(path + ".piece: must not hold U+0000");
  }
  if (piece.type == Type::kByte && !proto.byte_fallback) {
    return InvalidArgument(path +
                           ".type: a byte piece, although trainer_spec.byte_fallback is not set");
  }
  return Status::Ok();
}

Status Check(SentencePieceProto& proto) {
  std::array<bool, 256> has_byte{};
  for (size_t id = 0; id < proto.pieces.size(); ++id) {
    SentencePieceProto::Piece& piece = proto.pieces[id];
    const std::string path = "pieces[" + std::to_string(id) + "]";
    // Conversion scripts put a bare U+0000 beside <0x00>; the package then ignores it.
    if (piece.text == kNull && proto.byte_fallback) piece.type = Type::kUnused;
    if (piece.text == kNull && piece.type != Type::kUnused) {
      return InvalidArgument(path + ".piece: must not be U+0000");
    }
    RETURN_IF_ERROR(CheckPiece(proto, piece, path));
    if (piece.type == Type::kUnknown) {
      if (proto.unk_id >= 0) {
        return InvalidArgument(path + ".type: a second unknown piece, after pieces[" +
                               std::to_string(proto.unk_id) + "]");
      }
      proto.unk_id = static_cast<int>(id);
    } else if (piece.type == Type::kByte) {
      const int byte = ByteOf(piece.text);
      if (byte < 0) return InvalidArgument(path + ".piece: a byte piece must be <0x00> to <0xFF>");
      has_byte[static_cast<size_t>(byte)] = true;
    }
  }
  if (proto.unk_id < 0 && !proto.byte_fallback) {
    return InvalidArgument("pieces: none has the type of the unknown piece");
  }
  for (size_t byte = 0; proto.byte_fallback && byte < 256; ++byte) {
    if (has_byte[byte]) continue;
    return InvalidArgument("pieces: none stands for byte " + std::to_string(byte) +
                           ", although trainer_spec.byte_fallback is set");
  }
  return Status::Ok();
}

}  // namespace

Result<SentencePieceProto> SentencePieceProto::Parse(std::string_view file) {
  SentencePieceProto proto;
  RETURN_IF_ERROR(ForEach(file, "tokenizer.model", [&](const Field& field) -> Status {
    constexpr const char* kNames[] = {"", "pieces",           "trainer_spec", "normalizer_spec",
                                      "", "denormalizer_spec"};
    if (field.number > 5 || field.number == 4) return Status::Ok();
    RETURN_IF_ERROR(Expect(field, Field::kBytes, kNames[field.number]));
    switch (field.number) {
      case 1: {
        if (proto.pieces.size() > static_cast<size_t>(kMaxTokenId)) {
          return InvalidArgument("pieces: more than " + std::to_string(kMaxTokenId + 1));
        }
        const std::string path = "pieces[" + std::to_string(proto.pieces.size()) + "]";
        return ReadPiece(field.bytes, path, proto.pieces.emplace_back());
      }
      case 2:
        return ReadTrainerSpec(field.bytes, proto);
      case 3:
        return ReadNormalizerSpec(field.bytes, "normalizer_spec", proto.normalizer);
      default:
        return ReadDenormalizerSpec(field.bytes);
    }
  }));
  RETURN_IF_ERROR(proto.CheckPieces());
  return proto;
}

Status SentencePieceProto::CheckPieces() {
  if (pieces.empty()) return InvalidArgument("pieces: there are none");
  return Check(*this);
}

}  // namespace inflight::tokenizer
