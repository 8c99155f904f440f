// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/llm_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "contract/tensor_values.h"
#include "serving/configuration/model_config.h"
#include "serving/testing/test_models.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Tensor> Inputs(std::vector<TokenId> ids, int max_tokens,
                           std::vector<Tensor> more = {}) {
  std::vector<Tensor> inputs = {Int("input_lengths", static_cast<int>(ids.size())),
                                Ids("input_ids", std::move(ids)),
                                Int("request_output_len", max_tokens)};
  for (Tensor& tensor : more) inputs.push_back(std::move(tensor));
  return inputs;
}

std::vector<TokenId> OutputIds(const Response& response) {
  const Tensor* ids = Collector::Find(response, "output_ids");
  return ids == nullptr ? std::vector<TokenId>() : *contract::ReadInt32s(*ids);
}

TEST(LlmModel, AnswersOnceWithoutStreaming) {
  TestModels models;
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1, 2}, 3), "r1"), got.Handler());
  EXPECT_TRUE(got.responses().empty());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 1U);
  EXPECT_TRUE(got.status().ok());
  EXPECT_TRUE(got.last().is_final);
  EXPECT_EQ(got.last().model_name, "tensorrt_llm");
  EXPECT_EQ(got.last().model_version, "1");
  EXPECT_EQ(got.last().id, "r1");
  EXPECT_EQ(got.last().outputs.front().name, "output_ids");
  EXPECT_THAT(OutputIds(got.last()), ElementsAre(1, 2, 1));
}

TEST(LlmModel, PromptComesFirstUnlessItIsExcluded) {
  TestModels models({.max_batch_size = 8, .exclude_input_in_output = false});
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1, 2}, 3)), got.Handler());
  models.executor->Run();
  EXPECT_THAT(OutputIds(got.last()), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_EQ(*contract::ReadInt32(*Collector::Find(got.last(), "sequence_length")), 5);
  EXPECT_THAT(Collector::Find(got.last(), "output_log_probs")->shape, ElementsAre(1, 1, 2));
}

TEST(LlmModel, StreamsNewTokensAndEndsOnTheLast) {
  TestModels models({.max_batch_size = 8, .exclude_input_in_output = false});
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1, 2}, 3, {Bool("streaming", true)})), got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 3U);
  EXPECT_THAT(OutputIds(got.responses()[0]), ElementsAre(1));
  EXPECT_THAT(OutputIds(got.responses()[1]), ElementsAre(2));
  EXPECT_THAT(OutputIds(got.responses()[2]), ElementsAre(1));
  EXPECT_FALSE(got.responses()[1].is_final);
  EXPECT_TRUE(got.responses()[2].is_final);
}

TEST(LlmModel, AStreamIsHeldWhileItsFrontEndSaysSo) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(Inputs({1, 2}, 3, {Bool("streaming", true)}));
  const auto hold = request.hold = std::make_shared<HoldToken>();
  models.llm->Infer(std::move(request), got.Handler());
  Collector beside;
  models.llm->Infer(MakeRequest(Inputs({5, 6}, 3, {Bool("streaming", true)})), beside.Handler());
  models.executor->Step();
  hold->Set(true, 1);
  for (int step = 0; step < 5; ++step) models.executor->Step();
  EXPECT_EQ(got.responses().size(), 1U);
  EXPECT_EQ(beside.responses().size(), 3U);
  EXPECT_TRUE(beside.last().is_final);
  hold->Set(false, 3);
  hold->Set(true, 2);  // came late
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 3U);
  EXPECT_THAT(OutputIds(got.responses()[1]), ElementsAre(2));
  EXPECT_THAT(OutputIds(got.responses()[2]), ElementsAre(1));
}

TEST(LlmModel, AStreamThatIsHeldAtItsStartAndThenCancelledEnds) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(Inputs({1, 2}, 3, {Bool("streaming", true)}));
  const auto cancel = request.cancel;
  request.hold = std::make_shared<HoldToken>();
  request.hold->Set(true, 1);
  models.llm->Infer(std::move(request), got.Handler());
  for (int step = 0; step < 5; ++step) models.executor->Step();
  EXPECT_TRUE(got.responses().empty());
  cancel->Cancel();
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 1U);
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
}

