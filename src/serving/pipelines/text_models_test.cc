// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <new>

#include "contract/tensor_values.h"
#include "serving/pipelines/text_call.h"
#include "serving/testing/test_models.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Values(const Response& response, const char* output) {
  const Tensor* tensor = Collector::Find(response, output);
  return tensor == nullptr ? std::vector<int32_t>{-99} : *contract::ReadInt32s(*tensor);
}

TEST(Preprocessing, MakesIdsWordListsAndDefaults) {
  TestModels models;
  Collector got;
  models.preprocessing->Infer(MakeRequest({Text("QUERY", {"hi"}), Int("REQUEST_OUTPUT_LEN", 9),
                                           Text("STOP_WORDS_DICT", {"ab", "", "c"})},
                                          "p"),
                              got.Handler());
  ASSERT_TRUE(got.status().ok()) << got.status().ToString();
  const Response& response = got.last();
  EXPECT_TRUE(response.is_final);
  EXPECT_EQ(response.id, "p");
  EXPECT_EQ(response.outputs.front().name, "INPUT_ID");
  EXPECT_THAT(Values(response, "INPUT_ID"), ElementsAre(256, 'h', 'i'));
  EXPECT_THAT(Collector::Find(response, "INPUT_ID")->shape, ElementsAre(1, 3));
  EXPECT_THAT(Values(response, "REQUEST_INPUT_LEN"), ElementsAre(3));
  EXPECT_THAT(Values(response, "REQUEST_OUTPUT_LEN"), ElementsAre(9));
  EXPECT_THAT(Collector::Find(response, "STOP_WORDS_IDS")->shape, ElementsAre(1, 2, 3));
  EXPECT_THAT(Values(response, "STOP_WORDS_IDS"), ElementsAre('a', 'b', 'c', 2, 3, -1));
  EXPECT_THAT(Collector::Find(response, "BAD_WORDS_IDS")->shape, ElementsAre(1, 2, 0));
  EXPECT_THAT(Collector::Find(response, "EMBEDDING_BIAS")->shape, ElementsAre(1, 0));
  EXPECT_THAT(Values(response, "REQUEST_DECODER_INPUT_LEN"), ElementsAre(1));
}

TEST(Preprocessing, AConversationStandsForAPromptAndNeedsATemplate) {
  const auto error = [](std::vector<Tensor> inputs) {
    TestModels models;
    Collector got;
    inputs.push_back(Int("REQUEST_OUTPUT_LEN", 9));
    models.preprocessing->Infer(MakeRequest(std::move(inputs)), got.Handler());
    return got.status().message();
  };
  const Tensor messages = Text("MESSAGES", {R"([{"role": "user", "content": "hi"}])"});
  EXPECT_THAT(error({messages}),
              HasSubstr("; use text_input, or start the server with --chat-template FILE"));
  EXPECT_THAT(error({Text("QUERY", {"hi"}), messages}),
              HasSubstr("MESSAGES: is given beside QUERY; send one of them"));
  EXPECT_THAT(error({}), HasSubstr("QUERY is not present in the request"));
}

TEST(Preprocessing, TheEmptyWordOfOldClientsMeansNone) {
  TestModels models;
  Collector got;
  models.preprocessing->Infer(
      MakeRequest({Text("QUERY", {"hi"}), Int("REQUEST_OUTPUT_LEN", 9),
                   Text("STOP_WORDS_DICT", {""}), Text("BAD_WORDS_DICT", {""})}),
      got.Handler());
  EXPECT_THAT(Values(got.last(), "STOP_WORDS_IDS"), ElementsAre(0, -1));
  EXPECT_THAT(Values(got.last(), "BAD_WORDS_IDS"), ElementsAre(0, -1));
}

Request BiasRequest(std::vector<std::string> words, std::vector<float> weights) {
  const auto size = static_cast<int64_t>(weights.size());
  return MakeRequest({Text("QUERY", {"hi"}), Int("REQUEST_OUTPUT_LEN", 9),
                      Text("EMBEDDING_BIAS_WORDS", std::move(words)),
                      Tensor::FromValues<float>("EMBEDDING_BIAS_WEIGHTS", DataType::kFp32,
                                                {1, size}, std::span<const float>(weights))});
}

