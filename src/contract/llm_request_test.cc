// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "contract/model_tables.h"
#include "parameters/parameters.h"

namespace inflight::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Inputs of one request, under the LLM's names.
class Inputs {
 public:
  template <typename T>
  Inputs& Add(const char* name, DataType type, std::vector<int64_t> shape, std::vector<T> values) {
    tensors_.push_back(
        Tensor::FromValues<T>(name, type, std::move(shape), std::span<const T>(values)));
    return *this;
  }
  Inputs& Int(const char* name, int32_t value) {
    return Add<int32_t>(name, DataType::kInt32, {1, 1}, {value});
  }
  Inputs& Float(const char* name, float value) {
    return Add<float>(name, DataType::kFp32, {1, 1}, {value});
  }
  Inputs& Bool(const char* name, bool value) {
    return Add<uint8_t>(name, DataType::kBool, {1, 1}, {static_cast<uint8_t>(value)});
  }
  Inputs& Text(const char* name, const std::string& text) {
    tensors_.push_back(Tensor::FromStrings(name, {1, 1}, std::vector{text}));
    return *this;
  }
  Inputs& Ids(const char* name, std::vector<int32_t> ids) {
    const auto size = static_cast<int64_t>(ids.size());
    return Add<int32_t>(name, DataType::kInt32, {1, size}, std::move(ids));
  }

  Result<LlmRequest> Parse(const LlmRequestDefaults& defaults = {.decoupled = true},
                           const std::shared_ptr<AccountShare>& memory = {}) const {
    std::vector<NamedInput> named;
    for (const Tensor& tensor : tensors_) named.push_back({tensor.name, &tensor});
    return ParseLlmRequest(named, defaults, memory);
  }
  Status Error() const { return Parse().status(); }

 private:
  std::vector<Tensor> tensors_;
};

Inputs Minimal() {
  Inputs inputs;
  inputs.Ids("input_ids", {3, 4, 5}).Int("input_lengths", 3).Int("request_output_len", 7);
  return inputs;
}

const ExecutorLimits kLimits = {
    .vocab_size = 100, .max_batch_size = 4, .max_seq_len = 16, .max_input_len = 10};

TEST(LlmRequest, RequiredInputsAloneMakeAGreedyRequest) {
  const auto parsed = Minimal().Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const Request& request = parsed->request;
  EXPECT_THAT(request.input_ids, ElementsAre(3, 4, 5));
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_FALSE(request.streaming);
  EXPECT_TRUE(request.end_ids.empty());
  EXPECT_TRUE(request.stop_words.empty());
  EXPECT_FALSE(request.sampling.temperature.has_value());
  EXPECT_FALSE(request.sampling.top_k.has_value());
  EXPECT_TRUE(request.output.normalize_log_probs);
  EXPECT_FALSE(parsed->is_stop);
}

TEST(LlmRequest, EverySamplingTensorReachesItsField) {
  const auto parsed = Minimal()
                          .Float("temperature", 0.5F)
                          .Int("runtime_top_k", 4)
                          .Float("runtime_top_p", 0.9F)
                          .Float("repetition_penalty", 1.25F)
                          .Float("presence_penalty", -0.5F)
                          .Float("frequency_penalty", 0.75F)
                          .Add<uint64_t>("random_seed", DataType::kUint64, {1, 1}, {1ULL << 60})
                          .Int("end_id", 9)
                          .Bool("streaming", true)
                          .Bool("return_log_probs", true)
                          .Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const Request& request = parsed->request;
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_k, 4);
  EXPECT_EQ(request.sampling.top_p, 0.9F);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(request.sampling.presence_penalty, -0.5F);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.75F);
  EXPECT_EQ(request.sampling.seed, 1ULL << 60);
  EXPECT_THAT(request.end_ids, ElementsAre(9));
  EXPECT_TRUE(request.streaming);
  EXPECT_TRUE(request.output.return_log_probs);
}