TEST(LlmModel, WhatAnswersOnceIsNotHeld) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(Inputs({1, 2}, 3));
  request.hold = std::make_shared<HoldToken>();
  request.hold->Set(true, 1);
  models.llm->Infer(std::move(request), got.Handler());
  models.executor->Run();
  EXPECT_THAT(OutputIds(got.last()), ElementsAre(1, 2, 1));
}

TEST(LlmModel, LogProbsAreGivenWhenAsked) {
  TestModels models;
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1, 2}, 3, {Bool("return_log_probs", true)})),
                    got.Handler());
  models.executor->Run();
  EXPECT_THAT(Collector::Find(got.last(), "output_log_probs")->shape, ElementsAre(1, 1, 3));
  EXPECT_EQ(*contract::ReadFloat(*Collector::Find(got.last(), "cum_log_probs")), -1.5F);
}

TEST(LlmModel, WithoutEndIdGenerationRunsToTheEnd) {
  TestModels models;
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({257, 2}, 3)), got.Handler());
  models.executor->Run();
  EXPECT_THAT(OutputIds(got.last()), ElementsAre(257, 2, 257));
}

TEST(LlmModel, BadInputsFailWithoutReachingTheExecutor) {
  TestModels models;
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1}, 3, {Float("temperature", -1)})), got.Handler());
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(got.num_final(), 1);
  models.llm->Infer(MakeRequest(Inputs(std::vector<TokenId>(33, 1), 3)), got.Handler());
  EXPECT_EQ(got.status().message(), "Prompt length (33) exceeds maximum input length (32).");
  models.llm->Infer(MakeRequest({Ids("input_ids", {1})}), got.Handler());
  EXPECT_EQ(got.status().message(), "request_output_len is not present in the request");
  Request of_text = MakeRequest(Inputs({1}, 3));
  of_text.parameters["include_stop_str_in_output"] = false;
  models.llm->Infer(std::move(of_text), got.Handler());
  EXPECT_EQ(got.status().message(),
            "include_stop_str_in_output: this model answers with ids, not with text; send it to "
            "the ensemble or to tensorrt_llm_bls");
  EXPECT_EQ(models.executor->num_active(), 0U);
  const auto statistics = models.llm->statistics().Snapshot();
  EXPECT_EQ(statistics.fail.count, 4U);
  EXPECT_EQ(statistics.failures.at(FailureReason::kBackend), 4U);
}

TEST(LlmModel, TheCacheSaltIsThatOfTextAndIdentity) {
  TestModels models;
  const auto salt_of = [&](const ParameterValue& text, uint8_t identity) {
    Request request = MakeRequest(Inputs({1, 2}, 3));
    request.parameters["cache_salt"] = text;
    request.client = std::make_shared<Client>(Client{.identity = {identity}, .name = {}});
    Collector got;
    models.llm->Infer(std::move(request), got.Handler());
    models.executor->Run();
    return got.status().ok() ? models.executor->last_request.cache_salt : 0;
  };
  EXPECT_EQ(salt_of(std::string(), 0), 0U);
  EXPECT_NE(salt_of(std::string("a"), 0), 0U);
  EXPECT_NE(salt_of(std::string("a"), 0), salt_of(std::string("a"), 1));
  EXPECT_NE(salt_of(std::string(), 1), salt_of(std::string(), 2));
  Collector got;
  Request request = MakeRequest(Inputs({1, 2}, 3));
  request.parameters["cache_salt"] = int64_t{1};
  models.llm->Infer(std::move(request), got.Handler());
  EXPECT_EQ(got.status().message(), "cache_salt: the parameter has another type, must be a string");
}

std::shared_ptr<const Client> Limited(const ClientLimits& limits) {
  return std::make_shared<Client>(Client{.identity = {1},
                                         .name = "team-a",
                                         .limits = limits,
                                         .use = std::make_shared<ClientUse>(limits, 0)});
}

