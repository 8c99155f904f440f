// SPDX-License-Identifier: Apache-2.0
// Files of tiktoken's ranks: cases worked out by hand, what decides the encoding and the special
// tokens, and what is refused. Ids over a corpus are compared with the package in tests/tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/file.h"
#include "inflight/tokenizer.h"
#include "tokenizer/test_files.h"

namespace inflight::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// By rank: the 256 bytes, then `tokens`.
std::vector<std::string> Lines(const std::vector<std::string>& tokens) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view bytes) {
    lines.push_back(EncodeBase64(bytes) + " " + std::to_string(lines.size()));
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const std::string& token : tokens) add(token);
  return lines;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string file;
  for (const std::string& line : lines) file += line + "\n";
  return file;
}

std::string Ranks(const std::vector<std::string>& tokens) { return Join(Lines(tokens)); }

std::vector<TokenId> Encoded(const std::vector<std::string>& tokens, std::string_view text) {
  auto tokenizer = Tokenizer::FromTiktoken(Ranks(tokens), "cl100k_base");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? *(*tokenizer)->Encode(text, true) : std::vector<TokenId>();
}

TEST(TiktokenRanks, TheLowestRankIsJoinedFirstAndTheLeftmostOfEqualOnes) {
  EXPECT_THAT(Encoded({"bc", "ab", "abc"}, "xabc"), ElementsAre('x', 258));  // bc, then a bc
  EXPECT_THAT(Encoded({"bc", "ab"}, "abc"), ElementsAre('a', 256));
  EXPECT_THAT(Encoded({"ab", "bc"}, "abc"), ElementsAre(256, 'c'));
  EXPECT_THAT(Encoded({"aa"}, "aaaaa"), ElementsAre(256, 256, 'a'));
  // Both of its halves are tokens, either way: whichever stands there is joined.
  EXPECT_THAT(Encoded({"ab", "bc", "abc"}, "xabc"), ElementsAre('x', 258));
}

TEST(TiktokenRanks, AWordThatIsATokenIsThatToken) {
  EXPECT_THAT(Encoded({"xyz"}, "xyz"), ElementsAre(256));  // no two parts of it are tokens
  EXPECT_THAT(Encoded({"xyz"}, "xyzx"), ElementsAre('x', 'y', 'z', 'x'));
}

TEST(TiktokenRanks, LinesMayComeInAnyOrderAndEndAsOnWindows) {
  std::vector<std::string> lines = Lines({"ab"});
  std::swap(lines[0], lines[256]);
  std::string file;
  for (const std::string& line : lines) file += line + "\r\n\r\n";
  auto tokenizer = Tokenizer::FromTiktoken(file, "cl100k_base");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(*(*tokenizer)->Encode("ab", true), ElementsAre(256));
  EXPECT_EQ((*tokenizer)->vocab_size(), 257);
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{0xC3, 0xA9, 0xC3}, true), "é\uFFFD");
}

