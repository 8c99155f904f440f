// SPDX-License-Identifier: Apache-2.0
// WordPiece, WordLevel and Unigram of tokenizer.json files, and the components that they come with:
// cases worked out by hand, and what is refused. Ids over a corpus are compared with the package in
// tests/tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "inflight/tokenizer.h"
#include "tokenizer/test_files.h"

namespace inflight::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<TokenId>;
using Json = nlohmann::json;

// Tokens by id: 0 [UNK] 1 [CLS] 2 [SEP] 3 un 4 ##aff 5 ##able 6 , 7 ##a 8 aff 9 中 10 n't 11 do
Json WordPieceJson() {
  return Json::parse(R"({
    "added_tokens": [],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                   "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
      "max_input_chars_per_word": 100,
      "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "un": 3, "##aff": 4, "##able": 5, ",": 6,
                "##a": 7, "aff": 8, "中": 9, "n't": 10, "do": 11}}
  })");
}

// By id: 0 <unk> 1 ▁ 2 a 3 b 4 ab 5 bc 6 ▁a, and what `more` adds.
Json UnigramJson(const std::vector<std::string>& more = {}) {
  Json json = Json::parse(R"({
    "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "post_processor": null,
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [
      ["<unk>", 0], ["▁", -1], ["a", -2], ["b", -2.0], ["ab", -3], ["bc", -1], ["▁a", -2.5]]}
  })");
  for (const std::string& piece : more) json["model"]["vocab"].push_back(Json::array({piece, -4}));
  return json;
}

Json Pieces(const std::vector<std::pair<std::string, double>>& pieces) {
  Json vocab = Json::array();
  for (const auto& [text, score] : pieces) vocab.push_back(Json::array({text, score}));
  return vocab;
}