TEST(LlmModel, AClientsRequestsHaveItsDeadlines) {
  TestModels models;
  const auto timeout_of = [&](std::shared_ptr<const Client> client, uint64_t timeout_us) {
    Request request = MakeRequest(Inputs({1, 2}, 3));
    request.client = std::move(client);
    request.timeout_us = timeout_us;
    Collector got;
    models.llm->Infer(std::move(request), got.Handler());
    models.executor->Run();
    return models.executor->last_request.timeout_ms;
  };
  EXPECT_EQ(timeout_of(nullptr, 5'000), std::nullopt);
  EXPECT_EQ(timeout_of(Limited({}), 5'000), std::nullopt);
  const auto both = Limited({.default_timeout_ms = 100, .max_timeout_ms = 1000});
  EXPECT_EQ(timeout_of(both, 0), 100);
  EXPECT_EQ(timeout_of(both, 5'000), 5);
  EXPECT_EQ(timeout_of(both, 200'000), 200);
  EXPECT_EQ(timeout_of(both, 2'000'000), 1000);
  EXPECT_EQ(timeout_of(both, 1), 1);
  EXPECT_EQ(timeout_of(Limited({.max_timeout_ms = 1000}), 0), 1000);
  EXPECT_EQ(timeout_of(Limited({.default_timeout_ms = 100}), 0), 100);
  EXPECT_EQ(timeout_of(Limited({.default_timeout_ms = 100}), 2'000'000), 2000);
}

TEST(LlmModel, ClientsTakeTurnsByTheirShares) {
  TestModels models;
  const auto enqueued = [&](std::shared_ptr<const Client> client) {
    Request request = MakeRequest(Inputs({1, 2}, 3));
    request.client = std::move(client);
    Collector got;
    models.llm->Infer(std::move(request), got.Handler());
    models.executor->Run();
    return std::pair(models.executor->last_request.client_id, models.executor->last_request.share);
  };
  EXPECT_EQ(enqueued(nullptr), std::pair(uint64_t{0}, 1.0F));
  EXPECT_EQ(enqueued(Limited({.share = 4})), std::pair(uint64_t{1} << 56, 4.0F));
}

TEST(LlmModel, AClientsTokensAreThoseOfPromptsAndAnswers) {
  TestModels models;
  const auto client = Limited({.tokens_per_period = 20, .period_s = 3600});
  const auto send = [&](std::vector<TokenId> ids, int max_tokens, Collector& got) {
    Request request = MakeRequest(Inputs(std::move(ids), max_tokens), "a");
    request.client = client;
    models.llm->Infer(std::move(request), got.Handler());
  };
  Collector first, refused, stopped, last, over;
  send({1, 2}, 8, first);
  send({1, 2}, 9, refused);  // 10 are taken, 11 wanted
  EXPECT_EQ(refused.status().reason(), Reason::kOverLimit);
  EXPECT_THAT(refused.status().message(), HasSubstr("key 'team-a' has 10 tokens left"));
  models.executor->Run();
  EXPECT_TRUE(first.status().ok());
  models.executor->refuse_with = Unavailable("no");
  send({1, 2}, 8, stopped);  // takes nothing where it does not start
  models.executor->refuse_with = Status::Ok();
  send({1}, 9, last);
  models.executor->Run();
  EXPECT_TRUE(last.status().ok());
  send({1}, 1, over);
  EXPECT_THAT(over.status().message(), HasSubstr("has 0 tokens left"));
}

// It took 2 and 3 of the 20 that it might have.
TEST(LlmModel, WhatAnAnswerDidNotTakeIsGivenBack) {
  TestModels models;
  const auto client = Limited({.tokens_per_period = 20, .period_s = 3600});
  models.executor->generate = [](const inflight::Request&, int position) {
    return position < 3 ? TokenId{7} : TokenId{2};
  };
  Collector got, next;
  Request request = MakeRequest(Inputs({1, 5}, 18, {Int("end_id", 2)}));
  request.client = client;
  models.llm->Infer(std::move(request), got.Handler());
  models.executor->Run();
  const auto num_tokens = static_cast<int64_t>(2 + OutputIds(got.last()).size());
  ASSERT_LT(num_tokens, 20);
  EXPECT_TRUE(ClientTokens::Take(client, 20 - num_tokens, 0).ok());
  EXPECT_FALSE(ClientTokens::Take(client, 21 - num_tokens, 0).ok());
}

Tensor Bias(int vocab_size) {
  const std::vector<float> values(static_cast<size_t>(vocab_size), 0.5F);
  return Tensor::FromValues<float>("embedding_bias", DataType::kFp32, {1, vocab_size},
                                   std::span(values));
}

// What a request is charged until it ends, of a vocabulary of 300 tokens; `asked`: its inputs.
size_t ChargedFor(std::vector<Tensor> asked) {
  const auto account = MemoryAccount::Make({});
  TestModels models;
  Collector got;
  Request request = MakeRequest(Inputs({1, 2}, 3, std::move(asked)));
  request.memory = account->NewConnection("client", [] {});
  models.llm->Infer(std::move(request), got.Handler());
  const size_t charged = account->used_bytes();
  models.executor->Run();
  EXPECT_TRUE(got.status().ok()) << got.status().ToString();
  EXPECT_EQ(account->used_bytes(), 0U);
  return charged;
}

TEST(LlmModel, WhatIsKeptForAnAnswerIsCharged) {
  constexpr size_t kRow = 300 * sizeof(float);
  EXPECT_EQ(ChargedFor({}), 0U);
  EXPECT_EQ(ChargedFor({Bool("return_context_logits", true)}), 2 * kRow);
  EXPECT_EQ(ChargedFor({Bool("return_generation_logits", true)}), 3 * kRow);
  // A stream sends each row with its token.
  EXPECT_EQ(ChargedFor({Bool("return_generation_logits", true), Bool("streaming", true)}), 0U);
  EXPECT_EQ(ChargedFor({Int("num_top_log_probs", 7)}), 3 * 7 * sizeof(TopLogProb));
  EXPECT_EQ(ChargedFor({Bias(300)}), kRow);
  const size_t of_sequences = ChargedFor({Int("num_return_sequences", 1024)});
  EXPECT_GE(of_sequences, 1023U * 1024);
  EXPECT_EQ(ChargedFor({Int("num_return_sequences", 1024), Bool("return_generation_logits", true)}),
            of_sequences + 1024 * 3 * kRow);
}

TEST(LlmModel, ARequestWhoseAnswerHasNoRoomIsRefused) {
  MemoryLimits limits;
  limits.connection_bytes = 2 * 300 * sizeof(float);
  const auto account = MemoryAccount::Make(limits);
  TestModels models;
  Request request = MakeRequest(Inputs({1, 2, 3}, 3, {Bool("return_context_logits", true)}));
  request.memory = account->NewConnection("client", [] {});
  Collector got;
  models.llm->Infer(std::move(request), got.Handler());
  EXPECT_EQ(got.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(got.status().message(), HasSubstr("--request-memory-byte-size"));
  EXPECT_EQ(account->used_bytes(), 0U);
}

TEST(LlmModel, AFullQueueIsUnavailable) {
  TestModels models;
  models.executor->refuse_with =
      ResourceExhausted("Maximum queue size of 4 has been reached, please try again later")
          .WithReason(Reason::kQueueFull);
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1}, 3)), got.Handler());
  EXPECT_EQ(got.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(got.status().message(), HasSubstr("Maximum queue size of 4"));
  EXPECT_EQ(models.llm->statistics().Snapshot().failures.at(FailureReason::kRejected), 1U);
}

// --- the queue policy (docs/reference/repositories.md, "The queue policy") ---

// The time-out in the queue of a request that asks for `asked_us`, under a policy.
std::optional<int64_t> QueueTimeout(const std::string& policy, int64_t asked_us) {
  TestModels models;
  auto config = LlmConfig({.max_batch_size = 8});
  const auto parsed =
      ParseModelConfig("dynamic_batching { default_queue_policy { " + policy + " } }");
  CHECK(parsed.ok());
  config.MergeFrom(parsed->config);
  LlmModel llm(config, "1", LlmBackend{.steps = nullptr, .executor = models.executor}, {});
  Collector got;
  Request request = MakeRequest(Inputs({1}, 3));
  request.timeout_us = asked_us;
  llm.Infer(std::move(request), got.Handler());
  models.executor->Run();
  return models.executor->last_request.queue_timeout_us;
}

TEST(LlmModel, ATimeoutOfTheQueueIsThePolicysUnlessTheRequestMayShortenIt) {
  EXPECT_EQ(QueueTimeout("", 500), std::nullopt);
  EXPECT_EQ(QueueTimeout("allow_timeout_override: true", 500), std::nullopt);
  EXPECT_EQ(QueueTimeout("default_timeout_microseconds: 1000", 0), 1000);
  EXPECT_EQ(QueueTimeout("default_timeout_microseconds: 1000", 500), 1000);
  const std::string both = "default_timeout_microseconds: 1000 allow_timeout_override: true";
  EXPECT_EQ(QueueTimeout(both, 0), 1000);
  EXPECT_EQ(QueueTimeout(both, 500), 500);
  EXPECT_EQ(QueueTimeout(both, 2000), 1000);
  EXPECT_EQ(QueueTimeout("default_timeout_microseconds: 18446744073709551615", 0), INT64_MAX);
}

TEST(LlmModel, ARequestThatTimesOutInTheQueueIsRejectedAsUnavailable) {
  TestModels models;
  models.executor->time_out_next = true;
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1}, 3)), got.Handler());
  models.executor->Run();
  EXPECT_EQ(got.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(got.status().message(), "Request timeout expired");
  EXPECT_EQ(models.llm->statistics().Snapshot().failures.at(FailureReason::kRejected), 1U);
}

TEST(LlmModel, ErrorsOfTheExecutorKeepTheirCodeAndTheKnownWords) {
  TestModels models;
  models.executor->fail_with = Internal("the device is gone");
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1}, 3)), got.Handler());
  models.executor->Step();
  EXPECT_FALSE(models.llm->has_fault());  // the executor is still healthy
  EXPECT_EQ(got.status().code(), StatusCode::kInternal);
  EXPECT_EQ(got.status().message(),
            "Executor failed process requestId 1 due to the following error: the device is gone");
}

