// SPDX-License-Identifier: Apache-2.0
// Loading: what is refused and how, and where special tokens come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "inflight/tokenizer.h"
#include "tokenizer/test_files.h"

namespace inflight::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class LoadTest : public ::testing::Test {
 protected:
  LoadTest() {
    std::string name = ::testing::TempDir() + "tokenizer_XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~LoadTest() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& content) {
    ASSERT_TRUE(WriteFile(dir_ / name, content).ok());
  }
  auto Load() { return Tokenizer::Load(dir_); }

  std::filesystem::path dir_;
};

// The status of the byte-level tokenizer with the value at `pointer` replaced.
Status With(const std::string& pointer, const Json& value) {
  Json json = ByteLevelJson();
  json[Json::json_pointer(pointer)] = value;
  return FromJson(json).status();
}

TEST(FromJson, KindsThatAreNotSupportedAreRefusedByName) {
  const Status status = With("/model/type", "Morfessor");
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(),
              HasSubstr("model.type: model \"Morfessor\" is not supported, only BPE, Unigram, "
                        "WordLevel, WordPiece"));
  EXPECT_THAT(With("/normalizer", {{"type", "Other"}}).message(),
              HasSubstr("normalizer.type: normalizer \"Other\" is not supported, only Bert"));
  EXPECT_THAT(With("/pre_tokenizer", {{"type", "Other"}}).message(), HasSubstr("\"Other\""));
  EXPECT_THAT(With("/decoder", {{"type", "Other"}}).message(), HasSubstr("\"Other\""));
  EXPECT_THAT(With("/post_processor", {{"type", "Other"}}).message(), HasSubstr("\"Other\""));
}