auto MustRead(const Json& json) {
  auto tokenizer = FromJson(json);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

Ids EncodeWith(const Json& json, std::string_view text) {
  const auto ids = MustRead(json)->Encode(text, false);
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  return *ids;
}

Json Edited(Json json, const std::string& pointer, const Json& value) {
  json[Json::json_pointer(pointer)] = value;
  return json;
}

Json Without(Json json, const std::string& object, const std::string& key) {
  json[object].erase(key);
  return json;
}

// --- WordPiece ---

TEST(WordPiece, TakesTheLongestTokenThatGoesOn) {
  const auto t = MustRead(WordPieceJson());
  EXPECT_THAT(*t->Encode("unaffable", false), ElementsAre(3, 4, 5));
  EXPECT_THAT(*t->Encode("unaff", true), ElementsAre(1, 3, 4, 2));
  EXPECT_THAT(*t->Encode("Aff,aff", false), ElementsAre(8, 6, 8));
  EXPECT_THAT(*t->Encode("  un\tun ", false), ElementsAre(3, 3));
  EXPECT_THAT(*t->Encode(" ", false), IsEmpty());
  EXPECT_EQ(t->unk_id(), 0);
  EXPECT_EQ(t->MaxBytesPerToken(), std::nullopt);
}

TEST(WordPiece, AWordThatDoesNotEndInTokensIsUnknownAsAWhole) {
  EXPECT_THAT(EncodeWith(WordPieceJson(), "unaffx un x"), ElementsAre(0, 3, 0));
  // The longest one first: after ##a nothing takes the ff, and no shorter way is sought.
  EXPECT_THAT(EncodeWith(WordPieceJson(), "unaf"), ElementsAre(0));
}

TEST(WordPiece, TheLimitOfAWordIsInCharacters) {
  const Json json = Edited(WordPieceJson(), "/model/max_input_chars_per_word", 2);
  EXPECT_THAT(EncodeWith(json, "un aff"), ElementsAre(3, 0));
  Json accents = Edited(json, "/normalizer", nullptr);
  accents["model"]["vocab"]["éé"] = 12;
  EXPECT_THAT(EncodeWith(accents, "éé ééé"), ElementsAre(12, 0));
}

TEST(WordPiece, TokensThatGoOnMayHaveNoPrefixOrNone) {
  Json json = Edited(WordPieceJson(), "/model/continuing_subword_prefix", "");
  EXPECT_THAT(EncodeWith(json, "unaff"), ElementsAre(3, 8));
  json = Edited(WordPieceJson(), "/model/continuing_subword_prefix", "@@");
  EXPECT_THAT(EncodeWith(json, "unaff un"), ElementsAre(0, 3));
}

TEST(WordPiece, WithoutTheUnknownTokenUnknownWordsAreErrors) {
  const auto t = MustRead(Edited(WordPieceJson(), "/model/unk_token", "<missing>"));
  EXPECT_THAT(*t->Encode("unaff", false), ElementsAre(3, 4));
  EXPECT_THAT(t->Encode("x", false).status().message(), HasSubstr("model.unk_token"));
  EXPECT_THAT(*t->Encode("unaff", false), ElementsAre(3, 4));
}

TEST(WordPiece, LongWordsTakeNoSquareOfTheirLength) {
  Json json = Edited(WordPieceJson(), "/model/max_input_chars_per_word", int64_t{1} << 40);
  json["pre_tokenizer"] = json["normalizer"] = nullptr;
  json["model"]["vocab"]["a"] = 12;
  const std::string word(1 << 20, 'a');
  EXPECT_EQ(EncodeWith(json, word).size(), word.size());
}

TEST(WordPiece, DecodingJoinsWhatGoesOnAndCleansUp) {
  const auto t = MustRead(WordPieceJson());
  const Ids ids = {3, 4, 5, 6, 8, 11, 10, 4};
  EXPECT_EQ(t->Decode(ids, false), "unaffable, aff don'taff");
  EXPECT_EQ(t->Decode(Ids{4, 4}, false), "##affaff");  // the first one keeps its prefix
  Detokenizer stream(t, false);
  std::vector<std::string> parts;
  for (const TokenId id : ids) parts.push_back(stream.Append({&id, 1}));
  EXPECT_THAT(parts, ElementsAre("un", "aff", "able", ",", " aff", " do", "n't", "aff"));
  EXPECT_EQ(t->TokenBytes(4), "aff");
  EXPECT_EQ(t->TokenBytes(8), " aff");
  EXPECT_EQ(t->TokenBytes(6), ",");
  const auto plain = MustRead(Edited(WordPieceJson(), "/decoder/cleanup", false));
  EXPECT_EQ(plain->Decode(ids, false), "unaffable , aff do n'taff");
}

// --- WordLevel ---

TEST(WordLevel, APieceIsATokenOrUnknown) {
  Json json = WordPieceJson();
  json["model"] = {
      {"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", {{"a", 0}, {"?", 1}, {"bc", 5}}}};
  json["decoder"] = json["post_processor"] = nullptr;
  const auto t = MustRead(json);
  EXPECT_THAT(*t->Encode("a bc abc,a", false), ElementsAre(0, 5, 1, 1, 0));
  EXPECT_EQ(t->Decode(Ids{0, 5, 1, 2}, false), "a bc ?");
  EXPECT_EQ(t->unk_id(), 1);
  EXPECT_EQ(t->MaxBytesPerToken(), std::nullopt);
  const auto lacking = MustRead(Edited(json, "/model/unk_token", "<missing>"));
  EXPECT_THAT(lacking->Encode("abc", false).status().message(), HasSubstr("unk_token"));
}

TEST(WordLevel, SeesTheByteAlphabetBehindByteLevel) {
  Json json = WordPieceJson();
  json["normalizer"] = json["post_processor"] = nullptr;
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  json["decoder"] = {{"type", "ByteLevel"}};
  json["model"] = {{"type", "WordLevel"},
                   {"unk_token", "?"},
                   {"vocab", {{"Ġé", 0}, {"Ġa", 1}, {"?", 2}, {"ĠÃ©", 3}}}};
  const auto t = MustRead(json);
  EXPECT_THAT(*t->Encode(" a é", false), ElementsAre(1, 3));
  EXPECT_EQ(t->Decode(Ids{1, 3}, false), " a é");
}

// --- Unigram ---

TEST(JsonUnigram, TakesTheBestSumAndJoinsUnknowns) {
  const auto t = MustRead(UnigramJson());
  EXPECT_THAT(*t->Encode("ab", false), ElementsAre(1, 4));   // -1 - 3 against -2.5 - 2
  EXPECT_THAT(*t->Encode("abc", false), ElementsAre(6, 5));  // -2.5 - 1 against -4 - 13
  EXPECT_THAT(*t->Encode("axyb", false), ElementsAre(6, 0, 3));
  EXPECT_EQ(t->unk_id(), 0);
  EXPECT_EQ(t->MaxBytesPerToken(), std::nullopt);  // fused
  EXPECT_EQ(t->Decode(Ids{6, 5, 1, 0}, false), "abc <unk>");
}

TEST(JsonUnigram, EqualSumsKeepTheEarlierPiece) {
  Json json = UnigramJson();
  json["pre_tokenizer"] = nullptr;
  json["model"]["vocab"] = Pieces({{"<unk>", 0}, {"a", -1}, {"aa", -1}});
  EXPECT_THAT(EncodeWith(json, "aaa"), ElementsAre(1, 2));
}

TEST(JsonUnigram, SumsAreOfDoubles) {
  // In float32 both ways are -10000001, of which a+b would be found first.
  Json json = UnigramJson();
  json["pre_tokenizer"] = nullptr;
  json["model"]["vocab"] =
      Pieces({{"<unk>", 0}, {"a", -10000000.25}, {"b", -1}, {"ab", -10000001.0}});
  EXPECT_THAT(EncodeWith(json, "ab"), ElementsAre(3));
  json["model"]["vocab"][3][1] = -10000001.5;
  EXPECT_THAT(EncodeWith(json, "ab"), ElementsAre(1, 2));
}

TEST(JsonUnigram, UnknownCharactersBecomeBytesWhereAllAreThere) {
  Json json = UnigramJson({"<0xC3>", "<0xA9>"});
  json["model"]["byte_fallback"] = true;
  EXPECT_THAT(EncodeWith(json, "aéb"), ElementsAre(6, 7, 8, 3));
  EXPECT_THAT(EncodeWith(json, "aéxb"), ElementsAre(6, 0, 3));  // one byte of the run is missing
  EXPECT_EQ(MustRead(json)->MaxBytesPerToken(), std::nullopt);
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    bytes.emplace_back(name);
  }
  json = UnigramJson(bytes);
  json["model"]["byte_fallback"] = true;
  EXPECT_EQ(MustRead(json)->MaxBytesPerToken(), 6);
}