TEST(LlmModel, ErrorsOfAnUnhealthyExecutorAreAFault) {
  TestModels models;
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1}, 3)), got.Handler());
  models.executor->is_healthy = false;
  EXPECT_FALSE(models.llm->has_fault());  // late, perhaps, but nothing failed
  models.executor->fail_with = Internal("the device is gone");
  models.executor->Step();
  EXPECT_TRUE(models.llm->has_fault());
}

TEST(LlmModel, StopEndsTheRequestWithTheSameId) {
  TestModels models;
  Collector stopped;
  Collector other;
  Collector stop;
  models.llm->Infer(MakeRequest(Inputs({1, 2}, 20, {Bool("streaming", true)}), "a"),
                    stopped.Handler());
  models.llm->Infer(MakeRequest(Inputs({3, 4}, 20, {Bool("streaming", true)}), "b"),
                    other.Handler());
  models.executor->Step();
  models.llm->Infer(MakeRequest(Inputs({0}, 0, {Bool("stop", true)}), "a"), stop.Handler());
  ASSERT_EQ(stop.responses().size(), 1U);
  EXPECT_TRUE(stop.status().ok());
  EXPECT_TRUE(stop.last().outputs.empty());
  EXPECT_TRUE(stop.last().is_final);
  EXPECT_TRUE(stop.last().has_answer);
  models.executor->Step();
  EXPECT_EQ(stopped.num_final(), 1);
  EXPECT_TRUE(stopped.status().ok());
  EXPECT_EQ(other.num_final(), 0);
  models.executor->Run();
  EXPECT_EQ(other.responses().size(), 20U);
}

