// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/pipeline_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "contract/tensor_values.h"
#include "inflight/guide.h"
#include "serving/pipelines/text_call.h"
#include "serving/testing/test_models.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Tensor> Inputs(const std::string& text, int max_tokens, std::vector<Tensor> more = {}) {
  std::vector<Tensor> inputs = {Text("text_input", {text}), Int("max_tokens", max_tokens)};
  for (Tensor& tensor : more) inputs.push_back(std::move(tensor));
  return inputs;
}

// The prompt without its <s>, over and over: text that a test can foresee.
TokenId EchoText(const inflight::Request& request, int position) {
  const auto size = request.input_ids.size() - 1;
  return request.input_ids[1 + static_cast<size_t>(position) % size];
}

TEST(Ensemble, TextInTextOut) {
  TestModels models;
  models.executor->generate = EchoText;
  Collector got;
  models.ensemble->Infer(MakeRequest(Inputs("hello ", 8), "e"), got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 1U);
  ASSERT_TRUE(got.status().ok()) << got.status().ToString();
  EXPECT_EQ(got.Joined(), "hello he");
  EXPECT_EQ(got.last().model_name, "ensemble");
  EXPECT_EQ(got.last().id, "e");
  EXPECT_THAT(Collector::Find(got.last(), "text_output")->shape, ElementsAre(1));
  EXPECT_THAT(models.executor->last_request.end_ids, ElementsAre(257));
  EXPECT_EQ(std::get<int64_t>(got.last().parameters.at("sequence_id")), 0);
  EXPECT_FALSE(std::get<bool>(got.last().parameters.at("sequence_start")));
}

TEST(Ensemble, UnsentOptionsAnswerWithZeros) {
  TestModels models;
  Collector got;
  models.ensemble->Infer(MakeRequest(Inputs("ab", 1)), got.Handler());
  models.executor->Run();
  EXPECT_THAT(Collector::Find(got.last(), "cum_log_probs")->shape, ElementsAre(1, 1));
  EXPECT_THAT(Collector::Find(got.last(), "output_log_probs")->shape, ElementsAre(1, 1, 3));
  EXPECT_THAT(Collector::Find(got.last(), "context_logits")->shape, ElementsAre(1, 1, 1));
  EXPECT_THAT(Collector::Find(got.last(), "generation_logits")->shape, ElementsAre(1, 1, 1, 1));
}

TEST(Ensemble, StreamedChunksJoinToTheWholeAnswerAndNeverSplitACharacter) {
  const std::string prompt = "a\u00e9\u4e2d\U0001F600 z";  // 1 to 4 bytes, one byte a token
  for (int max_tokens = 1; max_tokens < 20; ++max_tokens) {
    TestModels models;
    models.executor->generate = EchoText;
    Collector whole;
    Collector streamed;
    models.ensemble->Infer(MakeRequest(Inputs(prompt, max_tokens)), whole.Handler());
    models.ensemble->Infer(MakeRequest(Inputs(prompt, max_tokens, {Bool("stream", true)})),
                           streamed.Handler());
    models.executor->Run();
    EXPECT_EQ(streamed.responses().size(), static_cast<size_t>(max_tokens));
    EXPECT_EQ(streamed.Joined(), whole.Joined()) << max_tokens;
    for (const Response& response : streamed.responses()) {
      const auto chunk = Collector::Find(response, "text_output")->Strings();
      EXPECT_TRUE(models.preprocessing->tokenizer().Encode(chunk->front(), false).ok())
          << "not UTF-8";
    }
  }
}

TEST(Ensemble, PromptComesFirstWhenItIsIncluded) {
  TestModels models({.max_batch_size = 8, .exclude_input_in_output = false});
  models.executor->generate = EchoText;
  Collector whole;
  Collector streamed;
  models.ensemble->Infer(MakeRequest(Inputs("abc", 2)), whole.Handler());
  models.ensemble->Infer(MakeRequest(Inputs("abc", 2, {Bool("stream", true)})), streamed.Handler());
  models.executor->Run();
  EXPECT_EQ(whole.Joined(), "abcab");
  EXPECT_EQ(streamed.Joined(), "ab");
}

