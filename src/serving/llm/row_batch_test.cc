// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/row_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/memory_account.h"
#include "contract/tensor_values.h"
#include "serving/testing/test_models.h"

namespace inflight::serving {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

template <typename T>
Tensor Column(std::string name, DataType type, const std::vector<T>& values) {
  return Tensor::FromValues<T>(std::move(name), type, {static_cast<int64_t>(values.size()), 1},
                               std::span<const T>(values));
}
Tensor Ints(std::string name, const std::vector<int32_t>& values) {
  return Column(std::move(name), DataType::kInt32, values);
}
Tensor Bools(std::string name, const std::string& values) {
  return Tensor::FromBytes(std::move(name), DataType::kBool,
                           {static_cast<int64_t>(values.size()), 1}, values);
}
Tensor Texts(std::string name, const std::vector<std::string>& values) {
  return Tensor::FromStrings(std::move(name), {static_cast<int64_t>(values.size()), 1}, values);
}

// Three rows: prompts {1, 2}, {3} and {4, 5, 6}, with 3, 2 and 1 new tokens.
std::vector<Tensor> ThreeRows(std::vector<Tensor> more = {}) {
  const std::vector<int32_t> ids = {1, 2, 0, 3, 0, 0, 4, 5, 6};
  std::vector<Tensor> inputs = {
      Tensor::FromValues<int32_t>("input_ids", DataType::kInt32, {3, 3}, std::span(ids)),
      Ints("input_lengths", {2, 1, 3}), Ints("request_output_len", {3, 2, 1})};
  for (Tensor& tensor : more) inputs.push_back(std::move(tensor));
  return inputs;
}

std::vector<int32_t> Values(const Response& response, std::string_view output) {
  const Tensor* tensor = Collector::Find(response, output);
  return tensor == nullptr ? std::vector<int32_t>{-99} : *contract::ReadInt32s(*tensor);
}

// Everything that was streamed for each row.
std::map<int, std::vector<int32_t>> IdsByRow(const Collector& got) {
  std::map<int, std::vector<int32_t>> rows;
  for (const Response& response : got.responses()) {
    const auto ids = Values(response, "output_ids");
    auto& row = rows[Values(response, "batch_index").front()];
    row.insert(row.end(), ids.begin(), ids.end());
  }
  return rows;
}

TEST(RowBatch, RowsOfADecoupledModelAnswerByThemselves) {
  TestModels models;
  Collector got;
  models.llm->Infer(MakeRequest(ThreeRows(), "b"), got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 3U);
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.last().is_final);
  for (const Response& response : got.responses()) {
    EXPECT_TRUE(response.status.ok());
    EXPECT_EQ(response.id, "b");
    EXPECT_THAT(Collector::Find(response, "batch_index")->shape, ElementsAre(1, 1));
  }
  const auto rows = IdsByRow(got);
  EXPECT_THAT(rows.at(0), ElementsAre(1, 2, 1));
  EXPECT_THAT(rows.at(1), ElementsAre(3, 3));
  EXPECT_THAT(rows.at(2), ElementsAre(4));
}

TEST(RowBatch, StreamedRowsAreToldApartAndEndOnce) {
  TestModels models;
  Collector got;
  models.llm->Infer(MakeRequest(ThreeRows({Bools("streaming", {1, 1, 1})})), got.Handler());
  models.executor->Run();
  EXPECT_EQ(got.responses().size(), 6U);  // 3 + 2 + 1 tokens
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.last().is_final);
  const auto rows = IdsByRow(got);
  EXPECT_THAT(rows.at(0), ElementsAre(1, 2, 1));
  EXPECT_THAT(rows.at(1), ElementsAre(3, 3));
  EXPECT_THAT(rows.at(2), ElementsAre(4));
}