TEST(LlmRequest, StopWordsAreRead) {
  const auto parsed =
      Minimal()
          .Add<int32_t>("stop_words_list", DataType::kInt32, {1, 2, 3}, {1, 2, 3, 1, 3, -1})
          .Parse();
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->request.stop_words, ElementsAre(ElementsAre(1), ElementsAre(2, 3)));
}

TEST(LlmRequest, WhatAnAnswerIsToHaveIsRead) {
  const auto logits =
      Minimal().Bool("return_context_logits", true).Bool("return_generation_logits", true).Parse();
  ASSERT_TRUE(logits.ok()) << logits.status().ToString();
  EXPECT_TRUE(logits->request.output.return_context_logits);
  EXPECT_TRUE(logits->request.output.return_generation_logits);
  const auto counts = Minimal()
                          .Bool("return_num_input_tokens", true)
                          .Bool("return_num_output_tokens", true)
                          .Parse();
  EXPECT_TRUE(counts->facts.num_input_tokens && counts->facts.num_output_tokens);
  EXPECT_FALSE(counts->facts.kv_cache_reuse_stats || counts->facts.perf_metrics);
  const auto stats = Minimal().Bool("return_kv_cache_reuse_stats", true).Parse();
  EXPECT_TRUE(stats->facts.kv_cache_reuse_stats && !stats->facts.perf_metrics);
  const auto perf = Minimal().Bool("return_perf_metrics", true).Parse();
  EXPECT_TRUE(perf->facts.kv_cache_reuse_stats && perf->facts.perf_metrics);
}

TEST(LlmRequest, ValuesThatAskForNothingAreAccepted) {
  const auto parsed = Minimal()
                          .Int("beam_width", 1)
                          .Int("end_id", -1)
                          .Int("pad_id", 0)
                          .Int("min_length", 0)
                          .Float("len_penalty", 1.0F)
                          .Float("runtime_top_p", 0.0F)
                          .Float("runtime_top_p_decay", 1.0F)
                          .Bool("return_context_logits", false)
                          .Bool("return_generation_logits", false)
                          .Bool("stop", false)
                          .Ids("decoder_input_ids", {0})
                          .Int("decoder_input_lengths", 1)
                          .Add<int32_t>("bad_words_list", DataType::kInt32, {1, 2, 1}, {0, -1})
                          .Add<int32_t>("stop_words_list", DataType::kInt32, {1, 2, 0}, {})
                          .Add<float>("embedding_bias", DataType::kFp32, {1, 0}, {})
                          .Add<int32_t>("draft_input_ids", DataType::kInt32, {1, 0}, {})
                          .Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_TRUE(parsed->request.end_ids.empty());
  EXPECT_FALSE(parsed->request.sampling.top_p.has_value());
  EXPECT_TRUE(parsed->request.bad_words.empty());
  EXPECT_EQ(parsed->request.embedding_bias, nullptr);
}

TEST(LlmRequest, BansAndBiasesAreRead) {
  const auto parsed =
      Minimal()
          .Add<int32_t>("bad_words_list", DataType::kInt32, {1, 2, 3}, {0, 2, 3, 1, 3, -1})
          .Add<float>("embedding_bias", DataType::kFp32, {1, 2}, {1.5F, -2.0F})
          .Int("min_length", 4)
          .Int("no_repeat_ngram_size", 3)
          .Float("runtime_top_p_decay", 0.5F)
          .Float("runtime_top_p_min", 0.25F)
          .Int("runtime_top_p_reset_ids", 9)
          .Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const Request& request = parsed->request;
  EXPECT_THAT(request.bad_words, ElementsAre(ElementsAre(0), ElementsAre(2, 3)));
  EXPECT_THAT(*request.embedding_bias, ElementsAre(1.5F, -2.0F));
  EXPECT_EQ(request.sampling.min_tokens, 4);
  EXPECT_EQ(request.sampling.no_repeat_ngram_size, 3);
  EXPECT_EQ(request.sampling.top_p_decay, 0.5F);
  EXPECT_EQ(request.sampling.top_p_min, 0.25F);
  EXPECT_EQ(request.sampling.top_p_reset_id, 9);
}

