// SPDX-License-Identifier: Apache-2.0
#include "inflight/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "tokenizer/test_files.h"
#include "tokenizer/tokenizer_impl.h"

namespace inflight::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<TokenId>;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

TokenizerPtr MustLoad(const nlohmann::json& json) {
  auto result = FromJson(json);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *std::move(result);
}

Ids Encode(const TokenizerPtr& tokenizer, std::string_view text, bool special = false) {
  auto ids = tokenizer->Encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  return *ids;
}

TEST(Encode, MergesLowestRankFirst) {
  const auto t = MustLoad(ByteLevelJson());
  EXPECT_THAT(Encode(t, "abc"), ElementsAre(6));
  EXPECT_THAT(Encode(t, "bc ab a"), ElementsAre(10, 4, 5, 7));  // in " ab" a+b goes before Ġ+a
}

TEST(Encode, LeftmostGoesFirstAmongEqualRanks) {
  auto json = ByteLevelJson();
  json["model"]["vocab"]["aa"] = 12;
  json["model"]["merges"] = {"a a"};
  EXPECT_THAT(Encode(MustLoad(json), "aaa"), ElementsAre(12, 1));
}

TEST(Encode, LongWordsEqualShortOnes) {
  // 200 times abc in one word goes through the heap, each alone through the array.
  const auto t = MustLoad(ByteLevelJson());
  std::string text;
  Ids expected;
  for (int i = 0; i < 200; ++i) text += "abc", expected.push_back(6);
  EXPECT_EQ(Encode(t, text), expected);
}

TEST(Encode, MemoryThatALongWordTookIsNotKept) {
  const auto t = MustLoad(ByteLevelJson());
  const auto impl = std::dynamic_pointer_cast<const TokenizerImpl>(t);
  ASSERT_NE(impl, nullptr);
  const std::string word(1 << 20, 'c');
  EXPECT_EQ(Encode(t, word).size(), word.size());
  EXPECT_LT(impl->KeptScratchBytes(), word.size());
  EXPECT_THAT(Encode(t, "abc"), ElementsAre(6));
  EXPECT_GT(impl->KeptScratchBytes(), 0U);
}

TEST(Encode, PostProcessorAddsSpecialTokensOnRequest) {
  const auto t = MustLoad(ByteLevelJson());
  EXPECT_THAT(Encode(t, "a", true), ElementsAre(0, 1));
  EXPECT_THAT(Encode(t, "", true), ElementsAre(0));
  EXPECT_THAT(Encode(t, "", false), IsEmpty());
}

TEST(Encode, AddedTokensAreCutOutFirst) {
  const auto t = MustLoad(ByteLevelJson());
  EXPECT_THAT(Encode(t, "a<|x|>b<s>c"), ElementsAre(1, 11, 2, 0, 3));
  EXPECT_EQ(t->vocab_size(), 12);
  EXPECT_EQ(t->TokenToId("<|x|>"), 11);
  EXPECT_EQ(t->IdToToken(11), "<|x|>");
  EXPECT_TRUE(t->IsSpecial(0));
  EXPECT_FALSE(t->IsSpecial(11));
  EXPECT_FALSE(t->IsSpecial(-1));
  EXPECT_EQ(t->IdToToken(1000), "");
}

TEST(Encode, NoSpecialTokenBeginsWhereTextIsToStayPlain) {
  auto json = ByteLevelJson();
  json["added_tokens"][0]["content"] = "a";  // a token of the model, too: id 1
  const auto special = MustLoad(json);
  EXPECT_THAT(special->FindSpecialTokens("ab a"), ElementsAre(0, 3));
  const size_t plain_at[] = {0};
  EXPECT_THAT(*special->Encode("ab", false, plain_at), ElementsAre(5));  // merged
  EXPECT_THAT(*special->Encode("ab", false), ElementsAre(1, 2));
  json["added_tokens"][0]["special"] = false;
  const auto plain = MustLoad(json);
  EXPECT_THAT(plain->FindSpecialTokens("ab a"), IsEmpty());
  EXPECT_THAT(*plain->Encode("ab", false, plain_at), ElementsAre(1, 2));
}

TEST(Encode, SpecialTokensAreFoundAlsoWithinEachOther) {
  auto json = ByteLevelJson();
  json["added_tokens"][0]["content"] = "aa";
  const auto t = MustLoad(json);
  EXPECT_THAT(t->FindSpecialTokens("aaaba aa"), ElementsAre(0, 1, 6));
}

TEST(Encode, NoSpecialTokenOfNormalizedTextBeginsThereEither) {
  auto json = Llama2Json();
  json["added_tokens"][1]["normalized"] = true;
  json["added_tokens"][1]["content"] = "hi";
  const auto t = MustLoad(json);
  const auto token = *t->TokenToId("hi");
  ASSERT_THAT(t->FindSpecialTokens("a hi"), ElementsAre(2));
  const size_t plain_at[] = {2};
  const Ids ids = *t->Encode("a hi", false, plain_at);
  EXPECT_EQ(std::ranges::find(ids, token), ids.end());
}