TEST(JsonUnigram, ARunOfUnknownsThatTheVocabularyHasIsThatToken) {
  // The unknown score is 90: two of it go before "xy".
  Json json = UnigramJson();
  json["pre_tokenizer"] = nullptr;
  json["model"]["vocab"] = Pieces({{"<unk>", 100}, {"xy", 101}, {"z", 100}});
  EXPECT_THAT(EncodeWith(json, "xyz"), ElementsAre(1, 2));
  EXPECT_THAT(EncodeWith(json, "xyxyz"), ElementsAre(0, 2));
  EXPECT_THAT(EncodeWith(json, "<unk>xz"), ElementsAre(0, 2));
}

TEST(JsonUnigram, OfPiecesThatAreListedAgainTheLastIsMeant) {
  Json json = UnigramJson({"a", ""});
  json["pre_tokenizer"] = nullptr;
  const auto t = MustRead(json);
  EXPECT_THAT(*t->Encode("a", false), ElementsAre(7));
  EXPECT_EQ(t->Decode(Ids{2, 7}, false), "aa");
  EXPECT_EQ(t->TokenToId("a"), 7);
  EXPECT_EQ(t->vocab_size(), 9);
}

TEST(JsonUnigram, WithoutAnUnknownIdUnknownCharactersAreErrors) {
  const auto t = MustRead(Edited(UnigramJson(), "/model/unk_id", nullptr));
  EXPECT_THAT(*t->Encode("ab", false), ElementsAre(1, 4));
  EXPECT_THAT(t->Encode("x", false).status().message(), HasSubstr("model.unk_id"));
  EXPECT_EQ(t->unk_id(), std::nullopt);
  Json empty = UnigramJson();
  empty["model"]["vocab"] = Json::array();
  empty["model"]["unk_id"] = nullptr;
  EXPECT_FALSE(MustRead(empty)->Encode("x", false).ok());
}

TEST(JsonUnigram, FilesWithoutATypeAreToldByTheirFields) {
  EXPECT_THAT(EncodeWith(Without(UnigramJson(), "model", "type"), "ab"), ElementsAre(1, 4));
  EXPECT_THAT(EncodeWith(Without(WordPieceJson(), "model", "type"), "unaff"), ElementsAre(3, 4));
  Json words = Without(WordPieceJson(), "model", "type");
  words["model"].erase("max_input_chars_per_word");
  words["model"].erase("continuing_subword_prefix");
  EXPECT_THAT(EncodeWith(words, "unaff un"), ElementsAre(0, 3));
  words["model"].erase("unk_token");
  EXPECT_THAT(FromJson(words).status().message(),
              HasSubstr("model.type: model \"without a type\""));
}