// The second one needs no thread of the pool: it is there when Infer returns.
TEST(Ensemble, AGuideIsMadeOnTheTextPoolOnceAndReachesTheExecutor) {
  TestModels models;
  Collector got;
  const auto ask = [&] {
    models.ensemble->Infer(MakeRequest(Inputs("x", 1,
                                              {Text("guided_decoding_guide_type", {"regex"}),
                                               Text("guided_decoding_guide", {"[ab]"})})),
                           got.Handler());
  };
  ask();
  while (models.executor->num_active() == 0) std::this_thread::yield();
  const auto guide = models.executor->last_request.guide;
  ASSERT_NE(guide, nullptr);
  EXPECT_EQ(guide->num_tokens(), 258);
  models.executor->Run();
  ask();
  EXPECT_EQ(models.executor->num_active(), 1U);
  EXPECT_EQ(models.executor->last_request.guide, guide);
  models.executor->Run();
}

TEST(Ensemble, AWrongGuideIsNamedByItsTensor) {
  TestModels models;
  Collector got;
  models.ensemble->Infer(MakeRequest(Inputs("x", 1,
                                            {Text("guided_decoding_guide_type", {"regex"}),
                                             Text("guided_decoding_guide", {"(a"})})),
                         got.Handler());
  got.WaitFinal();
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(got.status().field(), "guided_decoding_guide");
  EXPECT_EQ(models.executor->num_active(), 0U);
}

TEST(Ensemble, EveryParameterReachesTheExecutor) {
  TestModels models;
  Collector got;
  const uint64_t seed = 77;
  models.ensemble->Infer(
      MakeRequest(Inputs("x", 4,
                         {Int("end_id", 65),
                          Int("pad_id", 0),
                          Int("top_k", 3),
                          Float("top_p", 0.5F),
                          Float("temperature", 0.25F),
                          Float("repetition_penalty", 1.5F),
                          Float("presence_penalty", 0.1F),
                          Float("frequency_penalty", 0.2F),
                          Float("length_penalty", 1.0F),
                          Tensor::FromValues<uint64_t>("random_seed", DataType::kUint64, {1, 1},
                                                       std::span<const uint64_t>(&seed, 1)),
                          Bool("return_log_probs", true),
                          Int("beam_width", 1),
                          Text("stop_words", {"st", "op"}),
                          Text("bad_words", {"ba", "", "d"}),
                          Int("min_length", 3),
                          Float("min_p", 0.125F),
                          Int("prompt_ignore_length", 2),
                          Int("no_repeat_ngram_size", 4),
                          Float("top_p_min", 0.5F),
                          Float("top_p_decay", 0.75F),
                          Int("top_p_reset_ids", 9),
                          Bool("early_stopping", false),
                          Float("beam_search_diversity_rate", 2.0F),
                          Text("embedding_bias_words", {"z"}),
                          Float("embedding_bias_weights", -2.0F)})),
      got.Handler());
  const inflight::Request request = models.executor->last_request;
  EXPECT_THAT(request.input_ids, ElementsAre(256, 'x'));
  EXPECT_EQ(request.max_tokens, 4);
  EXPECT_THAT(request.end_ids, ElementsAre(65));
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.sampling.top_p, 0.5F);
  EXPECT_EQ(request.sampling.temperature, 0.25F);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(request.sampling.presence_penalty, 0.1F);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.2F);
  EXPECT_EQ(request.sampling.seed, 77U);
  EXPECT_TRUE(request.output.return_log_probs);
  EXPECT_THAT(request.stop_words, ElementsAre(ElementsAre('s', 't'), ElementsAre('o', 'p')));
  EXPECT_THAT(request.bad_words, ElementsAre(ElementsAre('b', 'a'), ElementsAre('d')));
  EXPECT_THAT(request.bad_texts->banned, ElementsAre('d'));  // bytes are the tokens
  ASSERT_EQ(request.bad_texts->completions.size(), 1U);
  const BadTexts::Completion behind_b = request.bad_texts->completions[0];
  EXPECT_EQ(request.bad_texts->texts.substr(behind_b.begin, behind_b.size), "b");
  EXPECT_EQ(behind_b.last - behind_b.first, 1);
  EXPECT_EQ(request.bad_texts->tokens->sorted[static_cast<size_t>(behind_b.first)], 'a');
  EXPECT_EQ(request.sampling.min_tokens, 3);
  EXPECT_EQ(request.sampling.min_p, 0.125F);
  EXPECT_EQ(request.sampling.prompt_ignore_length, 2);
  EXPECT_EQ(request.sampling.no_repeat_ngram_size, 4);
  EXPECT_EQ(request.sampling.top_p_min, 0.5F);
  EXPECT_EQ(request.sampling.top_p_decay, 0.75F);
  EXPECT_EQ(request.sampling.top_p_reset_id, 9);
  EXPECT_EQ(request.sampling.early_stopping, 0);
  EXPECT_EQ(request.sampling.beam_search_diversity_rate, 2.0F);
  std::vector<float> bias(300);
  bias['z'] = -2.0F;
  EXPECT_EQ(*request.embedding_bias, bias);
  models.executor->Run();
  EXPECT_THAT(Collector::Find(got.last(), "output_log_probs")->shape, ElementsAre(1, 1, 4));
  EXPECT_EQ(*contract::ReadFloat(*Collector::Find(got.last(), "cum_log_probs")), -2.0F);
}