TEST(LlmRequest, LaterNamesMeanTheSame) {
  const auto parsed = Minimal().Int("min_tokens", 4).Int("noRepeatNgramSize", 3).Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->request.sampling.min_tokens, 4);
  EXPECT_EQ(parsed->request.sampling.no_repeat_ngram_size, 3);
}

TEST(LlmRequest, BansAndBiasesOutOfRangeAreNamed) {
  EXPECT_EQ(Minimal().Int("min_length", -1).Error().message(),
            "min_length: got -1, must be at least 0");
  EXPECT_EQ(Minimal().Int("noRepeatNgramSize", -2).Error().message(),
            "noRepeatNgramSize: got -2, must be at least 0");
  EXPECT_EQ(Minimal().Float("runtime_top_p_decay", 0.0F).Error().message(),
            "runtime_top_p_decay: got 0, must be in (0, 1]");
  EXPECT_EQ(Minimal().Float("runtime_top_p_decay", std::nanf("")).Error().message(),
            "runtime_top_p_decay: got nan, must be in (0, 1]");
  EXPECT_EQ(Minimal().Float("runtime_top_p_min", 1.5F).Error().message(),
            "runtime_top_p_min: got 1.5, must be in [0, 1]");
  EXPECT_EQ(Minimal().Int("runtime_top_p_reset_ids", -2).Error().message(),
            "runtime_top_p_reset_ids: got -2, must be a token id, or -1 for none");
  EXPECT_THAT(Minimal().Int("embedding_bias", 2).Error().message(), HasSubstr("expected FP32"));
  EXPECT_THAT(Minimal()
                  .Add<int32_t>("bad_words_list", DataType::kInt32, {1, 2, 1}, {5, 2})
                  .Error()
                  .message(),
              HasSubstr("Sparse list must not have out-of-bound offsets"));
}

TEST(LlmRequest, OldClientsMaySendUnsignedNumbersAndFlatScalars) {
  const auto parsed = Inputs()
                          .Ids("input_ids", {3})
                          .Add<uint32_t>("request_output_len", DataType::kUint32, {1}, {5})
                          .Add<uint32_t>("end_id", DataType::kUint32, {1, 1}, {2})
                          .Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->request.max_tokens, 5);
  EXPECT_THAT(parsed->request.end_ids, ElementsAre(2));
}

TEST(LlmRequest, PaddingBeyondInputLengthsIsLeftOut) {
  const auto parsed = Inputs()
                          .Ids("input_ids", {3, 4, 0, 0})
                          .Int("input_lengths", 2)
                          .Int("request_output_len", 1)
                          .Parse();
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->request.input_ids, ElementsAre(3, 4));
}

TEST(LlmRequest, AStopNeedsNothingElseToBeValid) {
  const auto parsed = Inputs()
                          .Ids("input_ids", {0})
                          .Int("input_lengths", 0)
                          .Int("request_output_len", 0)
                          .Bool("stop", true)
                          .Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_TRUE(parsed->is_stop);
}

TEST(LlmRequest, StreamingNeedsADecoupledModel) {
  const auto parsed = Minimal().Bool("streaming", true).Parse({.decoupled = false});
  EXPECT_THAT(parsed.status().message(), HasSubstr("Streaming is only supported if model is"));
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
}

TEST(LlmRequest, SeveralSequencesNeedADecoupledModel) {
  const auto parsed = Minimal().Int("num_return_sequences", 3).Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->request.sampling.num_return_sequences, 3);
  EXPECT_TRUE(Minimal().Int("num_return_sequences", 1).Parse({.decoupled = false}).ok());
  const auto refused = Minimal().Int("num_return_sequences", 3).Parse({.decoupled = false});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("num_return_sequences: got 3, more than 1"));
}