// --- Errors of models ---

TEST(WordModels, FieldsThatAreWrongOrUnknownAreNamed) {
  const auto message = [](const Json& json) {
    const Status status = FromJson(json).status();
    EXPECT_FALSE(status.ok());
    return status.message();
  };
  const std::string long_token(8000, 'a');
  for (const char* key :
       {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"}) {
    EXPECT_THAT(message(Without(WordPieceJson(), "model", key)),
                HasSubstr("model." + std::string(key) + ": is missing"));
  }
  EXPECT_THAT(message(Edited(WordPieceJson(), "/model/max_input_chars_per_word", -1)),
              HasSubstr("model.max_input_chars_per_word: got -1, allowed are 0 to"));
  EXPECT_THAT(message(Edited(WordPieceJson(), "/model/dropout", 0.1)),
              HasSubstr("model.dropout: is no field of model WordPiece, which has type, unk_t"));
  EXPECT_THAT(message(Edited(WordPieceJson(), "/model/vocab/" + long_token, 12)),
              HasSubstr("got 8000 bytes, allowed are 7999"));
  EXPECT_THAT(message(Edited(WordPieceJson(), "/model/vocab/x", 3)), HasSubstr("already that of"));
  EXPECT_THAT(message(Edited(WordPieceJson(), "/model/type", "WordLevel")),
              HasSubstr("is no field of model WordLevel"));
  EXPECT_THAT(message(Edited(UnigramJson(), "/model/vocab/2", {"a"})),
              HasSubstr("model.vocab[2]: must be [token, score]"));
  EXPECT_THAT(message(Edited(UnigramJson(), "/model/vocab/2", {"a", "b"})),
              HasSubstr("model.vocab[2]"));
  EXPECT_THAT(message(Edited(UnigramJson(), "/model/vocab", {{"a", 1}})),
              HasSubstr("model.vocab: must be an array"));
  EXPECT_THAT(message(Edited(UnigramJson(), "/model/vocab/2/0", long_token)),
              HasSubstr("model: vocab[2]: got 8000 bytes, allowed are 7999"));
  EXPECT_THAT(message(Edited(UnigramJson(), "/model/unk_id", 7)),
              HasSubstr("model.unk_id: got 7, allowed are 0 to 6"));
  EXPECT_THAT(message(Edited(UnigramJson(), "/model/vocab", Json::array())),
              HasSubstr("model.unk_id: the vocabulary is empty"));
  EXPECT_THAT(message(Edited(UnigramJson(), "/model/fuse_unk", false)),
              HasSubstr("model.fuse_unk: got false, supported is true"));
  EXPECT_THAT(message(Edited(UnigramJson(), "/model/alpha", 0.1)), HasSubstr("model.alpha"));
}

// --- Components ---

// The normal form of `text`: what a byte-level model makes tokens of, decoded.
std::string NormalForm(const Json& normalizer, const std::string& text) {
  Json json = Llama2Json();
  json["normalizer"] = normalizer;
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  const auto t = MustRead(json);
  const auto ids = t->Encode(text, false);
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  return ids.ok() ? t->Decode(*ids, false) : "";
}

TEST(Components, BertNormalizerDoesWhatItsFieldsSay) {
  const auto bert = [](bool clean_text, bool chinese, const Json& accents, bool lowercase) {
    return Json{{"type", "BertNormalizer"},
                {"clean_text", clean_text},
                {"handle_chinese_chars", chinese},
                {"strip_accents", accents},
                {"lowercase", lowercase}};
  };
  const std::string text = "\u00c9a\u00a0\u0001\u4e2d";
  EXPECT_EQ(NormalForm(bert(true, true, nullptr, true), text), "ea  \u4e2d ");
  EXPECT_EQ(NormalForm(bert(true, false, false, true), text), "\u00e9a \u4e2d");
  EXPECT_EQ(NormalForm(bert(false, false, true, false), text), "Ea\u00a0\u0001\u4e2d");
  EXPECT_EQ(NormalForm(bert(false, false, nullptr, false), text), text);
}

TEST(Components, NmtAndByteLevelRewriteCharacters) {
  EXPECT_EQ(NormalForm({{"type", "Nmt"}}, "a\u0001\u200b\u2581b\t"), "a  b ");
  EXPECT_EQ(NormalForm({{"type", "ByteLevel"}}, "a \u00e9"), "aĠÃ©");
}

// A trie of the rules "a" -> X and "\r" -> nothing, and the file around it.
std::string TwoRules() {
  std::vector<uint32_t> units(512);
  const auto leaf_at = [&](uint32_t unit, char label, uint32_t value) {
    units[unit] = static_cast<uint8_t>(label) | 1u << 8 | 1u << 10;  // the value is one further
    units[unit ^ 1] = 1u << 31 | value;
  };
  units[0] = 256u << 10;
  leaf_at(256 ^ 'a', 'a', 0);
  leaf_at(256 ^ '\r', '\r', 1);
  std::string file(4, '\0');
  file[1] = 8;  // 2048 bytes
  file.append(reinterpret_cast<const char*>(units.data()), 2048);
  return file + std::string("X\0\0", 3);
}

TEST(Components, PrecompiledReplacesClustersByTheirShortestRule) {
  const Json normalizer = {{"type", "Precompiled"},
                           {"precompiled_charsmap", EncodeBase64(TwoRules())}};
  EXPECT_EQ(NormalForm(normalizer, "ba\r"), "bX");
  EXPECT_EQ(NormalForm(normalizer, "a\u0301b"), "Xb");  // three bytes: the whole cluster goes
  EXPECT_EQ(NormalForm(normalizer, "a\u0301\u0301\u0301"), "X\u0301\u0301\u0301");  // seven
  EXPECT_EQ(NormalForm(normalizer, "\r\nb"), "b");
  EXPECT_EQ(NormalForm(normalizer, "b\n"), "b\n");
}

TEST(Components, APrecompiledMapMayNotMakeATextOutOfProportion) {
  std::string file = TwoRules();
  file.resize(file.size() - 3);
  file += std::string(1 << 20, 'x') + std::string("\0\0", 2);
  const Json normalizer = {{"type", "Precompiled"}, {"precompiled_charsmap", EncodeBase64(file)}};
  const auto t = MustRead(Edited(Llama2Json(), "/normalizer", normalizer));
  EXPECT_THAT(t->Encode("aaa", false).status().message(), HasSubstr("makes more than 66304 bytes"));
  Json doubling = Json::array();
  for (int i = 0; i < 60; ++i) {
    doubling.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  }
  Json json = ByteLevelJson();
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", doubling}};
  EXPECT_THAT(MustRead(json)->Encode(" ", false).status().message(), HasSubstr("makes more than"));
}

TEST(Components, FieldsThatAreWrongAreNamed) {
  const auto message = [](const char* part, const Json& value) {
    const Status status = FromJson(Edited(ByteLevelJson(), part, value)).status();
    EXPECT_FALSE(status.ok()) << value;
    return status.message();
  };
  const Json bert = WordPieceJson()["normalizer"];
  EXPECT_THAT(message("/normalizer", Edited(bert, "/lowercase", nullptr)),
              HasSubstr("normalizer.lowercase: is missing"));
  EXPECT_THAT(message("/normalizer", Edited(bert, "/strip_accents", 1)),
              HasSubstr("normalizer.strip_accents: must be true or false"));
  EXPECT_THAT(
      message("/normalizer", Edited(bert, "/do_lower_case", true)),
      HasSubstr("normalizer.do_lower_case: is no field of normalizer BertNormalizer, which"));
  const auto precompiled = [](const std::string& file) {
    return Json{{"type", "Precompiled"}, {"precompiled_charsmap", file}};
  };
  EXPECT_THAT(message("/normalizer", precompiled("?")),
              HasSubstr("normalizer.precompiled_charsmap: must be base64"));
  EXPECT_THAT(message("/normalizer", precompiled("")), HasSubstr("ends within its header"));
  EXPECT_THAT(message("/normalizer", precompiled("BAAAAGFi")), HasSubstr("bytes of trie"));
  EXPECT_THAT(message("/pre_tokenizer", {{"type", "Punctuation"}, {"behavior", "Dropped"}}),
              HasSubstr("pre_tokenizer.behavior: got \"Dropped\", allowed are Removed"));
  EXPECT_THAT(message("/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}),
              HasSubstr("pre_tokenizer.delimiter: must be one character"));
  EXPECT_THAT(message("/pre_tokenizer", {{"type", "BertPreTokenizer"}, {"x", 1}}),
              HasSubstr("pre_tokenizer.x"));
  EXPECT_THAT(message("/decoder", {{"type", "WordPiece"}, {"prefix", "##"}}),
              HasSubstr("decoder.cleanup: is missing"));
  EXPECT_THAT(message("/decoder", {{"type", "CTC"}, {"pad_token", "x"}}),
              HasSubstr("decoder.word_delimiter_token: is missing"));
  EXPECT_THAT(message("/decoder", {{"type", "Joiner"}}),
              HasSubstr("decoder.type: decoder \"Joiner\" is not supported, only BPEDecoder, "));
  EXPECT_THAT(message("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}),
              HasSubstr("pre_tokenizer.length: got 0, allowed are 1 to"));
  EXPECT_THAT(message("/post_processor", {{"type", "BertProcessing"}, {"cls", {"a", 1}}}),
              HasSubstr("post_processor.sep: must be [token, id]"));
}

TEST(Components, PostProcessorsBehindOneAnother) {
  const auto token = [](const char* text) {
    return Json{{"SpecialToken", {{"id", text}, {"type_id", 0}}}};
  };
  const auto text = [](const char* id) { return Json{{"Sequence", {{"id", id}, {"type_id", 0}}}}; };
  const auto around = [&](const Json& single, const Json& pair) {
    return Json{{"type", "TemplateProcessing"},
                {"single", single},
                {"pair", pair},
                {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {7}}, {"tokens", {"<s>"}}}}}}};
  };
  const Json bert = {{"type", "BertProcessing"}, {"sep", {"[SEP]", 9}}, {"cls", {"[CLS]", 8}}};
  Json json = UnigramJson();
  const auto ids = [&](const Json& processors) {
    json["post_processor"] = {{"type", "Sequence"}, {"processors", processors}};
    const auto tokenizer = Tokenizer::FromJson(json.dump());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    return tokenizer.ok() ? *(*tokenizer)->Encode("", true) : std::vector<TokenId>();
  };
  const Json left = around({token("<s>"), text("A")}, {text("B"), text("A"), token("<s>")});
  EXPECT_THAT(ids({bert, left}), ElementsAre(7, 8, 9));
  EXPECT_THAT(ids({left, bert}), ElementsAre(8, 7, 9, 9));
  EXPECT_THAT(ids({left, left}), ElementsAre(7, 7));  // the text, then <s>, as B and A
  const auto refusal = [&](const Json& processors) {
    json["post_processor"] = {{"type", "Sequence"}, {"processors", processors}};
    return std::string(Tokenizer::FromJson(json.dump()).status().message());
  };
  const Json both = around({token("<s>"), text("A"), token("<s>")}, Json::array({text("A")}));
  EXPECT_THAT(refusal({both, left}), HasSubstr("post_processor.processors[1]: stands behind a "
                                               "post-processor that makes 3 parts, 1 or 2"));
  const Json first = around({token("<s>"), text("A")}, Json::array({text("A")}));
  EXPECT_THAT(refusal({first, first}),
              HasSubstr("post_processor: a text stands in the result more"));
  EXPECT_THAT(refusal(Json::array({around(Json::array({text("B")}), Json::array({text("A")}))})),
              HasSubstr("must be \"A\" in `single`"));
  const Json many(std::vector<Json>(600, bert));
  EXPECT_THAT(refusal(many), HasSubstr("post_processor: makes more than 1024 parts of a text"));
}

TEST(Components, TheBlankOfFirstIsForWhatBeginsTheText) {
  Json json = UnigramJson();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "WhitespaceSplit"}},
        {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}}}}};
  EXPECT_THAT(EncodeWith(json, "a b"), ElementsAre(6, 3));
  EXPECT_THAT(EncodeWith(json, " a b"), ElementsAre(2, 3));
  json["normalizer"] = {{"type", "Nmt"}};
  EXPECT_THAT(EncodeWith(json, "\u0001a b"), ElementsAre(2, 3));
}

}  // namespace
}  // namespace inflight::tokenizer
