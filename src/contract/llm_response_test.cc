// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "contract/tensor_values.h"

namespace inflight::contract {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Names(const std::vector<Tensor>& tensors) {
  std::vector<std::string> names;
  for (const Tensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

Response TwoTokens() {
  Response response;
  response.output_ids = {7, 8};
  response.output_log_probs = {-1.0F, -2.0F};
  response.cum_log_prob = -3.0F;
  return response;
}

TEST(LlmResponse, OutputIdsComeFirstAndDummiesFillTheRest) {
  const std::vector<TokenId> prompt = {1, 2, 3};
  const auto outputs = MakeLlmOutputs(
      TwoTokens(), {.prompt = prompt, .with_dummies = true, .num_dummy_log_probs = 3}, {});
  EXPECT_THAT(Names(outputs),
              ElementsAre("output_ids", "sequence_length", "context_logits", "generation_logits",
                          "output_log_probs", "cum_log_probs"));
  EXPECT_THAT(outputs[0].shape, ElementsAre(1, 1, 5));
  EXPECT_THAT(*ReadInt32s(outputs[0]), ElementsAre(1, 2, 3, 7, 8));
  EXPECT_EQ(*ReadInt32(outputs[1]), 5);
  EXPECT_THAT(outputs[2].shape, ElementsAre(1, 1, 1));
  EXPECT_THAT(outputs[3].shape, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(*ReadFloat(outputs[3]), 0.0F);
  EXPECT_THAT(outputs[4].shape, ElementsAre(1, 1, 3));
  EXPECT_EQ(outputs[4].data.size(), 12U);
  EXPECT_EQ(*ReadFloat(outputs[5]), 0.0F);
}

TEST(LlmResponse, LogProbsAreOfTheGeneratedTokens) {
  const auto outputs = MakeLlmOutputs(
      TwoTokens(), {.prompt = {}, .return_log_probs = true, .with_dummies = false}, {});
  EXPECT_THAT(Names(outputs),
              ElementsAre("output_ids", "sequence_length", "output_log_probs", "cum_log_probs"));
  EXPECT_THAT(outputs[2].shape, ElementsAre(1, 1, 2));
  EXPECT_EQ(*ReadFloat(outputs[3]), -3.0F);
}

TEST(LlmResponse, BeamsAreRowsAndTheShorterOnesArePadded) {
  Response response;
  response.beams = {
      {.output_ids = {7}, .output_log_probs = {-0.5F}, .cum_log_prob = -1.5F},
      {.output_ids = {8, 9, 10}, .output_log_probs = {-1, -2, -3}, .cum_log_prob = -6}};
  const std::vector<TokenId> prompt = {1, 2};
  const auto outputs =
      MakeLlmOutputs(response, {.prompt = prompt, .pad_id = 4, .return_log_probs = true},
                     std::vector<std::string>{"output_ids", "sequence_length", "output_log_probs",
                                              "cum_log_probs"});
  ASSERT_EQ(outputs.size(), 4U);
  EXPECT_THAT(outputs[0].shape, ElementsAre(1, 2, 5));
  EXPECT_THAT(*ReadInt32s(outputs[0]), ElementsAre(1, 2, 7, 4, 4, 1, 2, 8, 9, 10));
  EXPECT_THAT(outputs[1].shape, ElementsAre(1, 2));
  EXPECT_THAT(*ReadInt32s(outputs[1]), ElementsAre(3, 5));
  EXPECT_THAT(outputs[2].shape, ElementsAre(1, 2, 3));
  std::vector<float> log_probs(6);
  std::memcpy(log_probs.data(), outputs[2].data.data(), outputs[2].data.size());
  EXPECT_THAT(log_probs, ElementsAre(-0.5F, 0, 0, -1, -2, -3));
  EXPECT_THAT(outputs[3].shape, ElementsAre(1, 2));
}

TEST(LlmResponse, OnlyRequestedOutputsAreMade) {
  const std::vector<std::string> requested = {"sequence_length"};
  EXPECT_THAT(Names(MakeLlmOutputs(TwoTokens(), {.prompt = {}}, requested)),
              ElementsAre("sequence_length"));
}

TEST(LlmResponse, LogitsReplaceTheirDummies) {
  Response response = TwoTokens();
  response.generation_logits = {2, 3, {1, 2, 3, 4, 5, 6}};
  response.context_logits = {1, 3, {7, 8, 9}};
  const std::vector<std::string> names = {"context_logits", "generation_logits"};
  const auto outputs =
      MakeLlmOutputs(response, {.with_dummies = true, .return_generation_logits = true}, names);
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_THAT(outputs[0].shape, ElementsAre(1, 1, 3));
  EXPECT_THAT(outputs[1].shape, ElementsAre(1, 1, 2, 3));
  float first = 0;
  std::memcpy(&first, outputs[0].data.data(), sizeof(first));
  EXPECT_EQ(first, 7);
  // A later response of a stream: those of the prompt were sent.
  response.context_logits = {};
  EXPECT_THAT(Names(MakeLlmOutputs(
                  response, {.with_dummies = false, .return_generation_logits = true}, names)),
              ElementsAre("generation_logits"));
}

template <typename T>
std::vector<T> ValuesOf(const Tensor& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

TEST(LlmResponse, LogitsHaveTheTypeThatTheModelDeclares) {
  Response response = TwoTokens();
  response.context_logits = {1, 2, {1.0F, -2.5F}};
  response.generation_logits = {1, 2, {1.00390625F, 65536.0F}};
  const auto outputs =
      MakeLlmOutputs(response,
                     {.with_dummies = false,
                      .return_generation_logits = true,
                      .context_logits_type = DataType::kFp16,
                      .generation_logits_type = DataType::kBf16},
                     std::vector<std::string>{"context_logits", "generation_logits"});
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[0].datatype, DataType::kFp16);
  EXPECT_THAT(outputs[0].shape, ElementsAre(1, 1, 2));
  EXPECT_THAT(ValuesOf<uint16_t>(outputs[0]), ElementsAre(0x3c00, 0xc100));
  EXPECT_EQ(outputs[1].datatype, DataType::kBf16);
  // 1 + 2^-8 lies half way to the next bfloat16 and goes to the even one, which is 1.
  EXPECT_THAT(ValuesOf<uint16_t>(outputs[1]), ElementsAre(0x3f80, 0x4780));
  const Tensor dummy = NoLogits("l", DataType::kFp16, 4);
  EXPECT_THAT(dummy.shape, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(ValuesOf<uint16_t>(dummy), ElementsAre(0));
}

TEST(LlmResponse, LogitsAndLikeliestTokensOfBeamsArePaddedToTheLongest) {
  Response response;
  response.beams.resize(2);
  response.beams[0] = {.output_ids = {7},
                       .top_log_probs = {{7, -0.5F}, {1, -1.0F}},
                       .generation_logits = {1, 2, {1, 2}}};
  response.beams[1] = {.output_ids = {8, 9},
                       .top_log_probs = {{8, -0.1F}, {2, -3.0F}, {9, -0.2F}, {3, -4.0F}},
                       .generation_logits = {2, 2, {3, 4, 5, 6}}};
  const auto outputs = MakeLlmOutputs(
      response, {.with_dummies = false, .return_generation_logits = true, .num_top_log_probs = 2},
      std::vector<std::string>{"generation_logits", "top_log_prob_ids", "top_log_probs"});
  EXPECT_THAT(Names(outputs),
              ElementsAre("generation_logits", "top_log_prob_ids", "top_log_probs"));
  for (const Tensor& tensor : outputs) EXPECT_THAT(tensor.shape, ElementsAre(1, 2, 2, 2));
  EXPECT_THAT(ValuesOf<float>(outputs[0]), ElementsAre(1, 2, 0, 0, 3, 4, 5, 6));
  EXPECT_THAT(ValuesOf<TokenId>(outputs[1]), ElementsAre(7, 1, -1, -1, 8, 2, 9, 3));
  EXPECT_THAT(ValuesOf<float>(outputs[2]),
              ElementsAre(-0.5F, -1.0F, 0, 0, -0.1F, -3.0F, -0.2F, -4.0F));
}

TEST(LlmResponse, TheBatchIndexIsSentByReleasesThatDeclareIt) {
  const std::vector<std::string> declared = {"output_ids", "batch_index"};
  const auto outputs = MakeLlmOutputs({}, {.with_dummies = true, .batch_index = 0}, declared);
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[1].name, "batch_index");
  EXPECT_THAT(outputs[1].shape, ElementsAre(1, 1));
  EXPECT_EQ(MakeLlmOutputs({}, {.with_dummies = true}, declared).size(), 1U);
}

TEST(LlmResponse, ZerosOfAnySizeAreZero) {
  for (const int n : {0, 1, 256, 257, 5000}) {
    const Tensor zeros = Zeros("z", {1, 1, n}, n);
    EXPECT_EQ(zeros.data.size(), static_cast<size_t>(n) * sizeof(float));
    for (const std::byte b : zeros.data) ASSERT_EQ(b, std::byte{0});
  }
}

TEST(Tensors, StringsAreFramed) {
  const std::vector<std::string> strings = {"ab", "", "c"};
  const Tensor tensor = Tensor::FromStrings("t", {1, 3}, strings);
  EXPECT_EQ(tensor.data.size(), 15U);
  EXPECT_THAT(*tensor.Strings(), ElementsAre("ab", "", "c"));
}

TEST(Tensors, BrokenStringsAreErrors) {
  const auto strings = [](std::string bytes, std::vector<int64_t> shape) {
    return Tensor::FromBytes("t", DataType::kBytes, std::move(shape), std::move(bytes))
        .Strings()
        .status();
  };
  EXPECT_FALSE(strings(std::string("\x02\0\0", 3), {1}).ok());
  EXPECT_FALSE(strings(std::string("\x02\0\0\0a", 5), {1}).ok());
  EXPECT_FALSE(strings(std::string("\xff\xff\xff\xff", 4), {1}).ok());
  EXPECT_FALSE(strings(std::string("\x01\0\0\0a", 5), {2}).ok());
  EXPECT_TRUE(strings(std::string("\x01\0\0\0a", 5), {1, 1}).ok());
}

TEST(Tensors, ElementCountsDoNotOverflow) {
  Tensor tensor;
  tensor.shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(tensor.num_elements(), -1);
  tensor.shape = {2, -1};
  EXPECT_EQ(tensor.num_elements(), -1);
  tensor.shape = {};
  EXPECT_EQ(tensor.num_elements(), 1);
}

}  // namespace
}  // namespace inflight::contract