TEST(RowBatch, AModelThatIsNotDecoupledAnswersAllRowsAtOncePadded) {
  TestModels models({.max_batch_size = 8, .decoupled = false, .exclude_input_in_output = false});
  Collector got;
  models.llm->Infer(MakeRequest(ThreeRows({Bools("return_log_probs", {1, 0, 1})})), got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 1U);
  ASSERT_TRUE(got.status().ok()) << got.status().ToString();
  EXPECT_TRUE(got.last().is_final);
  EXPECT_EQ(got.last().outputs.front().name, "output_ids");
  EXPECT_THAT(Collector::Find(got.last(), "output_ids")->shape, ElementsAre(3, 1, 5));
  EXPECT_THAT(Values(got.last(), "output_ids"),
              ElementsAre(1, 2, 1, 2, 1, 3, 3, 3, -1, -1, 4, 5, 6, 4, -1));
  EXPECT_THAT(Collector::Find(got.last(), "sequence_length")->shape, ElementsAre(3, 1));
  EXPECT_THAT(Values(got.last(), "sequence_length"), ElementsAre(5, 3, 4));
  EXPECT_THAT(Values(got.last(), "batch_index"), ElementsAre(0, 1, 2));
  EXPECT_THAT(Collector::Find(got.last(), "cum_log_probs")->shape, ElementsAre(3, 1));
}

TEST(RowBatch, ACallThatCarriesOneResponseGetsOneFromADecoupledModel) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(ThreeRows());
  request.wants_one_response = true;
  models.llm->Infer(std::move(request), got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 1U);
  EXPECT_THAT(Values(got.last(), "sequence_length"), ElementsAre(3, 2, 1));
}

TEST(RowBatch, ACallThatCarriesOneResponseCannotStreamAndGeneratesNoMore) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(ThreeRows({Bools("streaming", {1, 1, 1})}));
  request.wants_one_response = true;
  models.llm->Infer(std::move(request), got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 1U);
  EXPECT_EQ(got.status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(models.executor->cancelled_ids.size(), 3U);
}

TEST(RowBatch, WithoutABatchIndexRowsAreJoinedAndStreamsRefused) {
  TestModels models;
  auto config = LlmConfig({.max_batch_size = 8});
  for (auto& output : *config.mutable_output()) {
    if (output.name() == "batch_index") output.set_name("sequence_index");
  }
  LlmModel llm(config, "1", LlmBackend{.steps = nullptr, .executor = models.executor},
               {.decoupled = true, .exclude_input_in_output = true});
  Collector whole;
  llm.Infer(MakeRequest(ThreeRows()), whole.Handler());
  models.executor->Run();
  ASSERT_EQ(whole.responses().size(), 1U);
  EXPECT_THAT(Values(whole.last(), "sequence_length"), ElementsAre(3, 2, 1));
  Collector streamed;
  llm.Infer(MakeRequest(ThreeRows({Bools("streaming", {1, 1, 1})})), streamed.Handler());
  models.executor->Run();
  ASSERT_EQ(streamed.responses().size(), 1U);
  EXPECT_THAT(streamed.status().message(), HasSubstr("declares no output batch_index"));
}

TEST(RowBatch, RowsThatWouldFillMoreThanAMessageWhenPaddedAreRefused) {
  constexpr size_t kNumRows = 1024;
  ExecutorLimits limits = FakeExecutor::SmallLimits();
  limits.max_seq_len = 1'000'000;
  TestModels models({.max_batch_size = kNumRows, .decoupled = false}, /*threaded=*/false, limits);
  const std::vector<int32_t> ones(kNumRows, 1);
  std::vector<int32_t> lengths = ones;
  lengths.back() = 300'000;
  Collector got;
  models.llm->Infer(MakeRequest({Ints("input_ids", ones), Ints("input_lengths", ones),
                                 Ints("request_output_len", lengths)}),
                    got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 1U);
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      got.status().message(),
      AllOf(HasSubstr("the outputs of 1024 rows are 12"),
            HasSubstr("a response holds at most 1073741824 (send fewer rows per request)")));
}