TEST(LlmModel, StopOfAnUnknownIdIsAcknowledgedAndOneWithoutIdIsAnError) {
  TestModels models;
  Collector unknown;
  models.llm->Infer(MakeRequest(Inputs({0}, 0, {Bool("stop", true)}), "gone"), unknown.Handler());
  EXPECT_TRUE(unknown.status().ok());
  Collector none;
  models.llm->Infer(MakeRequest(Inputs({0}, 0, {Bool("stop", true)})), none.Handler());
  EXPECT_EQ(none.status().message(), "Trying to stop a request but request ID is not provided");
  EXPECT_EQ(models.llm->statistics().Snapshot().success.count, 0U);
}

TEST(LlmModel, StopReachesEveryRequestOfAnId) {
  TestModels models;
  Collector first;
  Collector second;
  Collector stop;
  models.llm->Infer(MakeRequest(Inputs({1}, 20), "a"), first.Handler());
  models.llm->Infer(MakeRequest(Inputs({2}, 20), "a"), second.Handler());
  models.llm->Infer(MakeRequest(Inputs({0}, 0, {Bool("stop", true)}), "a"), stop.Handler());
  EXPECT_THAT(models.executor->cancelled_ids, testing::UnorderedElementsAre(1, 2));
  models.executor->Run();
  EXPECT_TRUE(models.llm->active().Stop("a", {}).empty());
}