TEST(LlmRequest, BeamTensorsReachTheirFields) {
  const auto parsed = Minimal()
                          .Int("beam_width", 4)
                          .Int("num_return_sequences", 2)
                          .Float("len_penalty", 0.5F)
                          .Bool("early_stopping", false)
                          .Float("beam_search_diversity_rate", 0.25F)
                          .Int("pad_id", 9)
                          .Parse({.decoupled = false, .max_beam_width = 4});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const SamplingParams& sampling = parsed->request.sampling;
  EXPECT_EQ(sampling.beam_width, 4);
  EXPECT_EQ(sampling.num_return_sequences, 2);
  EXPECT_EQ(sampling.length_penalty, 0.5F);
  EXPECT_EQ(sampling.early_stopping, 0);
  EXPECT_EQ(sampling.beam_search_diversity_rate, 0.25F);
  EXPECT_EQ(parsed->pad_id, 9);
  EXPECT_EQ(Minimal().Bool("early_stopping", true).Parse()->request.sampling.early_stopping, 1);
  EXPECT_EQ(Minimal().Int("early_stopping", 2).Parse()->request.sampling.early_stopping, 2);
  EXPECT_EQ(Minimal().Int("beam_width", 5).Parse({.max_beam_width = 4}).status().message(),
            "Requested beam width 5 is larger than configured max beam width 4 (beam_width)");
}

TEST(LlmRequest, DraftTensorsReachTheirFields) {
  const auto parsed =
      Minimal()
          .Ids("draft_input_ids", {7, 8})
          .Add<float>("draft_logits", DataType::kFp32, {1, 2, 3}, {0.5F, 1, 2, 3, 4, 5})
          .Float("draft_acceptance_threshold", 0.25F)
          .Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->request.draft_ids, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(*parsed->request.draft_logits, (std::vector<float>{0.5F, 1, 2, 3, 4, 5}));
  EXPECT_EQ(parsed->request.draft_acceptance_threshold, 0.25F);
  const auto empty = Minimal()
                         .Ids("draft_input_ids", {})
                         .Add<float>("draft_logits", DataType::kFp32, {1, 0, 3}, {})
                         .Float("draft_acceptance_threshold", 0)
                         .Parse();
  ASSERT_TRUE(empty.ok()) << empty.status().ToString();
  EXPECT_TRUE(empty->request.draft_ids.empty());
  EXPECT_EQ(empty->request.draft_logits, nullptr);
  EXPECT_EQ(empty->request.draft_acceptance_threshold, std::nullopt);
  EXPECT_EQ(Minimal().Float("draft_acceptance_threshold", 1.5F).Error().message(),
            "draft_acceptance_threshold: got 1.5, must be in (0, 1], or 0 for none");
}

TEST(LlmRequest, WhatIsNotSupportedIsRefusedByName) {
  const std::vector<Inputs> cases = [] {
    std::vector<Inputs> list;
    list.push_back(
        Minimal().Add<uint16_t>("encoder_input_features", DataType::kFp16, {1, 1, 1}, {0}));
    return list;
  }();
  for (const Inputs& inputs : cases) {
    const Status status = inputs.Error();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("is not supported; leave it out"));
  }
}

Inputs WithAdapter(std::vector<int64_t> weights_shape, std::vector<int64_t> config_shape,
                   std::vector<int32_t> config) {
  Inputs inputs = Minimal();
  inputs.Add<uint64_t>("lora_task_id", DataType::kUint64, {1, 1}, {7});
  int64_t num_values = 1;
  for (const int64_t dim : weights_shape) num_values *= dim;
  inputs.Add<uint16_t>("lora_weights", DataType::kBf16, std::move(weights_shape),
                       std::vector<uint16_t>(static_cast<size_t>(num_values), 0x3f80));
  inputs.Add<int32_t>("lora_config", DataType::kInt32, std::move(config_shape), std::move(config));
  return inputs;
}