TEST(TiktokenRanks, DamagedFilesAreRefusedByTheLine) {
  const auto with = [](size_t line, const std::string& text) {
    std::vector<std::string> lines = Lines({"ab", "abc"});
    lines[line - 1] = text;
    const Status status = Tokenizer::FromTiktoken(Join(lines), "gpt2").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(with(257, "YWI="), HasSubstr("line 257: must be base64, a blank and a rank (take a"));
  EXPECT_THAT(with(257, "YW! 256"), HasSubstr("line 257: what stands before the blank is not"));
  EXPECT_THAT(with(257, "YWI= "), HasSubstr("line 257: got rank \"\", a number is needed"));
  EXPECT_THAT(with(257, "YWI= 2x"), HasSubstr("line 257: got rank \"2x\""));
  EXPECT_THAT(with(257, "YWI= -1"), HasSubstr("line 257: got rank \"-1\""));
  EXPECT_THAT(with(257, "YWI= 4294967296"), HasSubstr("line 257: got rank \"4294967296\""));
  EXPECT_THAT(with(257, "YWI= 255"), HasSubstr("line 257: got rank 255, which is that of a line"));
  EXPECT_THAT(with(257, "YWI= 258"), HasSubstr("line 257: got rank 258, the ranks of 258 tokens"));
  EXPECT_THAT(with(257, " 256"), HasSubstr("line 257: the token has no bytes"));
  EXPECT_THAT(with(257, "YQ== 256"), HasSubstr("line 257: the token of rank 256 has the bytes of "
                                               "that of rank 97"));
  EXPECT_THAT(with(257, EncodeBase64(std::string(513, 'a')) + " 256"),
              HasSubstr("line 257: got a token of 513 bytes, allowed are 512"));
  EXPECT_THAT(with(98, "YWFh 97"), HasSubstr("no line has the single byte 97"));
  EXPECT_THAT(with(98, ""), HasSubstr("got rank 257, the ranks of 257 tokens are 0 to 256"));
  EXPECT_THAT(Tokenizer::FromTiktoken("", "gpt2").status().message(), HasSubstr("single byte 0"));
}

TEST(TiktokenRanks, WaysToCutTokensAreBounded) {
  std::vector<std::string> tokens;  // runs of a and b: each cut of one is two others
  for (size_t a = 0; a < 100; ++a)
    for (size_t b = a < 2 ? 2 - a : 0; b < 100; ++b)
      tokens.push_back(std::string(a, 'a') + std::string(b, 'b'));
  EXPECT_THAT(Tokenizer::FromTiktoken(Ranks(tokens), "gpt2").status().message(),
              HasSubstr("can be cut into two tokens in more than"));
}

class TiktokenFolder : public ::testing::Test {
 protected:
  TiktokenFolder() {
    std::string name = ::testing::TempDir() + "tiktoken_XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~TiktokenFolder() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories((dir_ / name).parent_path());
    ASSERT_TRUE(WriteFile(dir_ / name, content).ok());
  }
  void Configure(const Json& config) { Write("tokenizer_config.json", config.dump()); }
  std::string Refusal() { return std::string(Tokenizer::Load(dir_).status().message()); }
  std::shared_ptr<const Tokenizer> Load() {
    auto loaded = Tokenizer::Load(dir_);
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() ? *loaded : nullptr;
  }

  std::filesystem::path dir_;
};

Json Named(const std::string& encoding) {
  return {{"encoding_name", encoding}, {"added_tokens_decoder", Json::object()}};
}

TEST_F(TiktokenFolder, TheEncodingComesFromTheFirstThatDecides) {
  const std::string ranks = Ranks({"12", "23"});
  Write("some.tiktoken", ranks);
  EXPECT_THAT(Refusal(),
              HasSubstr("some.tiktoken: the file is called some.tiktoken, no published"));
  EXPECT_THAT(Refusal(), HasSubstr("set encoding_name in tokenizer_config.json to one of gpt2, "));
  Configure(Named("qwen"));  // digits one by one
  EXPECT_THAT(*Load()->Encode("123", true), ElementsAre('1', '2', '3'));
  Configure(Named("cl100k_base"));
  EXPECT_THAT(*Load()->Encode("123", true), ElementsAre(256, '3'));
  Configure(Named("p50k_base"));
  EXPECT_THAT(Refusal(), HasSubstr("encoding_name: got \"p50k_base\", supported are gpt2, r50k_b"));
  Json config = {{"tokenizer_class", "QWenTokenizer"}, {"added_tokens_decoder", Json::object()}};
  Configure(config);
  EXPECT_THAT(*Load()->Encode("123", true), ElementsAre('1', '2', '3'));
  config["tokenizer_class"] = "ChatGLM4Tokenizer";
  Configure(config);
  EXPECT_THAT(Refusal(), HasSubstr("tokenizer_class: got \"ChatGLM4Tokenizer\"; which pattern"));
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  Configure(config);
  EXPECT_THAT(Refusal(), HasSubstr("no published name"));
  std::filesystem::rename(dir_ / "some.tiktoken", dir_ / "o200k_base.tiktoken");
  EXPECT_THAT(*Load()->Encode("123", true), ElementsAre(256, '3'));
  std::filesystem::rename(dir_ / "o200k_base.tiktoken", dir_ / "tokenizer.model");
  EXPECT_THAT(Refusal(), HasSubstr("the file has 258 ranks, where Llama 3's tokenizer.model has "
                                   "128000"));
}

TEST_F(TiktokenFolder, SpecialTokensComeFromTheSettings) {
  Write("tokenizer.model", Ranks({"ab", "<s>"}));
  Json config = {{"encoding_name", "cl100k_base"}};
  Configure(config);
  EXPECT_THAT(Refusal(), HasSubstr("the file has 258 ranks, and cl100k_base as it is published "
                                   "100256"));
  config["additional_special_tokens"] = {"<|x|>", {{"content", "<é>"}}, "<|x|>"};
  Configure(config);
  EXPECT_THAT(*Load()->Encode("ab<é><|x|>", true), ElementsAre(256, 259, 258));
  EXPECT_EQ(Load()->Decode(std::vector<TokenId>{259, 256}, false), "<é>ab");
  EXPECT_EQ(Load()->Decode(std::vector<TokenId>{259, 256}, true), "ab");
  config["added_tokens_decoder"] = {{"300", {{"content", "<|x|>"}, {"special", true}}}};
  Configure(config);
  EXPECT_THAT(Refusal(), HasSubstr("additional_special_tokens: got \"<é>\", which is none of the"));
  config.erase("additional_special_tokens");
  config["eos_token"] = "<|x|>";
  config["bos_token"] = "<s>";  // a rank
  config["add_bos_token"] = true;
  Configure(config);
  EXPECT_THAT(*Load()->Encode("ab<|x|>", true), ElementsAre(257, 256, 300));
  EXPECT_EQ(Load()->eos_id(), 300);
  EXPECT_TRUE(Load()->IsSpecial(257));
  EXPECT_EQ(Load()->vocab_size(), 301);
  config["eos_token"] = "</s>";
  Configure(config);
  EXPECT_THAT(Refusal(), HasSubstr("eos_token: got \"</s>\", which is none of the special tokens"));
}

TEST_F(TiktokenFolder, IdsOfSpecialTokensAreTheirOwn) {
  Write("cl100k_base.tiktoken", Ranks({"<s>"}));
  const auto refusal = [&](const Json& decoder) {
    Configure({{"added_tokens_decoder", decoder}});
    return Refusal();
  };
  EXPECT_THAT(refusal({{"97", {{"content", "<|x|>"}}}}),
              HasSubstr("added_tokens_decoder[\"97\"]: \"<|x|>\" cannot have id 97"));
  EXPECT_THAT(refusal({{"300", {{"content", "<|x|>"}}}, {"301", {{"content", "<|x|>"}}}}),
              HasSubstr("added_tokens_decoder[\"301\"]: content: is that of id 300 too"));
  EXPECT_THAT(refusal({{"300", {{"content", ""}}}}), HasSubstr("content: must not be empty"));
  EXPECT_THAT(refusal({{"9999999", {{"content", "<|x|>"}}}}), HasSubstr("must have an id up to"));
  Configure({{"added_tokens_decoder", {{"256", {{"content", "<s>"}, {"special", true}}}}}});
  EXPECT_THAT(*Load()->Encode("a<s>", true), ElementsAre('a', 256));
  Write("added_tokens.json", R"({"<|y|>": 300})");
  EXPECT_THAT(Refusal(), HasSubstr("added_tokens.json: \"<|y|>\" is no special token with id 300"));
}

TEST_F(TiktokenFolder, TheModelsSettingsNameTheEndBeforeTheEncoding) {
  Write("cl100k_base.tiktoken", Ranks({"ab"}));
  Configure({{"additional_special_tokens", {"<|endoftext|>", "<|end|>"}}});
  EXPECT_EQ(Load()->eos_id(), 257);
  EXPECT_EQ(Load()->bos_id(), std::nullopt);
  Write("generation_config.json", R"({"eos_token_id": [258, 257]})");
  EXPECT_EQ(Load()->eos_id(), 258);
}

TEST_F(TiktokenFolder, FilesAreFoundInTheirOrder) {
  Configure(Named("gpt2"));
  Write("original/tokenizer.model", Ranks({"ab"}));
  EXPECT_EQ(Load()->vocab_size(), 257);
  Write("tiktoken/tokenizer.model", Ranks({"ab", "cd"}));
  EXPECT_EQ(Load()->vocab_size(), 258);
  Write("a.tiktoken", Ranks({"ab", "cd", "ef"}));
  EXPECT_EQ(Load()->vocab_size(), 259);
  Write("b.tiktoken", Ranks({}));
  EXPECT_THAT(Refusal(), HasSubstr("has a.tiktoken and b.tiktoken (leave the one that is meant)"));
  Write("tokenizer.model", Ranks({"ab", "cd", "ef", "gh"}));
  EXPECT_EQ(Load()->vocab_size(), 260);
  Write("tokenizer.model", "broken");
  EXPECT_THAT(Refusal(), HasSubstr((dir_ / "tokenizer.model").string() + ": line 1: must be"));
  Write("tokenizer.json", ByteLevelJson().dump());
  EXPECT_EQ(Load()->vocab_size(), 12);
}

TEST_F(TiktokenFolder, QwenComposesCharactersFirst) {
  Write("qwen.tiktoken", Ranks({"é"}));
  Configure({{"added_tokens_decoder", Json::object()}});
  EXPECT_THAT(*Load()->Encode("e\u0301", true), ElementsAre(256));
}

}  // namespace
}  // namespace inflight::tokenizer
