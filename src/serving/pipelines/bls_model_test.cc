// SPDX-License-Identifier: Apache-2.0
// PipelineModel as `tensorrt_llm_bls`: what differs from the ensemble.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "base/check.h"
#include "serving/pipelines/pipeline_model.h"
#include "serving/testing/test_models.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The ensemble's tensors, as BLS of the same release has them.
::inference::ModelConfig BlsConfig(const GeneratedConfigOptions& options) {
  ::inference::ModelConfig config = EnsembleConfig(options);
  config.set_name("tensorrt_llm_bls");
  config.clear_platform();
  config.set_backend("python");
  config.clear_ensemble_scheduling();
  return config;
}

struct BlsModels : TestModels {
  std::shared_ptr<PipelineModel> bls;

  explicit BlsModels(const GeneratedConfigOptions& options = {.max_batch_size = 8},
                     const PipelineOptions& bls_options = {},
                     const ExecutorLimits& limits = FakeExecutor::SmallLimits())
      : TestModels(options, /*threaded=*/false, limits) {
    ::inference::ModelConfig config = BlsConfig(options);
    for (const auto& [name, type] : {std::pair{"num_draft_tokens", ::inference::TYPE_INT32},
                                     {"use_draft_logits", ::inference::TYPE_BOOL}}) {
      auto& input = *config.add_input();
      input.set_name(name);
      input.set_data_type(type);
      input.add_dims(1);
      input.set_optional(true);
    }
    auto made = PipelineModel::CreateBls(
        std::move(config), "1",
        [this]() -> Result<PipelineMembers> {
          if (is_missing) return Unavailable("Model 'preprocessing' is not ready");
          return PipelineMembers{.preprocessing = preprocessing,
                                 .llm = llm,
                                 .postprocessing = postprocessing,
                                 .draft = draft};
        },
        bls_options);
    CHECK(made.ok());
    bls = *made;
  }

  bool is_missing = false;  // a member
  std::shared_ptr<LlmModel> draft;
};

std::vector<Tensor> Inputs(int max_tokens, std::vector<Tensor> more = {}) {
  std::vector<Tensor> inputs = {Text("text_input", {"ab"}), Int("max_tokens", max_tokens)};
  for (Tensor& tensor : more) inputs.push_back(std::move(tensor));
  return inputs;
}

TEST(Bls, NamesOfInputsReachTheLlmAsUpstreamsScriptMapsThem) {
  BlsModels models;
  Collector got;
  models.bls->Infer(
      MakeRequest(Inputs(4, {Int("top_k", 3), Float("top_p", 0.5F), Float("temperature", 0.25F),
                             Int("end_id", 7), Text("stop_words", {"zz"}), Bool("stream", true)})),
      got.Handler());
  const inflight::Request& request = models.executor->last_request;
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.sampling.top_p, 0.5F);
  EXPECT_EQ(request.sampling.temperature, 0.25F);
  EXPECT_EQ(request.end_ids, std::vector<TokenId>({7}));
  EXPECT_EQ(request.stop_words, std::vector<std::vector<TokenId>>({ByteIds("zz")}));
  EXPECT_TRUE(request.streaming);
  EXPECT_EQ(request.max_tokens, 4);
  models.executor->Run();
}

TEST(Bls, AccumulatedTextsGrowByWholeCharacters) {
  BlsModels models({.max_batch_size = 8}, {.accumulate_tokens = true});
  const std::string answer = "a\u00e9b";  // the second character has two tokens
  models.executor->generate = [&](const inflight::Request&, int position) {
    return static_cast<TokenId>(static_cast<unsigned char>(answer[static_cast<size_t>(position)]));
  };
  Collector streamed;
  models.bls->Infer(MakeRequest(Inputs(4, {Bool("stream", true)})), streamed.Handler());
  models.executor->Run();
  std::vector<std::string> texts;
  for (const Response& response : streamed.responses()) {
    if (response.outputs.empty()) continue;
    texts.emplace_back(Collector::Find(response, "text_output")->Strings()->front());
  }
  EXPECT_THAT(texts, ElementsAre("a", "a", "a\u00e9", answer));
  Collector whole;
  models.bls->Infer(MakeRequest(Inputs(4)), whole.Handler());
  models.executor->Run();
  EXPECT_EQ(whole.Joined(), answer);
}