TEST(FromJson, OptionsThatAreNotSupportedAreRefusedByName) {
  EXPECT_EQ(With("/model/dropout", 0.1).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(With("/model/end_of_word_suffix", "</w>").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(With("/model/continuing_subword_prefix", "##").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(With("/model/dropout", 0).code(), StatusCode::kOk);
  EXPECT_EQ(With("/model/end_of_word_suffix", "").code(), StatusCode::kOk);
  EXPECT_EQ(With("/version", "2.0").code(), StatusCode::kUnimplemented);
}

TEST(FromJson, FieldsThatAPartDoesNotHaveAreRefused) {
  const auto refusal = [](const std::string& pointer, const Json& value) {
    const Status status = With(pointer, value);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << pointer;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("/model/end_of_word", "</w>"),
              HasSubstr("model.end_of_word: is no field of model BPE, which has type, dropout, "));
  EXPECT_THAT(refusal("/pre_tokenizer/regex", "x"),
              HasSubstr("pre_tokenizer.regex: is no field of pre-tokenizer ByteLevel, which has "
                        "type, add_prefix_space, trim_offsets, use_regex"));
  EXPECT_THAT(refusal("/decoder/skips", true), HasSubstr("is no field of decoder ByteLevel"));
  EXPECT_THAT(refusal("/post_processor/triple", Json::array()),
              HasSubstr("is no field of post-processor TemplateProcessing"));
  EXPECT_THAT(refusal("/normalizer", {{"type", "Nmt"}, {"lowercase", true}}),
              HasSubstr("normalizer.lowercase: is no field of normalizer Nmt, which has type"));
  const Json inner = {{"type", "NFC"}, {"form", "NFD"}};
  EXPECT_THAT(refusal("/normalizer", {{"type", "Sequence"}, {"normalizers", {inner}}}),
              HasSubstr("normalizer.normalizers[0].form: is no field of normalizer NFC"));
  EXPECT_THAT(refusal("/decoder", {{"type", "Sequence"}, {"decoder", Json::array()}}),
              HasSubstr("decoder.decoder: is no field of decoder Sequence, which has type, deco"));
}

TEST(FromJson, WrongFieldsAreNamed) {
  const auto message = [](const std::string& pointer, const Json& value) {
    const Status status = With(pointer, value);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << pointer;
    return status.message();
  };
  EXPECT_THAT(message("/model/vocab/a", -1), HasSubstr("vocab[\"a\"]: got id -1"));
  EXPECT_THAT(message("/model/vocab/a", 1 << 24), HasSubstr("allowed are 0 to"));
  EXPECT_THAT(message("/model/vocab/a", 1 << 20), HasSubstr("vocab[\"a\"]: got id 1048576, of "));
  EXPECT_THAT(message("/model/vocab/a", "1"), HasSubstr("must be an integer"));
  EXPECT_THAT(message("/model/vocab/a", 2), HasSubstr("already that of"));
  EXPECT_THAT(message("/model/merges/1", Json::array({"a"})), HasSubstr("model.merges[1]"));
  EXPECT_THAT(message("/model/merges/1", "a b c"), HasSubstr("model.merges[1]"));
  EXPECT_THAT(message("/model/merges/1", Json::array({"a", "zz"})), HasSubstr("\"zz\""));
  EXPECT_THAT(message("/model/merges", nullptr), HasSubstr("model.merges"));
  EXPECT_THAT(message("/model", nullptr), HasSubstr("model: is missing"));
  EXPECT_THAT(message("/added_tokens/1/content", 7), HasSubstr("added_tokens[1].content"));
  EXPECT_THAT(message("/added_tokens/1/id", -1), HasSubstr("added_tokens[1].id"));
  EXPECT_THAT(message("/pre_tokenizer/add_prefix_space", "no"), HasSubstr("true or false"));
  EXPECT_THAT(message("/pre_tokenizer", Json::object()), HasSubstr("pre_tokenizer.type"));
  EXPECT_THAT(message("/post_processor/single/0/SpecialToken/id", "</s>"), HasSubstr("</s>"));
}

TEST(FromJson, GarbageAndDeepNestingAreErrors) {
  EXPECT_EQ(Tokenizer::FromJson("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Tokenizer::FromJson("[]").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Tokenizer::FromJson(std::string(100000, '[')).status().code(),
            StatusCode::kInvalidArgument);
  Json normalizer = {{"type", "NFC"}};
  for (int i = 0; i < 40; ++i) normalizer = {{"type", "Sequence"}, {"normalizers", {normalizer}}};
  EXPECT_THAT(With("/normalizer", normalizer).message(), HasSubstr("nested too deeply"));
}

TEST(FromJson, ATokenListedTwiceIsAnError) {
  std::string json = ByteLevelJson().dump();
  json.replace(json.find("\"bc\":10"), 7, "\"a\":10 ");
  EXPECT_THAT(Tokenizer::FromJson(json).status().message(), HasSubstr("listed twice"));
}

TEST_F(LoadTest, ADirectoryWithoutATokenizerSaysWhatWasSought) {
  EXPECT_EQ(Load().status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Load().status().message(), HasSubstr("tokenizer.json, vocab.json"));
  EXPECT_THAT(Load().status().message(), HasSubstr("tokenizer.model, spiece.model"));
  Write("tokenizer.model", "x");
  EXPECT_EQ(Load().status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Load().status().message(), HasSubstr((dir_ / "tokenizer.model").string()));
}

TEST_F(LoadTest, MessagesNameTheFile) {
  Write("tokenizer.json", "{");
  EXPECT_THAT(Load().status().message(), HasSubstr((dir_ / "tokenizer.json").string()));
  Write("tokenizer.json", ByteLevelJson().dump());
  Write("tokenizer_config.json", "[]");
  EXPECT_THAT(Load().status().message(), HasSubstr("tokenizer_config.json"));
}

TEST_F(LoadTest, SpecialTokensComeFromTheConfigFiles) {
  Write("tokenizer.json", ByteLevelJson().dump());
  Write("tokenizer_config.json",
        R"({"bos_token": "<s>", "eos_token": {"content": "<|end|>"}, "pad_token": null,
            "model_max_length": 1000000000000000019884624838656,
            "added_tokens_decoder": {"12": {"content": "<|end|>", "special": true}}})");
  auto tokenizer = Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ((*tokenizer)->bos_id(), 0);
  EXPECT_EQ((*tokenizer)->eos_id(), 12);
  EXPECT_EQ((*tokenizer)->pad_id(), 12);  // none named
  EXPECT_TRUE((*tokenizer)->IsSpecial(12));
  Write("special_tokens_map.json", R"({"eos_token": "a", "pad_token": "b"})");
  tokenizer = Load();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->eos_id(), 12);
  EXPECT_EQ((*tokenizer)->pad_id(), 2);
}

TEST_F(LoadTest, ModelConfigNamesTheEndIfTokenizerFilesDoNot) {
  Write("tokenizer.json", ByteLevelJson().dump());
  Write("config.json", R"({"eos_token_id": 3})");
  EXPECT_EQ((*Load())->eos_id(), 3);
  Write("config.json", R"({"version": "1", "pretrained_config": {"eos_token_id": [4]}})");
  EXPECT_EQ((*Load())->eos_id(), 4) << "an engine directory";
  Write("generation_config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ((*Load())->eos_id(), 5);
  EXPECT_EQ((*Load())->bos_id(), std::nullopt);
}

TEST_F(LoadTest, VocabAndMergesMakeAGpt2Tokenizer) {
  Write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<|endoftext|>": 4})");
  Write("merges.txt", "#version: 0.2\na b\n");
  auto tokenizer = Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(*(*tokenizer)->Encode("ab b<|endoftext|>", true), ElementsAre(2, 3, 1, 4));
  EXPECT_EQ((*tokenizer)->eos_id(), 4);
  EXPECT_EQ((*tokenizer)->bos_id(), 4);
  EXPECT_TRUE((*tokenizer)->IsSpecial(4));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{2, 3, 1, 4}, true), "ab b");
  Write("tokenizer_config.json", R"({"add_prefix_space": true, "add_bos_token": true})");
  EXPECT_THAT(*(*Load())->Encode("ab", true), ElementsAre(4, 3, 2));
  Write("merges.txt", "#version: 0.2\na  b\n");
  EXPECT_THAT(Load().status().message(), HasSubstr("line 2"));
}

}  // namespace
}  // namespace inflight::tokenizer