TEST(LlmRequest, WhatIsMadeOfLargeTensorsIsChargedBeforeItIsTaken) {
  const auto account = MemoryAccount::Make(MemoryLimits::Of(1 << 20));
  const auto share = account->NewConnection("client", [] {});
  const auto with_logits = [](int64_t num_logits) {
    Inputs inputs = Minimal();
    inputs.Ids("draft_input_ids", {1})
        .Add<float>("draft_logits", DataType::kFp32, {1, num_logits},
                    std::vector<float>(static_cast<size_t>(num_logits)));
    return inputs;
  };
  {
    const auto adapter = WithAdapter({2, 5}, {2, 3}, {1, 0, 8, 5, 1, 4}).Parse({}, share);
    ASSERT_TRUE(adapter.ok()) << adapter.status().ToString();
    EXPECT_EQ(account->used_bytes(), 20U);
    const auto logits = with_logits(100).Parse({}, share);
    ASSERT_TRUE(logits.ok()) << logits.status().ToString();
    EXPECT_EQ(account->used_bytes(), 20U + 400U);
  }
  EXPECT_EQ(account->used_bytes(), 0U);
  for (const auto& refused :
       {WithAdapter({2, 1 << 20}, {2, 3}, {1, 0, 8, 5, 1, 4}).Parse({}, share),
        with_logits(1 << 20).Parse({}, share)}) {
    EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.status().message(),
                testing::AnyOf(HasSubstr("lora_weights"), HasSubstr("draft_logits")));
  }
}

TEST(LlmRequest, AdapterTensorsReachTheRequest) {
  const auto alone =
      Minimal().Add<uint64_t>("lora_task_id", DataType::kUint64, {1, 1}, {0}).Parse();
  ASSERT_TRUE(alone.ok()) << alone.status().ToString();
  ASSERT_TRUE(alone->request.lora.has_value());
  EXPECT_EQ(alone->request.lora->id, 0U);
  EXPECT_EQ(alone->request.lora->tensors, nullptr);
  EXPECT_FALSE(Minimal().Parse()->request.lora.has_value());
  for (const bool has_batch : {false, true}) {
    std::vector<int64_t> weights = {2, 5};
    std::vector<int64_t> config = {2, 4};
    if (has_batch) weights.insert(weights.begin(), 1), config.insert(config.begin(), 1);
    const auto parsed = WithAdapter(weights, config, {1, 0, 8, 0, 5, 1, 4, 0}).Parse();
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    const LoraTensors& tensors = *parsed->request.lora->tensors;
    EXPECT_EQ(tensors.dtype, LoraDType::kBFloat16);
    EXPECT_EQ(tensors.width, 5);
    EXPECT_EQ(tensors.weights.size(), 20U);
    ASSERT_EQ(tensors.rows.size(), 2U);
    EXPECT_EQ(tensors.rows[1].module, 5);
    EXPECT_EQ(tensors.rows[1].layer, 1);
    EXPECT_EQ(tensors.rows[1].rank, 4);
  }
}

TEST(LlmRequest, AdapterTensorsOfOtherShapesAreRefusedByName) {
  const std::vector<std::pair<Status, const char*>> cases = {
      {Minimal().Add<int32_t>("lora_config", DataType::kInt32, {1, 3}, {1, 0, 8}).Error(),
       "lora_task_id must be set for LoRA inference: got lora_config without it"},
      {Minimal()
           .Add<uint64_t>("lora_task_id", DataType::kUint64, {1}, {7})
           .Add<int32_t>("lora_config", DataType::kInt32, {1, 3}, {1, 0, 8})
           .Error(),
       "Request for LoRA inference must have both lora_weights and lora_config: got lora_config "
       "alone"},
      {WithAdapter({2, 1, 5}, {1, 3}, {1, 0, 8}).Error(),
       "lora_weights: Expected batch dimension to be 1 for each lora request, got shape [2, 1, 5]"},
      {WithAdapter({5}, {1, 3}, {1, 0, 8}).Error(),
       "Invalid shape for lora_weights tensor: got [5]"},
      {WithAdapter({2, 5}, {1, 3}, {1, 0, 8}).Error(),
       "Invalid shape for lora_config tensor: got 1 rows, lora_weights has 2"},
      {WithAdapter({1, 5}, {1, 2}, {1, 0}).Error(),
       "Invalid shape for lora_config tensor: got [1, 2]"},
      {WithAdapter({1, 5}, {1, 4}, {1, 0, 8, 1}).Error(),
       "lora_config: row 0: adapters with magnitudes (DoRA) are not supported"},
  };
  for (const auto& [status, message] : cases) EXPECT_THAT(status.message(), HasSubstr(message));
}