TEST(Preprocessing, BiasHasEachWordsWeightAtEachOfItsIds) {
  TestModels models;
  Collector got;
  models.preprocessing->Infer(BiasRequest({"ab", "", "aa"}, {1.5F, 9.0F, -0.25F}), got.Handler());
  ASSERT_TRUE(got.status().ok()) << got.status().ToString();
  const Tensor& bias = *Collector::Find(got.last(), "EMBEDDING_BIAS");
  EXPECT_THAT(bias.shape, ElementsAre(1, 300));  // the engine's vocabulary, the tokenizer's is 258
  std::vector<float> want(300);
  want['a'] = 1.0F;  // 1.5 - 0.25 - 0.25
  want['b'] = 1.5F;
  EXPECT_EQ(*contract::ReadFloats(bias), want);
}

TEST(Preprocessing, BiasOfEmptyWordsOrWithoutWeightsIsNone) {
  TestModels models;
  Collector got;
  models.preprocessing->Infer(BiasRequest({""}, {1.0F}), got.Handler());
  EXPECT_THAT(Collector::Find(got.last(), "EMBEDDING_BIAS")->shape, ElementsAre(1, 0));
  models.preprocessing->Infer(MakeRequest({Text("QUERY", {"hi"}), Int("REQUEST_OUTPUT_LEN", 9),
                                           Text("EMBEDDING_BIAS_WORDS", {"x"})}),
                              got.Handler());
  EXPECT_THAT(Collector::Find(got.last(), "EMBEDDING_BIAS")->shape, ElementsAre(1, 0));
}

TEST(Preprocessing, WrongBiasesAreNamed) {
  TestModels models;
  Collector got;
  models.preprocessing->Infer(BiasRequest({"a", "b"}, {1.0F}), got.Handler());
  EXPECT_EQ(got.status().message(),
            "EMBEDDING_BIAS_WORDS and EMBEDDING_BIAS_WEIGHTS must have the same dimension, got 2 "
            "words and 1 weights");
  models.preprocessing->Infer(BiasRequest({"a", "b"}, {1.0F, std::nanf("")}), got.Handler());
  EXPECT_EQ(got.status().message(),
            "EMBEDDING_BIAS_WEIGHTS[1]: got nan, must be finite, or -inf to ban the word's tokens");
  models.preprocessing->Infer(BiasRequest({"a\xff"}, {1.0F}), got.Handler());
  EXPECT_THAT(got.status().message(), HasSubstr("EMBEDDING_BIAS_WORDS[0]: "));
}

TEST(Preprocessing, ATextThatNoPromptIsAsLongAsIsNotTokenized) {
  const auto tokenizer = Tokenizer::FromJson(ByteTokenizerJson());
  ASSERT_TRUE(tokenizer.ok());
  PreprocessingModel model(PreprocessingConfig({.max_batch_size = 4}), "1",
                           {.tokenizer = *tokenizer, .vocab_size = 300, .max_prompt_bytes = 10});
  const auto ask = [&](const std::string& text) {
    Collector got;
    model.Infer(MakeRequest({Text("QUERY", {text}), Int("REQUEST_OUTPUT_LEN", 9)}), got.Handler());
    return got.status();
  };
  EXPECT_TRUE(ask(std::string(10, 'a')).ok());
  // What is no UTF-8 would be told so by the tokenizer.
  const Status refused = ask(std::string(11, '\xff'));
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.field(), "QUERY");
  EXPECT_THAT(refused.message(),
              HasSubstr("Prompt length (11 bytes) exceeds maximum input length (at most 10 bytes). "
                        "Shorten QUERY"));
}

