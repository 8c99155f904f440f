// SPDX-License-Identifier: Apache-2.0
#include "contract/prompt_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/llm_request.h"

namespace inflight::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ExecutorLimits kEngine = {.vocab_size = 100,
                                .max_seq_len = 64,
                                .max_input_len = 32,
                                .hidden_size = 2,
                                .max_prompt_embedding_table_size = 3};

Tensor TableTensor(std::vector<int64_t> shape, const std::vector<float>& values) {
  return Tensor::FromValues<float>("prompt_embedding_table", DataType::kFp32, std::move(shape),
                                   values);
}

// A request as the LLM's tensors say it.
Result<LlmRequest> Parsed(std::vector<Tensor> more, std::vector<int32_t> ids = {7, 100, 101, 8}) {
  const auto num_ids = std::ssize(ids);
  more.push_back(Tensor::FromValues<int32_t>("input_ids", DataType::kInt32, {1, num_ids}, ids));
  const std::vector<int32_t> length = {4};
  more.push_back(
      Tensor::FromValues<int32_t>("request_output_len", DataType::kInt32, {1, 1}, length));
  std::vector<NamedInput> named;
  for (const Tensor& tensor : more) named.push_back({tensor.name, &tensor});
  return ParseLlmRequest(named, {});
}

Tensor VocabSize(int32_t size) {
  const std::vector<int32_t> values = {size};
  return Tensor::FromValues<int32_t>("prompt_vocab_size", DataType::kInt32, {1, 1}, values);
}

Tensor ExtraIdTensor(const std::vector<uint64_t>& ids) {
  return Tensor::FromValues<uint64_t>("prompt_table_extra_ids", DataType::kUint64,
                                      {1, std::ssize(ids)}, ids);
}

// What tells the prompt's blocks from others.
std::string KeyOf(std::vector<Tensor> more, std::vector<int32_t> ids = {7, 100, 101, 8}) {
  auto parsed = Parsed(std::move(more), std::move(ids));
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  const auto key = PlacePromptTable(kEngine, parsed->prompt_tuning, parsed->request);
  EXPECT_TRUE(key.ok()) << key.status().ToString();
  return key.ok() ? *key : "";
}

TEST(PromptTable, IsReadFromEachFloatTypeAndBothRanks) {
  const auto read = [](DataType type, std::vector<int64_t> shape, std::vector<uint16_t> bits) {
    const Tensor tensor = Tensor::FromValues<uint16_t>("table", type, std::move(shape),
                                                       std::span(std::as_const(bits)));
    const auto known = ReadPromptTable(tensor, 0, nullptr);
    EXPECT_TRUE(known.ok()) << known.status().ToString();
    return known->table;
  };
  // 1, -2, 0.5, 0
  EXPECT_THAT(read(DataType::kFp16, {1, 2, 2}, {0x3c00, 0xc000, 0x3800, 0})->values,
              ElementsAre(1, -2, 0.5F, 0));
  EXPECT_THAT(read(DataType::kBf16, {2, 2}, {0x3f80, 0xc000, 0x3f00, 0})->values,
              ElementsAre(1, -2, 0.5F, 0));
  const auto table = ReadPromptTable(TableTensor({1, 3, 2}, {1, 2, 3, 4, 5, 6}), 2, nullptr);
  EXPECT_EQ(table->table->num_rows, 2) << "prompt_vocab_size says so";
  EXPECT_EQ(table->table->hidden_size, 2);
  EXPECT_THAT(table->table->values, ElementsAre(1, 2, 3, 4));
}

TEST(PromptTable, WhatIsNoTableIsNamed) {
  const auto error = [](const Tensor& tensor, int vocab_size = 0) {
    return ReadPromptTable(tensor, vocab_size, nullptr).status().message();
  };
  EXPECT_THAT(error(TableTensor({2}, {1, 2})), HasSubstr("prompt_embedding_table: got shape [2]"));
  EXPECT_THAT(error(TableTensor({2, 1, 1}, {1, 2})), HasSubstr("got shape [2, 1, 1]"));
  EXPECT_THAT(error(TableTensor({2, 2}, {1, 2})), HasSubstr("its bytes are not those"));
  EXPECT_THAT(error(TableTensor({1, 2}, {1, 2}), 2),
              HasSubstr("prompt_vocab_size: got 2, prompt_embedding_table has 1 rows"));
  const std::vector<int32_t> ids = {1, 2};
  EXPECT_THAT(error(Tensor::FromValues<int32_t>("t", DataType::kInt32, {1, 2}, ids)),
              HasSubstr("t: got INT32, must be FP16, BF16 or FP32"));
}

TEST(PromptTable, IsChargedBeforeItIsTaken) {
  const auto account = MemoryAccount::Make(MemoryLimits::Of(1 << 20));
  const auto share = account->NewConnection("client", [] {});
  {
    const auto known = ReadPromptTable(TableTensor({2, 2}, {1, 2, 3, 4}), 0, share);
    ASSERT_TRUE(known.ok());
    EXPECT_EQ(account->used_bytes(), 4 * sizeof(float));
  }
  EXPECT_EQ(account->used_bytes(), 0U);
  const std::vector<float> large(1 << 19);
  const auto refused = ReadPromptTable(TableTensor({1 << 18, 2}, large), 0, share);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("prompt_embedding_table"));
}