TEST(Encode, AddedTokenFlagsTakeBlanksAndRespectWords) {
  auto json = ByteLevelJson();
  json["added_tokens"][1]["lstrip"] = true;
  json["added_tokens"][1]["rstrip"] = true;
  EXPECT_THAT(Encode(MustLoad(json), "a  <|x|> \n b"), ElementsAre(1, 11, 2));
  json = ByteLevelJson();
  json["added_tokens"][1]["content"] = "b";
  json["added_tokens"][1]["single_word"] = true;
  // "b" is in the vocabulary, so the added token has its id, 2; in "ab" it is no word of its own.
  EXPECT_THAT(Encode(MustLoad(json), "ab b"), ElementsAre(5, 4, 2));
}

TEST(Encode, UnknownCharactersBecomeBytesOrUnkOrNothing) {
  EXPECT_THAT(Encode(MustLoad(Llama2Json()), "hi é"), ElementsAre(263, 259, 3 + 0xC3, 3 + 0xA9));
  auto json = Llama2Json();
  json["model"]["byte_fallback"] = false;
  EXPECT_THAT(Encode(MustLoad(json), "éé"), ElementsAre(259, 0));
  EXPECT_EQ(MustLoad(json)->unk_id(), 0);
  json["model"]["fuse_unk"] = false;
  EXPECT_THAT(Encode(MustLoad(json), "éé"), ElementsAre(259, 0, 0));
  json["model"]["unk_token"] = nullptr;
  EXPECT_THAT(Encode(MustLoad(json), "éé"), ElementsAre(259));
  json["model"]["unk_token"] = "<missing>";
  const auto ids = MustLoad(json)->Encode("é", false);
  EXPECT_THAT(ids.status().message(), HasSubstr("unk_token"));
}

std::string Times(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST(MaxBytesPerToken, HoldsForEveryTextWhereNothingIsDropped) {
  const auto bound_of = [](const nlohmann::json& json) {
    const auto tokenizer = MustLoad(json);
    const auto bound = tokenizer->MaxBytesPerToken();
    for (const char* text : {"hi", " hi", "\u00e9", "\u8a9e", "\U0001d400", "\u212a", "e\u0301",
                             "\u1f82", "<s>", " ", "\n"}) {
      const std::string all = Times(500, text);
      EXPECT_GE(Encode(tokenizer, all).size() * bound.value_or(0), all.size()) << text;
    }
    return bound;
  };
  auto json = Llama2Json();
  EXPECT_EQ(bound_of(json), 6);  // <0x00>
  json["model"]["byte_fallback"] = false;
  json["model"]["fuse_unk"] = false;
  EXPECT_EQ(bound_of(json), 6);
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "hi"}}}, {"content", "h"}};
  EXPECT_EQ(bound_of(json), 12);
  json = Llama2Json();
  json["normalizer"] = {{"type", "NFKC"}};
  EXPECT_EQ(bound_of(json), 24);
}

// Each text shows that there is none: it is long and has few tokens.
TEST(MaxBytesPerToken, IsNoneWhereATokenMayStandForAnyNumber) {
  const auto expect_none = [](const nlohmann::json& json, const std::string& text) {
    const auto tokenizer = MustLoad(json);
    EXPECT_EQ(tokenizer->MaxBytesPerToken(), std::nullopt) << json["normalizer"];
    EXPECT_GE(text.size(), 2000U);
    EXPECT_LE(Encode(tokenizer, text).size(), 8U) << json["normalizer"];
  };
  auto json = Llama2Json();
  json["model"]["byte_fallback"] = false;
  expect_none(json, Times(1000, "\u00e9"));  // fused
  json["model"]["unk_token"] = nullptr;
  expect_none(json, Times(1000, "\u00e9"));  // dropped
  expect_none(ByteLevelJson(), Times(1000, "\u8a9e"));
  const auto normalized = [](const char* normalizer) {
    auto with = Llama2Json();
    with["normalizer"] = nlohmann::json::parse(normalizer);
    return with;
  };
  expect_none(normalized(R"({"type": "Strip", "strip_left": true, "strip_right": false})"),
              Times(2000, " ") + "hi");
  expect_none(normalized(R"({"type": "Replace", "pattern": {"String": " "}, "content": ""})"),
              Times(2000, " ") + "hi");
  expect_none(normalized(R"({"type": "Replace", "pattern": {"Regex": " +"}, "content": " "})"),
              Times(2000, " ") + "hi");
  expect_none(normalized(R"({"type": "Sequence", "normalizers":
                             [{"type": "NFD"}, {"type": "StripAccents"}]})"),
              "hi" + Times(1000, "\u0301"));
  json = Llama2Json();
  json["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  json["normalizer"] = nullptr;
  expect_none(json, Times(2000, " ") + "hi");
  for (const char* side : {"lstrip", "rstrip"}) {
    json = Llama2Json();
    json["added_tokens"][0][side] = true;
    const std::string blanks = Times(2000, " ");
    expect_none(json, side[0] == 'l' ? blanks + "<s>" : "<s>" + blanks);
  }
}