TEST(Bls, AccumulatedTextsEndWithTheirStopText) {
  BlsModels models({.max_batch_size = 8}, {.accumulate_tokens = true});
  models.executor->generate = [&](const inflight::Request&, int position) {
    return static_cast<TokenId>('a' + position);
  };
  Collector got;
  models.bls->Infer(MakeRequest(Inputs(20, {Bool("stream", true), Text("stop_words", {"bc"})})),
                    got.Handler());
  models.executor->Run();
  std::vector<std::string> texts;
  for (const Response& response : got.responses()) {
    if (response.outputs.empty()) continue;
    texts.emplace_back(Collector::Find(response, "text_output")->Strings()->front());
  }
  EXPECT_THAT(texts, ElementsAre("a", "ab", "abc", "abc"));
}

// A draft model that proposes what the LLM makes: the alphabet, by place. A prompt "ab" has three
// tokens.
struct TwoModels : BlsModels {
  static ExecutorLimits Limits(int vocab_size = 300) {
    ExecutorLimits limits = FakeExecutor::SmallLimits();
    limits.vocab_size = vocab_size;
    limits.max_draft_len = 6;
    return limits;
  }
  explicit TwoModels(int draft_vocab_size = 300)
      : BlsModels({.max_batch_size = 8}, {}, Limits()),
        proposing({.max_batch_size = 8}, /*threaded=*/false, Limits(draft_vocab_size)) {
    draft = proposing.llm;
    executor->generate = proposing.executor->generate = [](const inflight::Request& request,
                                                           int position) {
      return static_cast<TokenId>('a' + request.input_ids.size() + static_cast<size_t>(position));
    };
  }
  // What each model was asked for, until nobody waits.
  void Run() {
    while (executor->num_active() + proposing.executor->num_active() > 0) {
      for (FakeExecutor* one : {executor.get(), proposing.executor.get()}) {
        if (one->num_active() == 0) continue;
        (one == executor.get() ? judged : proposed).push_back(one->last_request);
        one->Run();
      }
    }
  }
  TestModels proposing;
  std::vector<inflight::Request> judged, proposed;
};

TEST(Bls, TwoModelsTakeTurns) {
  TwoModels models;
  Collector got;
  models.bls->Infer(MakeRequest(Inputs(10, {Int("num_draft_tokens", 4), Int("min_length", 7)})),
                    got.Handler());
  models.Run();
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.status().ok()) << got.status().ToString();
  EXPECT_EQ(got.Joined(), "defghijklm");
  // Of ten tokens each round makes four drafts and one more.
  ASSERT_EQ(models.proposed.size(), 2U);
  ASSERT_EQ(models.judged.size(), 2U);
  const auto prompt = models.proposed[0].input_ids;
  EXPECT_EQ(models.proposed[0].max_tokens, 4);
  EXPECT_EQ(models.judged[0].input_ids, prompt);
  EXPECT_EQ(models.judged[0].draft_ids.size(), 4U);
  EXPECT_EQ(models.judged[0].max_tokens, 5);
  EXPECT_EQ(models.judged[0].sampling.min_tokens, 7);
  EXPECT_EQ(models.judged[1].input_ids.size(), prompt.size() + 5);
  EXPECT_EQ(models.judged[1].sampling.min_tokens, 2) << "what is left of it";
}

TEST(Bls, AGuideGoesOnBehindWhatEarlierRoundsMade) {
  TwoModels models;
  Collector got;
  models.bls->Infer(MakeRequest(Inputs(10, {Int("num_draft_tokens", 4),
                                            Text("guided_decoding_guide_type", {"regex"}),
                                            Text("guided_decoding_guide", {"defghijklm"})})),
                    got.Handler());
  while (models.proposing.executor->num_active() == 0) std::this_thread::yield();
  models.Run();
  EXPECT_EQ(got.Joined(), "defghijklm");
  ASSERT_EQ(models.judged.size(), 2U);
  for (const auto& [round, next] : {std::pair{size_t{0}, 'd'}, {size_t{1}, 'i'}}) {
    for (const inflight::Request& asked : {models.proposed[round], models.judged[round]}) {
      ASSERT_NE(asked.guide, nullptr);
      EXPECT_TRUE(asked.guide->Begin()->Accept(next));
      EXPECT_FALSE(asked.guide->Begin()->Accept(next + 1));
    }
  }
}

// What it could not go on with is nothing to the LLM, which goes on alone.
TEST(Bls, ADraftModelThatIsStuckInTheGuideProposesNothing) {
  TwoModels models;
  Collector got;
  models.bls->Infer(MakeRequest(Inputs(3, {Int("num_draft_tokens", 2)})), got.Handler());
  models.proposing.executor->fail_with = InvalidArgument("guide", "no token may come next");
  models.Run();
  EXPECT_TRUE(got.status().ok()) << got.status().ToString();
  EXPECT_EQ(got.Joined(), "def");
}