TEST(LlmRequest, EveryDeclaredInputIsKnown) {
  for (const TensorSpec& spec : LlmInputs()) {
    // A tensor of no elements: whatever is said about it, it is not "unknown".
    Tensor tensor = Tensor::FromBytes(std::string(spec.name), spec.type, {1, 0}, {});
    const NamedInput input = {spec.name, &tensor};
    const auto parsed = ParseLlmRequest(std::span(&input, 1), {});
    EXPECT_NE(parsed.status().code(), StatusCode::kUnimplemented)
        << spec.name << ": " << parsed.status().ToString();
  }
}

TEST(LlmRequest, ValuesOutsideTheirRangeAreNamedWithTheBound) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<Status, const char*>> cases = {
      {Minimal().Float("temperature", -1.0F).Error(), "temperature: got -1, must be a finite"},
      {Minimal().Float("temperature", nan).Error(), "temperature: got nan"},
      {Minimal().Float("temperature", inf).Error(), "temperature: got inf"},
      {Minimal().Int("runtime_top_k", -1).Error(), "runtime_top_k: got -1, must be at least 0"},
      {Minimal().Float("runtime_top_p", 1.5F).Error(), "runtime_top_p: got 1.5, must be at most 1"},
      {Minimal().Float("runtime_top_p", nan).Error(), "runtime_top_p: got nan"},
      {Minimal().Float("repetition_penalty", 0.0F).Error(), "repetition_penalty: got 0"},
      {Minimal().Float("presence_penalty", nan).Error(), "presence_penalty: got nan"},
      {Minimal().Int("beam_width", 0).Error(), "beam_width: got 0, must be at least 1"},
      {Minimal().Int("num_return_sequences", 0).Error(),
       "num_return_sequences: got 0, must be in [1, 1024]"},
      {Minimal().Int("num_return_sequences", 1025).Error(),
       "num_return_sequences: got 1025, must be in [1, 1024]"},
      {Minimal().Float("len_penalty", nan).Error(), "len_penalty: got nan, must be finite"},
      {Minimal().Float("beam_search_diversity_rate", -1.0F).Error(),
       "beam_search_diversity_rate: got -1"},
      {Minimal().Int("end_id", -2).Error(), "end_id: got -2"},
      {Inputs().Ids("input_ids", {1}).Int("request_output_len", 0).Error(),
       "request_output_len: got 0, must be at least 1"},
      {Inputs().Ids("input_ids", {1, 2}).Int("input_lengths", 3).Error(),
       "input_lengths: got 3, must be at most 2"},
      {Inputs().Ids("input_ids", {}).Error(), "input_ids: got no tokens"},
      {Minimal().Ids("temperature", {1, 2}).Error(), "is INT32, expected FP32"},
      {Minimal().Ids("end_id", {1, 2}).Error(), "Invalid size for tensor end_id"},
      {Inputs().Add<int32_t>("input_ids", DataType::kInt32, {2, 1}, {1, 2}).Error(),
       "Expected batch dimension to be 1 for each request for input tensor input_ids"},
  };
  for (const auto& [status, message] : cases) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