TEST(Ensemble, LogitsAndFactsAreSentWhenAsked) {
  TestModels models;
  Collector got;
  models.ensemble->Infer(
      MakeRequest(
          Inputs("ab", 2,
                 {Bool("return_context_logits", true), Bool("return_generation_logits", true),
                  Bool("return_num_input_tokens", true), Bool("return_num_output_tokens", true)})),
      got.Handler());
  models.executor->Run();
  ASSERT_TRUE(got.status().ok()) << got.status().ToString();
  const auto find = [&](const char* output) { return Collector::Find(got.last(), output); };
  EXPECT_THAT(find("context_logits")->shape, ElementsAre(1, 3, 300));
  EXPECT_THAT(find("generation_logits")->shape, ElementsAre(1, 1, 2, 300));
  EXPECT_EQ(*contract::ReadInt32(*find("num_input_tokens")), 3);
  EXPECT_EQ(*contract::ReadInt32(*find("num_output_tokens")), 2);
}

TEST(Ensemble, StreamedLogitsAreThoseOfTheChunkAndThePromptsComeOnce) {
  TestModels models;
  Collector got;
  models.ensemble->Infer(
      MakeRequest(Inputs("ab", 2,
                         {Bool("return_context_logits", true),
                          Bool("return_generation_logits", true), Bool("stream", true)})),
      got.Handler());
  models.executor->Run();
  ASSERT_EQ(got.responses().size(), 2U);
  const auto shape = [&](size_t i, const char* output) {
    return Collector::Find(got.responses()[i], output)->shape;
  };
  EXPECT_THAT(shape(0, "context_logits"), ElementsAre(1, 3, 300));
  EXPECT_THAT(shape(1, "context_logits"), ElementsAre(1, 1, 1)) << "a dummy";
  EXPECT_THAT(shape(0, "generation_logits"), ElementsAre(1, 1, 1, 300));
  EXPECT_THAT(shape(1, "generation_logits"), ElementsAre(1, 1, 1, 300));
}