TEST(Bls, TheLastTokenNeedsNoDraft) {
  TwoModels models;
  Collector got;
  models.bls->Infer(MakeRequest(Inputs(1, {Int("num_draft_tokens", 4)})), got.Handler());
  models.Run();
  EXPECT_EQ(got.Joined(), "d");
  EXPECT_TRUE(models.proposed.empty());
  ASSERT_EQ(models.judged.size(), 1U);
  EXPECT_TRUE(models.judged[0].draft_ids.empty());
}

TEST(Bls, TwoModelsStreamAResponseARound) {
  TwoModels models;
  Collector got;
  models.bls->Infer(MakeRequest(Inputs(7, {Int("num_draft_tokens", 2), Bool("stream", true)})),
                    got.Handler());
  models.Run();
  EXPECT_EQ(got.num_final(), 1);
  std::vector<std::string> texts;
  for (const Response& response : got.responses()) {
    if (response.outputs.empty()) continue;
    texts.emplace_back(Collector::Find(response, "text_output")->Strings()->front());
  }
  EXPECT_THAT(texts, ElementsAre("def", "ghi", "j"));
}

TEST(Bls, AModelThatFailsEndsTheRounds) {
  for (const bool is_draft : {true, false}) {
    TwoModels models;
    Collector got;
    models.bls->Infer(MakeRequest(Inputs(9, {Int("num_draft_tokens", 2)})), got.Handler());
    (is_draft ? models.proposing.executor : models.executor)->fail_with = Internal("broken");
    models.Run();
    EXPECT_EQ(got.num_final(), 1);
    EXPECT_THAT(got.status().message(), HasSubstr("broken"));
  }
}

TEST(Bls, ACancelEndsTheRounds) {
  TwoModels models;
  Collector got;
  Request request = MakeRequest(Inputs(20, {Int("num_draft_tokens", 2)}));
  const auto cancel = request.cancel;
  models.bls->Infer(std::move(request), got.Handler());
  models.proposing.executor->Run();
  cancel->Cancel();
  models.Run();
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(models.proposed.empty()) << "no further round";
}

// By its id, whichever model works on it. Even turns are the draft model's.
TEST(Bls, AStopEndsTheRoundsWithTheAnswerSoFar) {
  for (const auto& [num_turns, answer] : {std::pair{0, ""}, {1, "d"}, {2, "def"}, {3, "defg"}}) {
    TwoModels models;
    Collector got;
    models.bls->Infer(MakeRequest(Inputs(20, {Int("num_draft_tokens", 2)}), "r"), got.Handler());
    for (int turn = 0; turn < num_turns; ++turn) {
      (turn % 2 == 0 ? models.proposing.executor : models.executor)->Run();
    }
    if (num_turns % 2 == 1) models.executor->Step();
    Collector stop;
    models.llm->Infer(MakeRequest({Int("input_lengths", 1), Ids("input_ids", {0}),
                                   Int("request_output_len", 0), Bool("stop", true)},
                                  "r"),
                      stop.Handler());
    EXPECT_TRUE(stop.status().ok()) << stop.status().ToString();
    models.Run();
    EXPECT_EQ(got.num_final(), 1);
    EXPECT_TRUE(got.status().ok()) << got.status().ToString();
    EXPECT_EQ(got.Joined(), answer);
    EXPECT_LE(models.proposed.size() + models.judged.size(), 1U) << "no further round";
    EXPECT_TRUE(models.llm->active().Stop("r", {}).empty());
  }
}

TEST(Bls, RoundsAreRefusedWhereTheyCannotBe) {
  const auto error = [](TwoModels& models, std::vector<Tensor> more) {
    Collector got;
    models.bls->Infer(MakeRequest(Inputs(9, std::move(more))), got.Handler());
    models.Run();
    EXPECT_EQ(got.num_final(), 1);
    return got.status().message();
  };
  TwoModels models;
  EXPECT_THAT(error(models, {Int("num_draft_tokens", 7)}),
              HasSubstr("Draft tokens length (7) exceeds maximum draft tokens length (6)."));
  EXPECT_THAT(error(models, {Int("num_draft_tokens", 2), Bool("return_context_logits", true)}),
              HasSubstr("context logits are not supported with speculative decoding"));
  models.draft = nullptr;
  EXPECT_THAT(error(models, {Int("num_draft_tokens", 2)}),
              HasSubstr("cannot perform speculative decoding without draft model"));
  TwoModels others(299);
  EXPECT_THAT(error(others, {Int("num_draft_tokens", 2)}),
              HasSubstr("has a vocabulary of 299 tokens, 'tensorrt_llm' one of 300"));
}