TEST(LlmRequest, MinPAndIgnoredPromptsReachTheirFields) {
  const auto parsed = Minimal().Float("min_p", 0.25F).Int("prompt_ignore_length", 3).Parse();
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->request.sampling.min_p, 0.25F);
  EXPECT_EQ(parsed->request.sampling.prompt_ignore_length, 3);
  EXPECT_EQ(Minimal().Float("min_p", 0).Parse()->request.sampling.min_p, std::nullopt);
  EXPECT_EQ(Minimal().Float("min_p", 1.5F).Error().message(), "min_p: got 1.5, must be in [0, 1]");
  EXPECT_EQ(Minimal().Float("min_p", NAN).Error().message(), "min_p: got nan, must be in [0, 1]");
  EXPECT_EQ(Minimal().Int("prompt_ignore_length", -1).Error().message(),
            "prompt_ignore_length: got -1, must be at least 0");
}

TEST(LlmRequest, TheModelsDecodingModeRefusesByTheClientsName) {
  const auto parsed = Minimal()
                          .Float("runtime_top_p", 0.5F)
                          .Parse({.decoupled = true, .decoding_mode = DecodingMode::kTopK});
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(parsed.status().message(), HasSubstr("runtime_top_p: decoding_mode top_k"));
}

TEST(LlmRequest, TensorsAreReadAtAnyAddress) {
  // A byte before the number puts it at an odd address, as in the body of an HTTP request.
  std::string bytes("x\x05\0\0\0", 5);
  Tensor tensor;
  tensor.name = "request_output_len";
  tensor.datatype = DataType::kInt32;
  tensor.shape = {1, 1};
  tensor.data = std::as_bytes(std::span(bytes)).subspan(1);
  const NamedInput input = {"request_output_len", &tensor};
  EXPECT_EQ(ParseLlmRequest(std::span(&input, 1), {})->request.max_tokens, 5);
}

TEST(FitToEngine, PromptsBeyondTheLimitHaveTheKnownText) {
  Request request{.input_ids = std::vector<TokenId>(11, 1), .max_tokens = 1};
  EXPECT_EQ(FitToEngine(request, kLimits).message(),
            "Prompt length (11) exceeds maximum input length (10).");
}

TEST(FitToEngine, MaxTokensIsShortenedToTheSequenceLimit) {
  Request request{.input_ids = {1, 2, 3}, .max_tokens = 1000};
  ASSERT_TRUE(FitToEngine(request, kLimits).ok());
  EXPECT_EQ(request.max_tokens, 13);
}

TEST(FitToEngine, WhatIsMissingIsNamed) {
  Request no_ids{.max_tokens = 1};
  EXPECT_EQ(FitToEngine(no_ids, kLimits).message(), "input_ids is not present in the request");
  Request no_length{.input_ids = {1}};
  EXPECT_EQ(FitToEngine(no_length, kLimits).message(),
            "request_output_len is not present in the request");
}

TEST(FitToEngine, OldReleasesTakeIdsAndEndsThatNoVocabularyHas) {
  const LlmRequestDefaults old = {.clamps_input_ids = true, .takes_any_end_id = true};
  Request request{.input_ids = {5, 100, 1'000'000, -7}, .max_tokens = 1, .end_ids = {1'048'576}};
  ASSERT_TRUE(FitToEngine(request, kLimits, old).ok());
  EXPECT_THAT(request.input_ids, ElementsAre(5, 99, 99, 0));
  EXPECT_THAT(request.end_ids, IsEmpty());
  Request known{.input_ids = {5}, .max_tokens = 1, .end_ids = {7}};
  ASSERT_TRUE(FitToEngine(known, kLimits, old).ok());
  EXPECT_THAT(known.end_ids, ElementsAre(7));
}

TEST(FitToEngine, IdsOutsideTheVocabularyAreRefused) {
  Request prompt{.input_ids = {1, 100}, .max_tokens = 1};
  EXPECT_THAT(FitToEngine(prompt, kLimits).message(), HasSubstr("token id 100"));
  Request negative{.input_ids = {-1}, .max_tokens = 1};
  EXPECT_FALSE(FitToEngine(negative, kLimits).ok());
  Request end{.input_ids = {1}, .max_tokens = 1, .end_ids = {100}};
  EXPECT_THAT(FitToEngine(end, kLimits).message(),
              HasSubstr("EndId (100) is not within vocabulary"));
}