TEST(LlmModel, StopReachesNoRequestOfAnotherIdentity) {
  TestModels models;
  const auto send = [&](std::vector<Tensor> inputs, uint8_t identity, Collector& got) {
    Request request = MakeRequest(std::move(inputs), "a");
    request.client = std::make_shared<Client>(Client{.identity = {identity}, .name = {}});
    models.llm->Infer(std::move(request), got.Handler());
  };
  const auto stop = [&] { return Inputs({0}, 0, {Bool("stop", true)}); };
  Collector one, two, nobody, stops;
  send(Inputs({1}, 20), 1, one);
  send(Inputs({2}, 20), 2, two);
  send(Inputs({3}, 20), 0, nobody);
  send(stop(), 3, stops);
  EXPECT_TRUE(models.executor->cancelled_ids.empty());
  send(stop(), 2, stops);
  EXPECT_THAT(models.executor->cancelled_ids, ElementsAre(2));
  send(stop(), 0, stops);
  EXPECT_THAT(models.executor->cancelled_ids, ElementsAre(2, 3));
  EXPECT_TRUE(stops.status().ok());  // acknowledged whether it ended any or not
  models.executor->Run();
}

TEST(LlmModel, CancelTokenReachesTheExecutorAndEndsAsCancelled) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(Inputs({1, 2}, 20, {Bool("streaming", true)}));
  const auto cancel = request.cancel;
  models.llm->Infer(std::move(request), got.Handler());
  models.executor->Step();
  cancel->Cancel();
  EXPECT_THAT(models.executor->cancelled_ids, ElementsAre(1));
  models.executor->Step();
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(models.executor->num_active(), 0U);
  EXPECT_EQ(models.llm->statistics().Snapshot().cancel.count, 1U);
}

TEST(LlmModel, ARequestCancelledBeforehandIsNotStarted) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(Inputs({1, 2}, 20));
  request.cancel->Cancel();
  models.llm->Infer(std::move(request), got.Handler());
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(models.executor->num_active(), 0U);
}

TEST(LlmModel, PrioritiesFollowTheConfiguredLevels) {
  auto config = LlmConfig({.max_batch_size = 8});
  config.mutable_dynamic_batching()->set_priority_levels(3);
  config.mutable_dynamic_batching()->set_default_priority_level(2);
  const auto executor = std::make_shared<FakeExecutor>();
  LlmModel model(config, "1", {.steps = nullptr, .executor = executor, .end_ids = {}}, {});
  Collector got;
  for (const auto& [level, priority] : std::vector<std::pair<uint64_t, float>>{
           {1, 1.0F}, {2, 0.5F}, {3, 0.0F}, {0, 0.5F}, {9, 0.5F}}) {
    Request request = MakeRequest(Inputs({1}, 1));
    request.priority = level;
    model.Infer(std::move(request), got.Handler());
    EXPECT_EQ(executor->last_request.priority, priority) << level;
  }
  executor->Run();
}

TEST(LlmModel, HealthAndWaitingRequestsAreTheExecutors) {
  TestModels models;
  EXPECT_TRUE(models.llm->ready());
  models.executor->is_healthy = false;
  EXPECT_FALSE(models.llm->ready());
  Collector got;
  models.llm->Infer(MakeRequest(Inputs({1}, 2)), got.Handler());
  EXPECT_EQ(models.llm->statistics().Snapshot().pending_requests, 1U);
  models.executor->Run();
  EXPECT_EQ(models.llm->statistics().Snapshot().pending_requests, 0U);
  EXPECT_EQ(models.llm->statistics().Snapshot().success.count, 1U);
}

}  // namespace
}  // namespace inflight::serving
