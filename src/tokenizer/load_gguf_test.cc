// SPDX-License-Identifier: Apache-2.0
// Tokenizers in GGUF metadata that are small enough to follow by hand. That ids equal those of the
// `tokenizers` and `sentencepiece` packages is shown in tests/tokenizer/test_gguf_tokenizers.py.
#include "tokenizer/load_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/file.h"
#include "gguf/test_file.h"
#include "inflight/tokenizer.h"

namespace inflight::tokenizer {
namespace {

using gguf::TestFile;
using gguf::ValueType;
using testing::ElementsAre;
using testing::HasSubstr;

Result<std::shared_ptr<const Tokenizer>> Load(const TestFile& file) {
  const std::string bytes = file.Bytes();
  return Tokenizer::FromGguf(std::as_bytes(std::span(bytes)));
}

TestFile ByteLevel() {
  TestFile file;
  file.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "llama-bpe");
  file.Texts("tokenizer.ggml.tokens", {"a", "b", "\xC4\xA0", "ab", "<s>", "<tool>", "[PAD]"});
  file.Numbers<int32_t>("tokenizer.ggml.token_type", ValueType::kI32, {1, 1, 1, 1, 3, 4, 5});
  file.Texts("tokenizer.ggml.merges", {"a b"});
  file.U32("tokenizer.ggml.bos_token_id", 4);
  return file;
}

TEST(GgufTokenizer, ByteLevelMergesAndCutsSpecialTokensOut) {
  const auto tokenizer = Load(ByteLevel());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(*(*tokenizer)->Encode("ab<tool>b a<s>", true), ElementsAre(4, 3, 5, 1, 2, 0, 4));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{4, 3, 5, 2, 0}, true), "ab<tool> a");
  EXPECT_TRUE((*tokenizer)->IsSpecial(4));
  EXPECT_FALSE((*tokenizer)->IsSpecial(5));
  EXPECT_EQ((*tokenizer)->bos_id(), 4);
  EXPECT_EQ((*tokenizer)->vocab_size(), 6);  // [PAD] fills up the table
}

TEST(GgufTokenizer, AddBosTokenGoesBeforeTheKindsOwnWay) {
  TestFile file = ByteLevel();
  file.Bool("tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT(*(*Load(file))->Encode("a", true), ElementsAre(0));
}

TestFile SentencePiece() {
  TestFile file;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\xE2\x96\x81", "a", "b", "ab"};
  std::vector<int32_t> types = {2, 3, 3, 1, 1, 1, 1};
  std::vector<float> scores = {0, 0, 0, -5, -4, -3, -1};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    tokens.emplace_back(name);
    types.push_back(6);
    scores.push_back(0);
  }
  file.Text("tokenizer.ggml.model", "llama").Texts("tokenizer.ggml.tokens", tokens);
  file.Numbers("tokenizer.ggml.token_type", ValueType::kI32, types);
  file.Numbers("tokenizer.ggml.scores", ValueType::kF32, scores);
  file.U32("tokenizer.ggml.bos_token_id", 1).U32("tokenizer.ggml.eos_token_id", 2);
  file.U32("tokenizer.ggml.unknown_token_id", 0);
  return file;
}

TEST(GgufTokenizer, SentencePieceHasABlankInFrontAndFallsBackToBytes) {
  const auto tokenizer = Load(SentencePiece());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(*(*tokenizer)->Encode("ab!", true), ElementsAre(1, 3, 6, 7 + '!'));
  EXPECT_THAT(*(*tokenizer)->Encode("a</s>b", false), ElementsAre(3, 4, 2, 3, 5));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{1, 3, 6, 7 + '!'}, true), "ab!");
  EXPECT_EQ((*tokenizer)->eos_id(), 2);

  TestFile bare = SentencePiece();
  bare.Bool("tokenizer.ggml.add_space_prefix", false).Bool("tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT(*(*Load(bare))->Encode("ab", true), ElementsAre(6));
}

void ExpectRefused(const TestFile& file, StatusCode code, std::string_view words) {
  const auto tokenizer = Load(file);
  ASSERT_FALSE(tokenizer.ok()) << words;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().ToString();
  EXPECT_THAT(tokenizer.status().message(), HasSubstr(words));
}

TEST(GgufTokenizer, WhatIsWrongOrNotSupportedIsNamed) {
  ExpectRefused(TestFile(), StatusCode::kNotFound, "tokenizer.ggml.model is missing");
  ExpectRefused(TestFile().Text("tokenizer.ggml.model", "bert"), StatusCode::kUnimplemented,
                "tokenizer.ggml.model: got 'bert', gpt2 and llama are supported");
  TestFile model;
  model.Text("tokenizer.ggml.model", "gpt2");
  ExpectRefused(model, StatusCode::kInvalidArgument, "tokenizer.ggml.tokens: is missing or empty");
  model.Texts("tokenizer.ggml.tokens", {"a"});
  model.Text("tokenizer.ggml.pre", "unheard-of");
  ExpectRefused(model, StatusCode::kUnimplemented,
                "tokenizer.ggml.pre: got 'unheard-of', supported are default, gpt-2,");
  TestFile few = TestFile().Text("tokenizer.ggml.model", "llama");
  few.Texts("tokenizer.ggml.tokens", {"a", "b"});
  ExpectRefused(few, StatusCode::kInvalidArgument, "tokenizer.ggml.scores: got 0 values for 2");
  few.Numbers<int32_t>("tokenizer.ggml.token_type", ValueType::kI32, {1});
  ExpectRefused(few, StatusCode::kInvalidArgument, "tokenizer.ggml.token_type: got 1 values for 2");
  TestFile merges =
      TestFile().Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "gpt-2");
  merges.Texts("tokenizer.ggml.tokens", {"a", "b"});
  ExpectRefused(merges, StatusCode::kInvalidArgument, "tokenizer.ggml.merges: is missing");
  merges.Texts("tokenizer.ggml.merges", {"a b c"});
  ExpectRefused(merges, StatusCode::kInvalidArgument, "tokenizer.ggml.merges[0]: must be two");
  TestFile broken = TestFile().Text("tokenizer.ggml.model", "gpt2");
  broken.Texts("tokenizer.ggml.tokens", {"\xFF"});
  ExpectRefused(broken, StatusCode::kInvalidArgument,
                "tokenizer.ggml.tokens[0]: is not valid UTF-8");
  ExpectRefused(ByteLevel().U32("tokenizer.ggml.eos_token_id", 7), StatusCode::kInvalidArgument,
                "tokenizer.ggml.eos_token_id: got 7, a whole number from 0 to 6");
}

}  // namespace
}  // namespace inflight::tokenizer