TEST(Preprocessing, APromptHasNoBoundInBytesWhereATokenHasNone) {
  const auto bound_of = [](const std::string& json) {
    const auto tokenizer = Tokenizer::FromJson(json);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    return MaxPromptBytes(**tokenizer, 10);
  };
  const std::string words = R"({"version": "1.0", "added_tokens": [], "normalizer": null,
    "pre_tokenizer": null, "post_processor": null, "decoder": null, "model": {"type": "BPE",
    "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, "b": 2}, "merges": [], "fuse_unk": )";
  EXPECT_EQ(bound_of(words + "false}}"), 50U);
  EXPECT_EQ(bound_of(words + "true}}"), 0U);
  EXPECT_GT(bound_of(ByteTokenizerJson()), 0U);
}

// Tokenizing, and what comes of it, are charged to the connection that the text came on.
TEST(Preprocessing, IsChargedToItsConnection) {
  TestModels models;
  const auto account = MemoryAccount::Make(MemoryLimits::Of(4 << 20));
  const auto share = account->NewConnection("a", [] {});
  const auto ask = [&](size_t num_bytes) {
    Request request =
        MakeRequest({Text("QUERY", {std::string(num_bytes, 'a')}), Int("REQUEST_OUTPUT_LEN", 9)});
    request.memory = share;
    return request;
  };
  {
    Collector got;
    models.preprocessing->Infer(ask(10'000), got.Handler());
    got.WaitFinal();
    ASSERT_TRUE(got.status().ok()) << got.status().ToString();
    EXPECT_GE(account->used_bytes(), 40'000U);  // four a token
    EXPECT_LT(account->used_bytes(), 60'000U);
  }
  EXPECT_EQ(account->used_bytes(), 0U);
  Collector got;
  models.preprocessing->Infer(ask(100'000), got.Handler());
  got.WaitFinal();
  EXPECT_EQ(got.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(account->used_bytes(), 0U);
}

// One long text, or word, among many short ones would be held as often as there are rows.
TEST(Preprocessing, PaddingIsBounded) {
  constexpr int64_t kRows = 4096;
  const auto tokenizer = Tokenizer::FromJson(ByteTokenizerJson());
  ASSERT_TRUE(tokenizer.ok());
  PreprocessingModel model(PreprocessingConfig({.max_batch_size = kRows}), "1",
                           {.tokenizer = *tokenizer, .vocab_size = 300});
  const auto column = [](const char* name, const std::vector<std::string>& texts) {
    return Tensor::FromStrings(name, {kRows, 1}, texts);
  };
  const std::vector<std::string> shorts(kRows, "x");
  std::vector<std::string> one_long = shorts;
  one_long[7] = std::string(17'000, 'x');
  const std::vector<int32_t> lengths(kRows, 1);
  const auto error = [&](Tensor query, Tensor words) {
    Collector got;
    model.Infer(MakeRequest({std::move(query), std::move(words),
                             Tensor::FromValues<int32_t>("REQUEST_OUTPUT_LEN", DataType::kInt32,
                                                         {kRows, 1}, lengths)}),
                got.Handler());
    return got.status();
  };
  EXPECT_TRUE(error(column("QUERY", shorts), column("STOP_WORDS_DICT", shorts)).ok());
  const Status prompts = error(column("QUERY", one_long), column("STOP_WORDS_DICT", shorts));
  EXPECT_EQ(prompts.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(prompts.message(),
            "INPUT_ID: 4096 rows padded to the longest, of 17001 values, take 278544384 bytes, at "
            "most 268435456 are allowed; send long rows by themselves");
  const Status words = error(column("QUERY", shorts), column("STOP_WORDS_DICT", one_long));
  EXPECT_THAT(words.message(), HasSubstr("STOP_WORDS_IDS: 4096 rows padded to the longest"));
}

TEST(RunTextCall, WhatIsThrownOnThePoolIsTheRequestsError) {
  TestModels models;
  WorkerPool pool(1, "texts");
  for (WorkerPool* const where : {&pool, static_cast<WorkerPool*>(nullptr)}) {
    Collector got;
    RunTextCall(*models.preprocessing, where, Clock::System(), MakeRequest({}), got.Handler(),
                [](const Request&) -> Result<std::vector<Tensor>> { throw std::bad_alloc(); });
    got.WaitFinal();
    EXPECT_EQ(got.status().reason(), Reason::kOutOfMemory);
    EXPECT_TRUE(got.last().is_final);
  }
}

// A tokenizer without bytes to fall back to, and an engine with fewer tokens than it.
TEST(Preprocessing, BiasWordThatIsNotInTheVocabularyIsRefused) {
  const auto tokenizer = Tokenizer::FromJson(R"({"model": {"type": "BPE",
      "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, "b": 2}, "merges": []}})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  PreprocessingModel model(PreprocessingConfig({.max_batch_size = 8}), "1",
                           {.tokenizer = *tokenizer, .vocab_size = 2});
  Collector got;
  model.Infer(BiasRequest({"a", "ax"}, {1.0F, 1.0F}), got.Handler());
  EXPECT_EQ(got.status().message(),
            "EMBEDDING_BIAS_WORDS[1]: 'ax' is not in the tokenizer's vocabulary");
  model.Infer(BiasRequest({"b"}, {1.0F}), got.Handler());
  EXPECT_EQ(got.status().message(),
            "EMBEDDING_BIAS_WORDS[0]: 'b' has token id 2, the engine's vocabulary is [0, 2)");
}

TEST(Preprocessing, EndAndPadIdsOfTheRequestWin) {
  TestModels models;
  Collector got;
  models.preprocessing->Infer(MakeRequest({Text("QUERY", {"hi"}), Int("REQUEST_OUTPUT_LEN", 9),
                                           Int("END_ID", 7), Int("PAD_ID", 8)}),
                              got.Handler());
  EXPECT_THAT(Values(got.last(), "OUT_END_ID"), ElementsAre(7));
  EXPECT_THAT(Values(got.last(), "OUT_PAD_ID"), ElementsAre(8));
  EXPECT_THAT(Values(got.last(), "DECODER_INPUT_ID"), ElementsAre(8));
}

// The lists of words are those of docs/reference/decoding.md, "Bad words", in bytes for tokens.
TEST(Preprocessing, RowsOfABatchArePaddedToTheLongest) {
  TestModels models;
  Collector got;
  const std::vector<std::string> queries = {"hi", "there"};
  const std::vector<std::string> stop_words = {"a", "bc", "d", ""};
  const std::vector<int32_t> lengths = {9, 5}, end_ids = {7, 8};
  models.preprocessing->Infer(
      MakeRequest(
          {Tensor::FromStrings("QUERY", {2, 1}, queries),
           Tensor::FromValues<int32_t>("REQUEST_OUTPUT_LEN", DataType::kInt32, {2, 1},
                                       std::span(lengths)),
           Tensor::FromStrings("STOP_WORDS_DICT", {2, 2}, stop_words),
           Tensor::FromValues<int32_t>("END_ID", DataType::kInt32, {2, 1}, std::span(end_ids))}),
      got.Handler());
  ASSERT_TRUE(got.status().ok()) << got.status().ToString();
  const Response& response = got.last();
  EXPECT_THAT(Collector::Find(response, "INPUT_ID")->shape, ElementsAre(2, 6));
  EXPECT_THAT(Values(response, "INPUT_ID"),
              ElementsAre(256, 'h', 'i', 0, 0, 0, 256, 't', 'h', 'e', 'r', 'e'));
  EXPECT_THAT(Collector::Find(response, "REQUEST_INPUT_LEN")->shape, ElementsAre(2, 1));
  EXPECT_THAT(Values(response, "REQUEST_INPUT_LEN"), ElementsAre(3, 6));
  EXPECT_THAT(Values(response, "REQUEST_OUTPUT_LEN"), ElementsAre(9, 5));
  EXPECT_THAT(Collector::Find(response, "STOP_WORDS_IDS")->shape, ElementsAre(2, 2, 3));
  EXPECT_THAT(Values(response, "STOP_WORDS_IDS"),
              ElementsAre('a', 'b', 'c', 1, 3, -1, 'd', 0, 0, 1, -1, -1));
  EXPECT_THAT(Collector::Find(response, "BAD_WORDS_IDS")->shape, ElementsAre(2, 2, 0));
  EXPECT_THAT(Collector::Find(response, "EMBEDDING_BIAS")->shape, ElementsAre(2, 0));
  EXPECT_THAT(Values(response, "OUT_END_ID"), ElementsAre(7, 8));
  EXPECT_THAT(Values(response, "OUT_PAD_ID"), ElementsAre(-1, -1)) << "the tokenizer has none";
}

TEST(Preprocessing, OnlyRequestedOutputsAreMade) {
  TestModels models;
  Collector got;
  Request request = MakeRequest({Text("QUERY", {"hi"}), Int("REQUEST_OUTPUT_LEN", 9)});
  request.requested_outputs = {"REQUEST_INPUT_LEN"};
  models.preprocessing->Infer(std::move(request), got.Handler());
  ASSERT_EQ(got.last().outputs.size(), 1U);
  EXPECT_EQ(got.last().outputs[0].name, "REQUEST_INPUT_LEN");
}

TEST(Preprocessing, BadTextIsAnErrorThatNamesTheTensor) {
  TestModels models;
  Collector got;
  models.preprocessing->Infer(MakeRequest({Text("QUERY", {"a\xff"}), Int("REQUEST_OUTPUT_LEN", 9)}),
                              got.Handler());
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(got.status().message(), HasSubstr("QUERY"));
  models.preprocessing->Infer(MakeRequest({Text("QUERY", {"a"}), Int("REQUEST_OUTPUT_LEN", 9),
                                           Text("DECODER_QUERY", {"x"})}),
                              got.Handler());
  EXPECT_EQ(got.status().message(),
            "DECODER_QUERY is not supported; leave it out or send it empty");
  models.preprocessing->Infer(
      MakeRequest({Tensor::FromStrings("QUERY", {2, 1}, std::vector<std::string>{"a", "b\xff"}),
                   Tensor::FromValues<int32_t>("REQUEST_OUTPUT_LEN", DataType::kInt32, {2, 1},
                                               std::vector<int32_t>{9, 9})}),
      got.Handler());
  EXPECT_THAT(got.status().message(), HasSubstr("row 1: QUERY"));
  EXPECT_EQ(models.preprocessing->statistics().Snapshot().fail.count, 3U);
}

TEST(Preprocessing, LongTextsAreEncodedOnTheTextPool) {
  TestModels models;
  Collector got;
  const std::string text(kInlineTextBytes + 1, 'x');
  models.preprocessing->Infer(MakeRequest({Text("QUERY", {text}), Int("REQUEST_OUTPUT_LEN", 9)}),
                              got.Handler());
  got.WaitFinal();
  EXPECT_EQ(Values(got.last(), "INPUT_ID").size(), text.size() + 1);
}

TEST(Postprocessing, DecodesEachBeamUpToItsLength) {
  TestModels models;
  Collector got;
  const std::vector<int32_t> ids = {'a', 'b', 'c', 'd', 257, -1};
  models.postprocessing->Infer(
      MakeRequest({Tensor::FromValues<int32_t>("TOKENS_BATCH", DataType::kInt32, {1, 2, 3},
                                               std::span<const int32_t>(ids)),
                   Ids("SEQUENCE_LENGTH", {3, 2})}),
      got.Handler());
  ASSERT_TRUE(got.status().ok()) << got.status().ToString();
  const Tensor* output = Collector::Find(got.last(), "OUTPUT");
  EXPECT_THAT(output->shape, ElementsAre(2));
  EXPECT_THAT(*output->Strings(), ElementsAre("abc", "d"));
  EXPECT_THAT(Collector::Find(got.last(), "OUT_GENERATION_LOGITS")->shape, ElementsAre(1, 1, 1, 1));
}

TEST(Postprocessing, PassesProbabilitiesThrough) {
  TestModels models;
  Collector got;
  models.postprocessing->Infer(
      MakeRequest({Tensor::FromValues<int32_t>("TOKENS_BATCH", DataType::kInt32, {1, 1, 1},
                                               std::vector<int32_t>{'a'}),
                   Int("SEQUENCE_LENGTH", 1), Float("CUM_LOG_PROBS", -2.5F)}),
      got.Handler());
  EXPECT_EQ(*contract::ReadFloat(*Collector::Find(got.last(), "OUT_CUM_LOG_PROBS")), -2.5F);
}

// The 0.5 release has no lengths; 0.12 and 0.13 pass the row's index through.
TEST(Postprocessing, OlderAndLaterTensorsAreTakenAsTheFileDeclaresThem) {
  TestModels models;
  ::inference::ModelConfig config;
  config.set_name("postprocessing");
  config.set_max_batch_size(8);
  for (const char* name : {"TOKENS_BATCH", "BATCH_INDEX"}) config.add_input()->set_name(name);
  for (const char* name : {"OUTPUT", "OUT_BATCH_INDEX"}) config.add_output()->set_name(name);
  PostprocessingModel model(
      config, "1", {.tokenizer = models.postprocessing->tokenizer(), .text_pool = nullptr});
  const Tensor ids = Tensor::FromValues<int32_t>("TOKENS_BATCH", DataType::kInt32, {1, 2, 2},
                                                 std::vector<int32_t>{'a', 'b', 'c', 'd'});
  Collector got;
  model.Infer(MakeRequest({ids, Int("BATCH_INDEX", 0)}), got.Handler());
  ASSERT_TRUE(got.status().ok()) << got.status().ToString();
  EXPECT_THAT(*Collector::Find(got.last(), "OUTPUT")->Strings(), ElementsAre("ab", "cd"));
  EXPECT_EQ(*contract::ReadInt32(*Collector::Find(got.last(), "OUT_BATCH_INDEX")), 0);
  Collector without;
  model.Infer(MakeRequest({ids}), without.Handler());
  EXPECT_EQ(Collector::Find(without.last(), "OUT_BATCH_INDEX"), nullptr);
}

TEST(Postprocessing, LengthsMustFitTheIds) {
  TestModels models;
  Collector got;
  const Tensor ids = Tensor::FromValues<int32_t>("TOKENS_BATCH", DataType::kInt32, {1, 1, 2},
                                                 std::vector<int32_t>{'a', 'b'});
  models.postprocessing->Infer(MakeRequest({ids, Ids("SEQUENCE_LENGTH", {1, 1})}), got.Handler());
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  models.postprocessing->Infer(MakeRequest({ids, Int("SEQUENCE_LENGTH", -1)}), got.Handler());
  EXPECT_THAT(got.status().message(), HasSubstr("got -1"));
  models.postprocessing->Infer(MakeRequest({ids, Int("SEQUENCE_LENGTH", 99)}), got.Handler());
  EXPECT_EQ(got.last().outputs.front().name, "OUTPUT");
}

}  // namespace
}  // namespace inflight::serving
