// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/tensor_values.h"
#include "serving/test_models.h"
#include "serving/text_call.h"

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
                                           Text("EMBEDDING_BIAS_WORDS", {"x"})}),
                              got.Handler());
  EXPECT_EQ(got.status().message(), "EMBEDDING_BIAS_WORDS is not supported yet");
  models.preprocessing->Infer(
      MakeRequest({Tensor::FromStrings("QUERY", {2, 1}, std::vector<std::string>{"a", "b"}),
                   Int("REQUEST_OUTPUT_LEN", 9)}),
      got.Handler());
  EXPECT_THAT(got.status().message(),
              HasSubstr("Inflight batching backend expects requests with batch size of 1."));
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