TEST(PromptTable, AVocabularySizeNeedsATable) {
  const Status status = Parsed({VocabSize(2)}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      status.message(),
      HasSubstr("Prompt embedding table and prompt vocab size tensors must both be provided "
                "for requests with prompt tuning enabled."));
  EXPECT_TRUE(Parsed({VocabSize(0)}).ok());
}

TEST(PromptTable, IdsFromTheVocabularyOnAreItsRows) {
  auto parsed = Parsed({TableTensor({1, 2, 2}, {1, 2, 3, 4})});
  ASSERT_TRUE(PlacePromptTable(kEngine, parsed->prompt_tuning, parsed->request).ok());
  EXPECT_THAT(parsed->request.input_ids, ElementsAre(7, 100, 101, 8)) << "as it was";
  EXPECT_TRUE(FitToEngine(parsed->request, kEngine).ok());
  parsed->request.input_ids[2] = 102;
  EXPECT_EQ(FitToEngine(parsed->request, kEngine).message(),
            "input_ids: got token id 102, must be in [0, 102): ids from 100 on are the 2 rows of "
            "prompt_embedding_table");
  // Releases that took any id keep the rows apart from those.
  parsed->request.input_ids = {200, 100};
  ASSERT_TRUE(FitToEngine(parsed->request, kEngine, {.clamps_input_ids = true}).ok());
  EXPECT_THAT(parsed->request.input_ids, ElementsAre(99, 100));
}

TEST(PromptTable, APromptThatNamesNoRowBeginsWithAll) {
  auto parsed = Parsed({TableTensor({1, 2, 2}, {1, 2, 3, 4})}, {7, 8});
  ASSERT_TRUE(PlacePromptTable(kEngine, parsed->prompt_tuning, parsed->request).ok());
  EXPECT_THAT(parsed->request.input_ids, ElementsAre(100, 101, 7, 8));
}

TEST(PromptTable, WhatTheEngineDoesNotTakeIsNamed) {
  const auto error = [](const Tensor& table, const ExecutorLimits& limits) {
    auto parsed = Parsed({table});
    return PlacePromptTable(limits, parsed->prompt_tuning, parsed->request).status();
  };
  const std::vector<float> values(12);
  EXPECT_THAT(error(TableTensor({4, 2}, std::vector<float>(8)), kEngine).message(),
              HasSubstr("prompt_embedding_table: got 4 rows, must be 1 to 3"));
  EXPECT_THAT(error(TableTensor({2, 6}, values), kEngine).message(),
              HasSubstr("got rows of 6 values, the model's have 2"));
  ExecutorLimits none = kEngine;
  none.max_prompt_embedding_table_size = 0;
  const Status refused = error(TableTensor({2, 2}, std::vector<float>(4)), none);
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(refused.message(), HasSubstr("built without prompt tuning"));
}

// Blocks are shared where table and extra ids are the same, whatever text follows.
TEST(PromptTable, KeysTellTablesAndExtraIdsApart) {
  const Tensor one = TableTensor({1, 2, 2}, {1, 2, 3, 4});
  const Tensor other = TableTensor({1, 2, 2}, {1, 2, 3, 5});
  EXPECT_EQ(KeyOf({}, {7, 8}), "");
  EXPECT_EQ(KeyOf({one}).size(), 32U);
  EXPECT_EQ(KeyOf({one}), KeyOf({one}, {7, 100, 9}));
  EXPECT_NE(KeyOf({one}), KeyOf({other}));
  const Tensor swapped = TableTensor({1, 2, 2}, {1, 2, 4, 3});
  EXPECT_NE(KeyOf({one}), KeyOf({swapped}));
  EXPECT_EQ(KeyOf({one, ExtraIdTensor({0, 0, 0, 0})}), KeyOf({one}));
  EXPECT_NE(KeyOf({one, ExtraIdTensor({0, 5, 5, 0})}), KeyOf({one}));
  EXPECT_NE(KeyOf({one, ExtraIdTensor({0, 5, 5, 0})}), KeyOf({one, ExtraIdTensor({0, 6, 6, 0})}));
  EXPECT_EQ(KeyOf({one, ExtraIdTensor({0, 5, 5, 0})}), KeyOf({one, ExtraIdTensor({5})}))
      << "one is that of all rows";
  EXPECT_NE(KeyOf({ExtraIdTensor({0, 5})}, {7, 8}), "") << "also without a table";
}

TEST(PromptTable, ExtraIdsAreOneForEachId) {
  EXPECT_THAT(Parsed({ExtraIdTensor({1, 2})}).status().message(),
              HasSubstr("prompt_table_extra_ids: got 2, must be one for each id of the prompt, 4"));
}

}  // namespace
}  // namespace inflight::contract