TEST(Ensemble, ATextThatAStopWordCutEndedForIt) {
  for (const bool streams : {true, false}) {
    TestModels models;
    models.executor->generate = EchoText;
    Collector cut;
    Collector whole;
    models.ensemble->Infer(MakeRequest(Inputs("abcdef", 4,
                                              {Bool("stream", streams), Text("stop_words", {"bc"}),
                                               Bool("return_finish_reason", true)})),
                           cut.Handler());
    models.ensemble->Infer(
        MakeRequest(
            Inputs("abcdef", 4, {Bool("stream", streams), Bool("return_finish_reason", true)})),
        whole.Handler());
    models.executor->Run();
    EXPECT_EQ(cut.Joined("finish_reason"), "stop_words") << "in the last response alone";
    EXPECT_EQ(whole.Joined("finish_reason"), "length");
  }
}

// The byte tokenizer cuts every word into bytes: the executor is told of ids {"cd"} of "c", "d".
std::vector<std::string> Texts(const Collector& got) {
  std::vector<std::string> texts;
  for (const Response& response : got.responses()) {
    const Tensor* text = Collector::Find(response, "text_output");
    if (text != nullptr) texts.emplace_back(text->Strings()->front());
  }
  return texts;
}

TEST(Ensemble, AStreamEndsAfterAStopTextAndGeneratesNoMore) {
  TestModels models;
  models.executor->generate = EchoText;
  Collector got;
  models.ensemble->Infer(
      MakeRequest(Inputs("abcdef", 40, {Bool("stream", true), Text("stop_words", {"zz", "cd"})})),
      got.Handler());
  models.executor->Run();
  EXPECT_THAT(Texts(got), ElementsAre("a", "b", "c", "d", ""));
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.status().ok());
  EXPECT_EQ(models.executor->cancelled_ids.size(), 1U);
}

TEST(Ensemble, AnAnswerEndsAfterAStopTextBehindThePrompt) {
  for (const bool exclude : {true, false}) {
    TestModels models({.max_batch_size = 8, .exclude_input_in_output = exclude});
    models.executor->generate = EchoText;
    Collector got;
    models.ensemble->Infer(MakeRequest(Inputs("abcdef", 20, {Text("stop_words", {"cd"})})),
                           got.Handler());
    models.executor->Run();
    EXPECT_EQ(got.Joined(), exclude ? "abcd" : "abcdefabcd");
  }
}

TEST(Ensemble, ATrimmedStopTextIsHeldBackAndLeftOut) {
  for (const bool streams : {true, false}) {
    TestModels models({.max_batch_size = 8, .exclude_input_in_output = true});
    models.executor->generate = EchoText;
    Collector got;
    Request request = MakeRequest(
        Inputs("abcxcd", 40, {Bool("stream", streams), Text("stop_words", {"bcy", "cd"})}));
    request.parameters["include_stop_str_in_output"] = false;
    models.ensemble->Infer(std::move(request), got.Handler());
    models.executor->Run();
    if (streams) {
      EXPECT_THAT(Texts(got), ElementsAre("a", "", "", "bcx", "", "", ""));
    } else {
      EXPECT_EQ(got.Joined(), "abcx");
    }
    EXPECT_TRUE(got.status().ok()) << got.status().ToString();
  }
}

TEST(Ensemble, WhatIsHeldBackComesAtTheEnd) {
  TestModels models;
  models.executor->generate = EchoText;
  Collector got;
  Request request =
      MakeRequest(Inputs("abc", 3, {Bool("stream", true), Text("stop_words", {"cd"})}));
  request.parameters["include_stop_str_in_output"] = false;
  models.ensemble->Infer(std::move(request), got.Handler());
  models.executor->Run();
  EXPECT_EQ(got.Joined(), "abc");
}

TEST(Ensemble, WhetherStopWordsStayIsABoolean) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(Inputs("abc", 3));
  request.parameters["include_stop_str_in_output"] = "no";
  models.ensemble->Infer(std::move(request), got.Handler());
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(got.status().message(), testing::HasSubstr("include_stop_str_in_output: "));
}

TEST(Ensemble, EndIdMinusOneMeansNone) {
  TestModels models;
  Collector got;
  models.ensemble->Infer(MakeRequest(Inputs("x", 4, {Int("end_id", -1)})), got.Handler());
  EXPECT_TRUE(models.executor->last_request.end_ids.empty());
  models.executor->Run();
}

