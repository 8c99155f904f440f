// SPDX-License-Identifier: Apache-2.0
// Small models written out by hand, and files that are wrong. Ids over a corpus are compared with
// the package in tests/tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "inflight/tokenizer.h"

namespace inflight::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;

enum Type { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Writes the wire format; sizes and varints stay below 2^14.
std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
std::string Number(int field, uint64_t value) { return Varint(field << 3) + Varint(value); }
std::string Bytes(int field, const std::string& bytes) {
  return Varint(field << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Piece(const std::string& text, float score = 0, Type type = kNormal) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return Bytes(1, Bytes(1, text) + Varint(2 << 3 | 5) + bits + Number(3, type));
}

constexpr uint64_t kUnigramType = 1, kBpeType = 2;
std::string Trainer(uint64_t model_type, bool byte_fallback = false) {
  return Bytes(2, Number(3, model_type) + Number(35, byte_fallback ? 1 : 0));
}
// No rules, a blank in front, extra blanks kept.
const std::string kLlamaNormalizer = Bytes(3, Number(3, 1) + Number(4, 0));

const std::string kUnk = Piece("<unk>", 0, kUnknown);

Status Refusal(const std::string& file) { return Tokenizer::FromSentencePiece(file).status(); }

auto MustLoad(const std::string& file) {
  auto tokenizer = Tokenizer::FromSentencePiece(file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

TEST(SentencePiece, KindsThatAreNotSupportedAreRefusedByName) {
  EXPECT_THAT(Refusal(kUnk + Trainer(3)).message(), HasSubstr("model_type: WORD"));
  EXPECT_THAT(Refusal(kUnk + Trainer(4)).message(), HasSubstr("model_type: CHAR"));
  EXPECT_EQ(Refusal(kUnk + Trainer(4)).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Refusal(kUnk + Trainer(9)).message(), HasSubstr("model_type: got 9"));
  EXPECT_THAT(Refusal(kUnk + Bytes(5, Bytes(2, "rules"))).message(),
              HasSubstr("denormalizer_spec.precompiled_charsmap"));
}

TEST(SentencePiece, WrongFilesAreErrorsThatNameTheField) {
  EXPECT_THAT(Refusal("").message(), HasSubstr("pieces: there are none"));
  EXPECT_THAT(Refusal("x").message(), HasSubstr("malformed protobuf"));
  EXPECT_THAT(Refusal("\x0A\x7Fshort").message(), HasSubstr("malformed protobuf"));
  EXPECT_THAT(Refusal(Number(1, 7)).message(), HasSubstr("pieces: has wire type 0, must be 2"));
  EXPECT_THAT(Refusal(Piece("a")).message(), HasSubstr("unknown piece"));
  EXPECT_THAT(Refusal(kUnk + Piece("b", 0, kUnknown)).message(), HasSubstr("pieces[1].type"));
  EXPECT_THAT(Refusal(kUnk + Piece("")).message(), HasSubstr("pieces[1].piece: must not be empty"));
  EXPECT_THAT(Refusal(kUnk + Piece("\xFF")).message(),
              HasSubstr("pieces[1].piece: not valid UTF-8"));
  EXPECT_THAT(Refusal(kUnk + Piece("a", NAN)).message(), HasSubstr("pieces[1].score"));
  EXPECT_THAT(Refusal(kUnk + Piece("a") + Piece("a")).message(), HasSubstr("\"a\""));
  EXPECT_THAT(Refusal(kUnk + Piece("<0x41>", 0, kByte)).message(), HasSubstr("byte_fallback"));
  EXPECT_THAT(Refusal(kUnk + Trainer(kBpeType, true)).message(), HasSubstr("byte 0"));
  EXPECT_THAT(Refusal(kUnk + Bytes(3, Bytes(2, "abc"))).message(), HasSubstr("header"));
  EXPECT_THAT(Refusal(kUnk + Bytes(3, Bytes(2, std::string("\x04\0\0\0abcdef", 10)))).message(),
              HasSubstr("valid UTF-8"));
  EXPECT_THAT(Refusal(kUnk + Bytes(3, Bytes(2, std::string("\x40\0\0\0abcdef", 10)))).message(),
              HasSubstr("64 bytes of trie, has 6"));
}

TEST(SentencePiece, BpeMergesTheHighestScoreFirst) {
  // ids:                1            2            3            4             5              6
  const std::string pieces = kUnk + Piece("▁", -9) + Piece("a", -9) + Piece("b", -9) +
                             Piece("ab", -2) + Piece("ba", -1) + Piece("▁ab", -3);
  const auto t = MustLoad(pieces + Trainer(kBpeType) + kLlamaNormalizer);
  EXPECT_THAT(*t->Encode("ab", false), ElementsAre(6));
  EXPECT_THAT(*t->Encode("aba", false), ElementsAre(1, 2, 5));    // ba goes before ab
  EXPECT_THAT(*t->Encode("ab xx", false), ElementsAre(6, 1, 0));  // one unknown for a run
  EXPECT_EQ(t->unk_id(), 0);
  EXPECT_EQ(t->Decode(Ids{6, 6, 0, 6}, false), "ab ab \u2047  ab");
}

TEST(SentencePiece, UnusedPiecesAreTakenApartAgain) {
  const std::string pieces = kUnk + Piece("▁", -9) + Piece("a", -9) + Piece("b", -9) +
                             Piece("ab", -1, kUnused) + Piece("abb", -2);
  const auto t = MustLoad(pieces + Trainer(kBpeType) + kLlamaNormalizer);
  EXPECT_THAT(*t->Encode("abb", false), ElementsAre(1, 5));
  EXPECT_THAT(*t->Encode("ab", false), ElementsAre(1, 2, 3));
}

TEST(SentencePiece, UnigramTakesTheBestSum) {
  const std::string pieces = kUnk + Piece("▁", -1) + Piece("a", -2) + Piece("b", -2) +
                             Piece("ab", -3) + Piece("bc", -1) + Piece("<u>", 0, kUserDefined);
  const auto t = MustLoad(pieces + Trainer(kUnigramType) + kLlamaNormalizer);
  EXPECT_THAT(*t->Encode("ab", false), ElementsAre(1, 4));      // -3 against -2 - 2
  EXPECT_THAT(*t->Encode("abc", false), ElementsAre(1, 2, 5));  // -2 - 1 against -3 - 13
  EXPECT_THAT(*t->Encode("a<u>xyb", false), ElementsAre(1, 2, 6, 0, 3));
}

TEST(SentencePiece, EqualSumsKeepTheEarlierPiece) {
  const std::string pieces = kUnk + Piece("▁", -1) + Piece("a", -1) + Piece("aa", -1);
  const auto t = MustLoad(pieces + Trainer(kUnigramType) + kLlamaNormalizer);
  // aa+a and a+aa both sum to -2; at the end of aaa the piece that begins earlier is seen first.
  EXPECT_THAT(*t->Encode("aaa", false), ElementsAre(1, 2, 3));
}

TEST(SentencePiece, BytesThatAreNoCharacterAreMarkedOneByOne) {
  std::string pieces = kUnk + Piece("<s>", 0, kControl) + Piece("▁", -1);  // bytes from 3 on
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    pieces += Piece(name, 0, kByte);
  }
  const auto t = MustLoad(pieces + Trainer(kBpeType, true) + kLlamaNormalizer);
  EXPECT_THAT(*t->Encode("é", false), ElementsAre(2, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(t->Decode(Ids{3 + 0xC3, 3 + 0xA9, 3 + 0xE2, 3 + 0x82, 3 + 'a'}, false),
            "é\uFFFD\uFFFDa");
  EXPECT_EQ(t->Decode(Ids{3 + 0xC3, 1, 3 + 0xA9}, true), "\uFFFD\uFFFD");  // <s> ends the run
  EXPECT_EQ(t->bos_id(), 1);
  EXPECT_EQ(t->TokenBytes(3 + 0xC3), "\xC3");
  EXPECT_EQ(t->TokenBytes(2), " ");
  EXPECT_EQ(t->TokenBytes(1), "");
  Detokenizer d(t, true);
  EXPECT_EQ(d.Append(Ids{3 + 0xC3}), "");
  EXPECT_EQ(d.Append(Ids{3 + 0xA9}), "é");  // a character waits for no end of its run
  EXPECT_EQ(d.Append(Ids{3 + 0xE2}), "");
  EXPECT_EQ(d.Finish(), "\uFFFD");
}

}  // namespace
}  // namespace inflight::tokenizer