TEST(RowBatch, EachRowHasItsOwnParameters) {
  TestModels models;
  std::map<TokenId, inflight::Request> by_prompt;
  models.executor->generate = [&](const inflight::Request& request, int) {
    by_prompt[request.input_ids.front()] = request;
    return request.input_ids.front();
  };
  const std::vector<int32_t> words = {7, 1, 8, 1, 0, -1};  // [3, 2, 1]: {7}, {8}, none
  Collector got;
  models.llm->Infer(
      MakeRequest(ThreeRows({Column<uint64_t>("random_seed", DataType::kUint64, {11, 22, 33}),
                             Column<float>("temperature", DataType::kFp32, {0.5F, 1, 2}),
                             Ints("end_id", {9, -1, 10}),
                             Tensor::FromValues<int32_t>("stop_words_list", DataType::kInt32,
                                                         {3, 2, 1}, std::span(words))})),
      got.Handler());
  models.executor->Run();
  ASSERT_EQ(by_prompt.size(), 3U);
  EXPECT_THAT(by_prompt[1].input_ids, ElementsAre(1, 2));
  EXPECT_EQ(by_prompt[1].sampling.seed, 11U);
  EXPECT_EQ(by_prompt[3].sampling.seed, 22U);
  EXPECT_EQ(by_prompt[4].sampling.seed, 33U);
  EXPECT_EQ(by_prompt[4].sampling.temperature, 2);
  EXPECT_THAT(by_prompt[1].end_ids, ElementsAre(9));
  EXPECT_TRUE(by_prompt[3].end_ids.empty());
  EXPECT_THAT(by_prompt[1].stop_words, ElementsAre(ElementsAre(7)));
  EXPECT_THAT(by_prompt[3].stop_words, ElementsAre(ElementsAre(8)));
  EXPECT_TRUE(by_prompt[4].stop_words.empty());
}

TEST(RowBatch, ARowThatFailsLeavesTheOthersOfADecoupledModel) {
  TestModels models;
  Collector got;
  models.llm->Infer(
      MakeRequest(ThreeRows({Column<float>("temperature", DataType::kFp32, {1, -1, 1})})),
      got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 3U);
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.last().is_final);
  const Response& failed = got.responses().front();
  EXPECT_EQ(failed.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(failed.status.message(), HasSubstr("row 1: temperature: got -1"));
  EXPECT_TRUE(got.responses()[1].status.ok());
  EXPECT_TRUE(got.responses()[2].status.ok());
}

TEST(RowBatch, OneResponseNamesEveryRowThatFailedAndTheOthersGenerateNoMore) {
  TestModels models({.max_batch_size = 8, .decoupled = false});
  Collector got;
  models.llm->Infer(
      MakeRequest(ThreeRows({Column<float>("temperature", DataType::kFp32, {-2, 1, -1})})),
      got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 1U);
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(got.status().message(),
              AllOf(HasSubstr("row 0: temperature: got -2"), HasSubstr("; row 2: temperature"),
                    Not(HasSubstr("row 1"))));
  EXPECT_THAT(models.executor->cancelled_ids, ElementsAre(1));
}

TEST(RowBatch, CancelReachesAllRows) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(ThreeRows({Bools("streaming", {1, 1, 1})}));
  const auto cancel = request.cancel;
  models.llm->Infer(std::move(request), got.Handler());
  cancel->Cancel();
  EXPECT_THAT(models.executor->cancelled_ids, UnorderedElementsAre(1, 2, 3));
  models.executor->Step();
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(models.executor->num_active(), 0U);
  EXPECT_EQ(cancel.use_count(), 1);  // nothing holds what has ended
}

TEST(RowBatch, AStopReachesAllRowsAndIsAcknowledgedOnce) {
  TestModels models;
  Collector got;
  Collector stop;
  models.llm->Infer(MakeRequest(ThreeRows(), "a"), got.Handler());
  models.llm->Infer(MakeRequest(ThreeRows({Bools("stop", {1, 1, 1})}), "a"), stop.Handler());
  ASSERT_EQ(stop.responses().size(), 1U);
  EXPECT_TRUE(stop.last().has_answer);
  EXPECT_THAT(models.executor->cancelled_ids, UnorderedElementsAre(1, 2, 3));
  models.executor->Run();
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.status().ok());
  Collector mixed;
  models.llm->Infer(MakeRequest(ThreeRows({Bools("stop", {1, 0, 1})}), "a"), mixed.Handler());
  EXPECT_THAT(mixed.status().message(), HasSubstr("stop: got true for 2 of 3 rows"));
}