struct Refusal {
  Tensor input;
  StatusCode code;
  const char* message;
};

TEST(Ensemble, RefusalsNameTheTensorAsTheClientCallsIt) {
  TestModels models;
  const std::vector<Refusal> cases = {
      {Int("beam_width", 0), StatusCode::kInvalidArgument, "beam_width: got 0, must be at least 1"},
      {Int("min_length", -2), StatusCode::kInvalidArgument,
       "min_length: got -2, must be at least 0"},
      {Text("decoder_text_input", {"x"}), StatusCode::kUnimplemented,
       "decoder_text_input is not supported; leave it out or send it empty"},
      {Int("top_k", -1), StatusCode::kInvalidArgument, "top_k: got -1, must be at least 0"},
      {Text("bad_words", {std::string(70'000, 'x')}), StatusCode::kInvalidArgument,
       "bad_words: got words of 70000 bytes in all, at most 65536 are allowed (send fewer)"},
      {Float("temperature", -0.5F), StatusCode::kInvalidArgument, "temperature: got -0.5"},
      {Int("end_id", 300), StatusCode::kInvalidArgument, "EndId (300) is not within vocabulary"},
  };
  for (const Refusal& refusal : cases) {
    Collector got;
    models.ensemble->Infer(MakeRequest(Inputs("x", 4, {refusal.input})), got.Handler());
    got.WaitFinal();
    EXPECT_EQ(got.num_final(), 1) << refusal.message;
    EXPECT_EQ(got.status().code(), refusal.code) << refusal.message;
    EXPECT_THAT(got.status().message(), HasSubstr("in ensemble 'ensemble', "));
    EXPECT_THAT(got.status().message(), HasSubstr(refusal.message));
  }
  EXPECT_EQ(models.ensemble->statistics().Snapshot().failures.at(FailureReason::kOther),
            cases.size());
}

TEST(Ensemble, BadPromptsAreErrors) {
  TestModels models;
  const std::vector<std::pair<std::vector<Tensor>, const char*>> cases = {
      {Inputs("a\xc3", 4), "text_input"},
      {Inputs(std::string(40, 'x'), 4), "Prompt length (41) exceeds maximum input length (32)."},
      {Inputs("x", 0), "max_tokens: got 0, must be at least 1"},
      {{Int("max_tokens", 4)}, "QUERY is not present in the request"},
      {{Text("text_input", {"x"})}, "request_output_len is not present in the request"},
      {{Text("text_input", {}), Int("max_tokens", 4)}, "text_input: got no text"},
  };
  for (const auto& [inputs, message] : cases) {
    Collector got;
    models.ensemble->Infer(MakeRequest(inputs), got.Handler());
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(got.status().message(), HasSubstr(message));
  }
  EXPECT_EQ(models.executor->num_active(), 0U);
}

TEST(Ensemble, LongPromptsAreEncodedOnTheTextPool) {
  ExecutorLimits limits = FakeExecutor::SmallLimits();
  limits.max_seq_len = limits.max_input_len = 100'000;
  TestModels models({.max_batch_size = 8}, /*threaded=*/true, limits);
  Collector got;
  models.ensemble->Infer(MakeRequest(Inputs(std::string(kInlineTextBytes + 1, 'x'), 3)),
                         got.Handler());
  got.WaitFinal();
  EXPECT_EQ(got.Joined(), "xx");  // <s>, which is special, then two of the prompt
}

TEST(Ensemble, CancelWhileItStreamsEndsItOnce) {
  TestModels models;
  Collector got;
  Request request = MakeRequest(Inputs("ab", 20, {Bool("stream", true)}));
  const auto cancel = request.cancel;
  models.ensemble->Infer(std::move(request), got.Handler());
  models.executor->Step();
  cancel->Cancel();
  models.executor->Run();
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(models.ensemble->statistics().Snapshot().cancel.count, 1U);
  EXPECT_EQ(models.ensemble->statistics().Snapshot().failures.at(FailureReason::kOther), 1U);
  EXPECT_EQ(models.llm->statistics().Snapshot().failures.at(FailureReason::kCanceled), 1U);
}

TEST(Ensemble, MembersAreCountedToo) {
  TestModels models;
  Collector got;
  models.ensemble->Infer(MakeRequest(Inputs("ab", 5, {Bool("stream", true)})), got.Handler());
  models.executor->Run();
  EXPECT_EQ(models.preprocessing->statistics().Snapshot().success.count, 1U);
  EXPECT_EQ(models.llm->statistics().Snapshot().success.count, 1U);
  EXPECT_EQ(models.postprocessing->statistics().Snapshot().success.count, 5U);
  const StatisticsSnapshot ensemble = models.ensemble->statistics().Snapshot();
  EXPECT_EQ(ensemble.success.count, 1U);
  EXPECT_EQ(ensemble.execution_count, 1U);
  EXPECT_EQ(ensemble.ttft_ms.count, 1U);
  EXPECT_EQ(ensemble.itl_ms.count, 4U);
}

TEST(Ensemble, FailuresOfTheExecutorEndTheStream) {
  TestModels models;
  Collector got;
  models.ensemble->Infer(MakeRequest(Inputs("ab", 5, {Bool("stream", true)})), got.Handler());
  models.executor->Step();
  models.executor->fail_with = Internal("the device is gone");
  models.executor->Step();
  EXPECT_EQ(got.responses().size(), 2U);
  EXPECT_EQ(got.status().code(), StatusCode::kInternal);
  EXPECT_THAT(got.status().message(), HasSubstr("the device is gone"));
}

TEST(Ensemble, OtherGraphsAreRefused) {
  TestModels models;
  const PipelineMembers members = {models.preprocessing, models.llm, models.postprocessing};
  auto fed_elsewhere = EnsembleConfig({.max_batch_size = 8});
  (*fed_elsewhere.mutable_ensemble_scheduling()
        ->mutable_step(1)
        ->mutable_input_map())["input_ids"] = "_PREPROCESSOR_END_ID";
  EXPECT_EQ(PipelineModel::Create(PipelineModel::Kind::kEnsemble, fed_elsewhere, "1", members)
                .status()
                .code(),
            StatusCode::kUnimplemented);
  auto unused = EnsembleConfig({.max_batch_size = 8});
  unused.add_input()->set_name("extra");
  EXPECT_THAT(PipelineModel::Create(PipelineModel::Kind::kEnsemble, unused, "1", members)
                  .status()
                  .message(),
              HasSubstr("'extra' feeds no step"));
  auto unwritten = EnsembleConfig({.max_batch_size = 8});
  unwritten.add_output()->set_name("extra");
  EXPECT_THAT(PipelineModel::Create(PipelineModel::Kind::kEnsemble, unwritten, "1", members)
                  .status()
                  .message(),
              HasSubstr("'extra' is written by no step"));
}

// The graph of 0.7: end ids go from the client straight to the LLM, and there is no default.
TEST(Ensemble, WithoutADefaultEndIdGenerationRunsOn) {
  TestModels models;
  auto config = EnsembleConfig({.max_batch_size = 8});
  auto& step = *config.mutable_ensemble_scheduling()->mutable_step(1);
  (*step.mutable_input_map())["end_id"] = "end_id";
  const auto ensemble =
      PipelineModel::Create(PipelineModel::Kind::kEnsemble, config, "1",
                            {models.preprocessing, models.llm, models.postprocessing});
  ASSERT_TRUE(ensemble.ok()) << ensemble.status().ToString();
  Collector got;
  (*ensemble)->Infer(MakeRequest(Inputs("x", 2)), got.Handler());
  EXPECT_TRUE(models.executor->last_request.end_ids.empty());
  models.executor->Run();
}

}  // namespace
}  // namespace inflight::serving