TEST(Encode, InvalidUtf8IsRefusedWithItsOffset) {
  const auto ids = MustLoad(ByteLevelJson())->Encode("ab\xC3", false);
  EXPECT_EQ(ids.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(ids.status().message(), HasSubstr("byte 2"));
}

TEST(Encode, ThreadsShareATokenizer) {
  const auto t = MustLoad(Llama2Json());
  const Ids expected = Encode(t, "hi hi é hi");
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (int& count : equal) {
    threads.emplace_back([&count, &t, &expected] {
      for (int i = 0; i < 200; ++i) count += *t->Encode("hi hi é hi", false) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, ElementsAre(200, 200, 200, 200));
}

TEST(Decode, ByteLevelJoinsBytesAndMarksWhatIsNoCharacter) {
  const auto t = MustLoad(ByteLevelJson());
  EXPECT_EQ(t->Decode(Ids{6, 7, 8, 9}, false), "abc aé");
  EXPECT_EQ(t->Decode(Ids{8, 1, 9, 8}, false), "\uFFFDa\uFFFD\uFFFD");
  EXPECT_EQ(t->Decode(Ids{0, 1, 999, -5, 11}, true), "a<|x|>");
  EXPECT_EQ(t->Decode(Ids{0, 1}, false), "<s>a");
}

TEST(Decode, Llama2StripsOneLeadingBlankAndJoinsBytes) {
  const auto t = MustLoad(Llama2Json());
  EXPECT_EQ(t->Decode(Ids{263, 263}, false), "hi hi");
  EXPECT_EQ(t->Decode(Ids{1, 263, 3 + 0xC3, 3 + 0xA9, 2}, true), "hié");
  // One wrong byte spoils its run, a mark for each byte of it.
  EXPECT_EQ(t->Decode(Ids{262, 3 + 0xC3, 3 + 0xA9, 3 + 0xFF, 262}, false),
            "hi\uFFFD\uFFFD\uFFFDhi");
}

TEST(Decode, WithoutADecoderTokensStandApart) {
  auto json = ByteLevelJson();
  json["decoder"] = nullptr;
  EXPECT_EQ(MustLoad(json)->Decode(Ids{1, 5, 6}, false), "a ab abc");
}

// --- TokenBytes ---

std::string BytesOf(const TokenizerPtr& tokenizer, const Ids& ids) {
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer->TokenBytes(id);
  return bytes;
}

TEST(TokenBytes, AreThoseOfTheTextAmongOtherTokens) {
  const auto t = MustLoad(ByteLevelJson());
  EXPECT_EQ(t->TokenBytes(7), " a");
  EXPECT_EQ(t->TokenBytes(8), "\xC3");
  EXPECT_EQ(t->TokenBytes(11), "<|x|>");
  EXPECT_EQ(t->TokenBytes(0), "");  // special
  EXPECT_EQ(t->TokenBytes(-1), "");
  EXPECT_EQ(t->TokenBytes(1000), "");
  const auto llama = MustLoad(Llama2Json());
  EXPECT_EQ(llama->TokenBytes(263), " hi");
  EXPECT_EQ(llama->TokenBytes(3 + 0xC3), "\xC3");
  EXPECT_EQ(llama->TokenBytes(3 + 'a'), "a");
  EXPECT_EQ(llama->TokenBytes(1), "");
  auto json = ByteLevelJson();
  json["decoder"] = nullptr;
  EXPECT_EQ(MustLoad(json)->TokenBytes(5), " ab");  // tokens stand apart
  json["decoder"] = {{"type", "Metaspace"}, {"replacement", "Ġ"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(MustLoad(json)->TokenBytes(7), " a");
  // Whatever a decoder does with the tokens around it.
  auto odd = Llama2Json();
  odd["decoder"] = {{"type", "Sequence"},
                    {"decoders",
                     {{{"type", "ByteFallback"}},
                      {{"type", "Strip"}, {"content", "x"}, {"start", 1}, {"stop", 1}},
                      {{"type", "Replace"}, {"pattern", {{"String", "i"}}}, {"content", "xyz"}}}}};
  EXPECT_EQ(MustLoad(odd)->TokenBytes(262), "hxyz");
  odd["decoder"]["decoders"][1]["stop"] = 0;
  odd["decoder"]["decoders"][2]["pattern"]["String"] = "x";
  EXPECT_EQ(MustLoad(odd)->TokenBytes(262), "hi");
  odd["decoder"]["decoders"] = {
      {{"type", "ByteFallback"}},
      {{"type", "Fuse"}},
      {{"type", "Replace"}, {"pattern", {{"Regex", "^xqx$"}}}, {"content", "longer than all"}}};
  EXPECT_EQ(MustLoad(odd)->TokenBytes(262), "");  // nobody can say
}

// Behind the first token, whose blank a text may lose.
TEST(TokenBytes, JoinToTheDecodedText) {
  std::mt19937 random(1);
  for (const auto& [json, first] : {std::pair(ByteLevelJson(), 1), std::pair(Llama2Json(), 263)}) {
    const auto t = MustLoad(json);
    int num_texts = 0;
    for (int round = 0; round < 500; ++round) {
      Ids ids = {first};
      for (int i = 0; i < 6; ++i) {
        const bool is_text = t->vocab_size() > 250 && random() % 2 == 0;
        ids.push_back(
            static_cast<TokenId>(is_text ? 258 + random() % 6 : random() % t->vocab_size()));
      }
      const std::string decoded = t->Decode(ids, /*skip_special_tokens=*/true);
      if (decoded.find("\uFFFD") != std::string::npos) continue;  // bytes that are no character
      const std::string bytes = BytesOf(t, ids);
      EXPECT_EQ(bytes.substr(bytes.starts_with(' ') ? 1 : 0), decoded);
      ++num_texts;
    }
    EXPECT_GT(num_texts, 20);
  }
}

TEST(Detokenizer, HoldsBackUnfinishedCharacters) {
  Detokenizer d(MustLoad(ByteLevelJson()), true);
  EXPECT_EQ(d.Append(Ids{1}), "a");
  EXPECT_EQ(d.Append(Ids{8}), "");
  EXPECT_EQ(d.Append(Ids{9}), "é");
  EXPECT_EQ(d.Append(Ids{8}), "");
  EXPECT_EQ(d.Finish(), "\uFFFD");
}

TEST(Detokenizer, KeepsTheBlankBetweenWordsOfMetaspaceModels) {
  Detokenizer d(MustLoad(Llama2Json()), true);
  EXPECT_EQ(d.Append(Ids{1}), "");
  EXPECT_EQ(d.Append(Ids{263}), "hi");
  EXPECT_EQ(d.Append(Ids{263}), " hi");
  EXPECT_EQ(d.Append(Ids{3 + 0xC3}), "");
  EXPECT_EQ(d.Append(Ids{3 + 0xA9}), "");  // the run could go on with a wrong byte
  EXPECT_EQ(d.Append(Ids{262}), "éhi");
  EXPECT_EQ(d.Finish(), "");
}

TEST(Detokenizer, EveryCutOfASequenceGivesTheWholeText) {
  const auto t = MustLoad(Llama2Json());
  const Ids ids = {1, 263, 3 + 0xF0, 3 + 0x9F, 3 + 0x91, 3 + 0x8D, 259, 262, 3 + 0xC3, 2, 263};
  for (const bool skip : {false, true}) {
    for (uint32_t cuts = 0; cuts < 1u << (ids.size() - 1); ++cuts) {
      Detokenizer d(t, skip);
      std::string text;
      Ids chunk;
      for (size_t i = 0; i < ids.size(); ++i) {
        chunk.push_back(ids[i]);
        if (!(cuts >> i & 1)) continue;
        text += d.Append(chunk);
        chunk.clear();
      }
      text += d.Append(chunk);
      text += d.Finish();
      ASSERT_EQ(text, t->Decode(ids, skip)) << cuts;
    }
  }
}

TEST(Detokenizer, StopMarksAndSplitMatchesWaitForTheNextToken) {
  auto json = ByteLevelJson();
  json["decoder"] = nlohmann::json::parse(R"({"type": "Sequence", "decoders": [
      {"type": "Fuse"},
      {"type": "Replace", "pattern": {"String": "abb"}, "content": "X"},
      {"type": "Strip", "content": "c", "start": 1, "stop": 2}]})");
  const auto t = MustLoad(json);
  EXPECT_EQ(t->Decode(Ids{3, 5, 2, 3, 3, 3}, false), "Xc");
  Detokenizer d(t, false);
  EXPECT_EQ(d.Append(Ids{3, 5}), "");  // c is stripped, ab may become abb
  EXPECT_EQ(d.Append(Ids{2}), "X");
  EXPECT_EQ(d.Append(Ids{3, 3}), "");
  EXPECT_EQ(d.Append(Ids{3}), "c");
  EXPECT_EQ(d.Append(Ids{1}), "");  // the a could begin the next abb
  EXPECT_EQ(d.Finish(), "cca");
}

}  // namespace
}  // namespace inflight::tokenizer