TEST(LlmRequest, OwnRulesDrawByTemperatureAndHaveDefaults) {
  const LlmRequestDefaults own = {.own = OwnRules{{.do_sample = false, .max_new_tokens = 9}}};
  Inputs warm;
  warm.Ids("input_ids", {3}).Float("temperature", 0.5F);
  const auto drawn = warm.Parse(own);
  ASSERT_TRUE(drawn.ok()) << drawn.status().ToString();
  EXPECT_TRUE(parameters::IsDrawn(drawn->request.sampling));
  EXPECT_EQ(drawn->request.sampling.seed, drawn->seed_by_chance);
  EXPECT_EQ(drawn->request.max_tokens, 9);
  EXPECT_FALSE(parameters::IsDrawn(warm.Parse()->request.sampling)) << "the contract's own meaning";

  Inputs silent;
  silent.Ids("input_ids", {3});
  const auto greedy = silent.Parse(own);
  EXPECT_FALSE(parameters::IsDrawn(greedy->request.sampling));
  EXPECT_EQ(greedy->seed_by_chance, std::nullopt);
  const auto fallback = silent.Parse({.own = OwnRules{}});
  EXPECT_EQ(fallback->request.max_tokens, parameters::kDefaultMaxTokens);
}

TEST(LlmRequestTest, GuidesAreKnownByTheNamesOfTheirTypes) {
  const auto guide = [](const char* type, const std::string& text) {
    Inputs inputs = Minimal();
    inputs.Text("guided_decoding_guide_type", type);
    if (!text.empty()) inputs.Text("guided_decoding_guide", text);
    return inputs.Parse();
  };
  using Kind = GuideSpec::Kind;
  const auto json = guide("json", "");
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  ASSERT_TRUE(json->guide);
  EXPECT_EQ(json->guide->spec, (GuideSpec{.kind = Kind::kJson}));
  const std::pair<const char*, Kind> kinds[] = {{"json_schema", Kind::kJsonSchema},
                                                {"regex", Kind::kRegex},
                                                {"ebnf_grammar", Kind::kGrammar}};
  for (const auto& [name, kind] : kinds) {
    const auto parsed = guide(name, "text");
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    ASSERT_TRUE(parsed->guide);
    EXPECT_EQ(parsed->guide->spec, (GuideSpec{.kind = kind, .text = "text"}));
    EXPECT_EQ(parsed->guide->field, "guided_decoding_guide");
  }
  EXPECT_FALSE(guide("", "")->guide);
  EXPECT_FALSE(Minimal().Parse()->guide);
}

TEST(LlmRequestTest, GuidesThatAreNotSupportedAreRefusedByName) {
  const auto error = [](const char* type, const char* text) {
    Inputs inputs = Minimal();
    if (type != nullptr) inputs.Text("guided_decoding_guide_type", type);
    if (text != nullptr) inputs.Text("guided_decoding_guide", text);
    return inputs.Error();
  };
  const Status tag = error("structural_tag", "{}");
  EXPECT_EQ(tag.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(tag.message(),
            "guided_decoding_guide_type: got 'structural_tag'; json, json_schema, regex and "
            "ebnf_grammar are supported");
  EXPECT_EQ(error("regex", nullptr).field(), "guided_decoding_guide_type");
  EXPECT_EQ(error(nullptr, "[a-z]").field(), "guided_decoding_guide");
  EXPECT_EQ(error("json", "{}").field(), "guided_decoding_guide");
  Inputs two = Minimal();
  two.Add<uint8_t>("guided_decoding_guide", DataType::kBytes, {1, 2}, std::vector<uint8_t>(8));
  EXPECT_THAT(two.Error().message(), HasSubstr("got 2 texts, must be one"));
}

}  // namespace
}  // namespace inflight::contract