TEST(Bls, ManyRequestsRunAtOnce) {
  BlsModels models;
  std::vector<Collector> got(6);
  for (Collector& collector : got) models.bls->Infer(MakeRequest(Inputs(3)), collector.Handler());
  EXPECT_EQ(models.executor->num_active(), 6U);
  for (int step = 0; step < 3; ++step) models.executor->Step();
  for (const Collector& collector : got) EXPECT_EQ(collector.num_final(), 1);
}

TEST(Bls, CancelWhileItStreamsEndsItOnce) {
  BlsModels models;
  Collector got;
  Request request = MakeRequest(Inputs(20, {Bool("stream", true)}));
  const auto cancel = request.cancel;
  models.bls->Infer(std::move(request), got.Handler());
  models.executor->Step();
  cancel->Cancel();
  models.executor->Run();
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
}

TEST(Bls, AFailureIsOneFinalResponseInTheExecutorsWords) {
  BlsModels models;
  Collector got;
  models.bls->Infer(MakeRequest(Inputs(5, {Bool("stream", true)})), got.Handler());
  models.executor->Step();
  models.executor->fail_with = Internal("the device is gone");
  models.executor->Step();
  EXPECT_EQ(got.responses().size(), 2U);
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_THAT(got.status().message(), HasSubstr("the device is gone"));
  EXPECT_THAT(got.status().message(), ::testing::Not(HasSubstr("in ensemble")));
}

TEST(Bls, ItsRequestsAndItsMembersAreCounted) {
  BlsModels models;
  Collector got;
  models.bls->Infer(MakeRequest(Inputs(5, {Bool("stream", true)})), got.Handler());
  models.executor->Run();
  EXPECT_EQ(got.responses().size(), 6U);  // five texts and the end
  EXPECT_EQ(models.bls->statistics().Snapshot().success.count, 1U);
  EXPECT_EQ(models.llm->statistics().Snapshot().success.count, 1U);
  EXPECT_EQ(models.preprocessing->statistics().Snapshot().success.count, 1U);
  EXPECT_EQ(models.postprocessing->statistics().Snapshot().success.count, 5U);
  EXPECT_EQ(models.ensemble->statistics().Snapshot().success.count, 0U);
}

TEST(Bls, AMissingMemberFailsTheRequestAndNotTheModel) {
  BlsModels models;
  models.is_missing = true;
  EXPECT_TRUE(models.bls->ready());
  Collector refused;
  models.bls->Infer(MakeRequest(Inputs(3)), refused.Handler());
  EXPECT_EQ(refused.num_final(), 1);
  EXPECT_EQ(refused.status(), Unavailable("Model 'preprocessing' is not ready"));
  EXPECT_EQ(models.bls->statistics().Snapshot().failures.at(FailureReason::kBackend), 1U);
  models.is_missing = false;
  Collector got;
  models.bls->Infer(MakeRequest(Inputs(3)), got.Handler());
  models.executor->Run();
  EXPECT_TRUE(got.status().ok());
}

TEST(Bls, AnInputThatNoReleaseHasIsRefusedWhenItIsSent) {
  const GeneratedConfigOptions options = {.max_batch_size = 8};
  BlsModels models(options);
  ::inference::ModelConfig config = BlsConfig(options);
  auto& input = *config.add_input();
  input.set_name("my_own");
  input.set_data_type(::inference::TYPE_INT32);
  input.add_dims(1);
  input.set_optional(true);
  const FindMembers find = [&] {
    return PipelineMembers{models.preprocessing, models.llm, models.postprocessing};
  };
  auto bls = PipelineModel::CreateBls(config, "1", find);
  ASSERT_TRUE(bls.ok());
  Collector got;
  (*bls)->Infer(MakeRequest(Inputs(1, {Int("my_own", 1)})), got.Handler());
  EXPECT_EQ(got.status(),
            Unimplemented("my_own is not supported; leave it out").WithField("my_own"));

  auto& output = *config.add_output();
  output.set_name("my_output");
  EXPECT_THAT(PipelineModel::CreateBls(config, "1", find).status().message(),
              HasSubstr("'my_output'"));
}

}  // namespace
}  // namespace inflight::serving