TEST(RowBatch, WhatEachRowHasOfTheParametersIsCharged) {
  const auto account = MemoryAccount::Make(MemoryLimits::Of(4 << 20));
  TestModels models;
  const auto infer = [&](size_t num_bytes) {
    Collector got;
    Request request = MakeRequest(ThreeRows());
    request.memory = account->NewConnection("a", [] {});
    request.parameters["x"] = std::string(num_bytes, 'x');
    models.llm->Infer(std::move(request), got.Handler());
    models.executor->Run();
    EXPECT_EQ(got.num_final(), 1);
    return got.status().code();
  };
  EXPECT_EQ(infer(1 << 10), StatusCode::kOk);
  EXPECT_EQ(infer(1 << 20), StatusCode::kResourceExhausted);
  EXPECT_EQ(account->used_bytes(), 0U);
}

TEST(RowBatch, RowsNeedTheirLengths) {
  TestModels models;
  Collector got;
  auto inputs = ThreeRows();
  inputs.erase(inputs.begin() + 1);
  models.llm->Infer(MakeRequest(std::move(inputs)), got.Handler());
  EXPECT_THAT(got.status().message(), HasSubstr("input_lengths is not present in the request"));
}

TEST(RowBatch, IsOneRequestOfSoManyRowsInTheStatistics) {
  TestModels models;
  Collector ok;
  Collector failed;
  models.ensemble->Infer(
      MakeRequest({Texts("text_input", {"a", "bc"}), Ints("max_tokens", {1, 2})}), ok.Handler());
  models.executor->Run();
  models.ensemble->Infer(
      MakeRequest({Texts("text_input", {"a", "bc"}), Ints("max_tokens", {1, 0})}),
      failed.Handler());
  models.executor->Run();
  for (Model* model : std::initializer_list<Model*>{models.llm.get(), models.ensemble.get()}) {
    const auto statistics = model->statistics().Snapshot();
    EXPECT_EQ(statistics.success.count, 1U) << model->name();
    EXPECT_EQ(statistics.execution_count, 1U) << model->name();
    EXPECT_EQ(statistics.inference_count, 2U) << model->name();
    EXPECT_EQ(statistics.batches.at(2).compute_infer.count, 1U) << model->name();
    EXPECT_EQ(statistics.fail.count, 1U) << model->name();
  }
}

TEST(RowBatch, AnEnsembleAnswersItsRowsAsItsLlmDoes) {
  TestModels separate;
  TestModels joined({.max_batch_size = 8, .decoupled = false});
  const auto request = [] {
    return MakeRequest({Texts("text_input", {"abc", "xy"}), Ints("max_tokens", {4, 3})});
  };
  for (TestModels* models : {&separate, &joined}) {
    models->executor->generate = [](const inflight::Request& r, int position) {
      return r.input_ids[1 + static_cast<size_t>(position) % (r.input_ids.size() - 1)];
    };
  }
  Collector apart;
  separate.ensemble->Infer(request(), apart.Handler());
  separate.executor->Run();
  ASSERT_EQ(apart.responses().size(), 2U);
  std::map<int, std::string> texts;
  for (const Response& response : apart.responses()) {
    texts[Values(response, "batch_index").front()] =
        Collector::Find(response, "text_output")->Strings()->front();
  }
  EXPECT_EQ(texts[0], "abca");
  EXPECT_EQ(texts[1], "xyx");

  Collector whole;
  joined.ensemble->Infer(request(), whole.Handler());
  joined.executor->Run();
  ASSERT_EQ(whole.responses().size(), 1U);
  EXPECT_THAT(*Collector::Find(whole.last(), "text_output")->Strings(), ElementsAre("abca", "xyx"));

  Collector bad;
  separate.ensemble->Infer(
      MakeRequest({Texts("text_input", {"abc", std::string(40, 'x')}), Ints("max_tokens", {1, 1})}),
      bad.Handler());
  EXPECT_THAT(bad.status().message(),
              HasSubstr("in ensemble 'ensemble', row 1: Prompt length (41)"));
  separate.executor->Run();
}

}  // namespace
}  // namespace inflight::serving
