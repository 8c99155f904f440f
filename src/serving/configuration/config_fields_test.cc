// SPDX-License-Identifier: Apache-2.0
#include "serving/configuration/config_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "contract/llm_parameters.h"

namespace inflight::serving {
namespace {

using contract::KeyEffect;
using contract::KeyLine;
using contract::KeyReport;
using contract::KeySource;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using ::testing::HasSubstr;

// Each field of ModelConfig but the scheduling choices.
constexpr char kFields[] = R"(
  name: "tensorrt_llm" platform: "tensorrtllm" backend: "tensorrtllm" runtime: "libtriton_x.so"
  version_policy { latest { num_versions: 1 } }
  max_batch_size: 8
  input [ { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true },
          { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } } ]
  output { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] }
  batch_input { kind: BATCH_ELEMENT_COUNT target_name: "A" data_type: TYPE_INT32 }
  batch_output { target_name: "output_ids" kind: BATCH_SCATTER_WITH_INPUT_SHAPE }
  optimization { priority: PRIORITY_MAX }
  instance_group [ { name: "a" count: 1 kind: KIND_CPU passive: false host_policy: "h" },
                   { count: 1 kind: KIND_GPU gpus: [ 0, 1 ] profile: "p" rate_limiter { priority: 1 }
                     secondary_devices { kind: KIND_NVDLA device_id: 0 } } ]
  default_model_filename: "model.x"
  cc_model_filenames { key: "7.0" value: "model.y" }
  metric_tags { key: "a" value: "b" }
  model_warmup { name: "w" batch_size: 1 }
  model_operations { op_library_filename: "x.so" }
  model_transaction_policy { decoupled: false }
  model_repository_agents { agents { name: "checksum" } }
  response_cache { enable: false }
  model_metrics { metric_control { metric_identifier { family: "f" } } }
)";
constexpr char kDynamic[] = R"(
  dynamic_batching {
    preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 0 preserve_ordering: false
    priority_levels: 2 default_priority_level: 1
    default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 5000
                           allow_timeout_override: false max_queue_size: 16 }
    priority_queue_policy { key: 1 value { max_queue_size: 1 } } }
)";
constexpr char kSequence[] = "sequence_batching { max_sequence_idle_microseconds: 1 }";
constexpr char kEnsemble[] = R"(
  ensemble_scheduling { max_inflight_requests: 0 step { model_name: "a" model_version: -1 } })";

// Keys of docs/reference/repositories.md, "Keys of tensorrt_llm".
const std::vector<std::string> kParameters = {"max_beam_width",
                                              "gpt_model_type",
                                              "gpt_model_path",
                                              "encoder_model_path",
                                              "max_tokens_in_paged_kv_cache",
                                              "max_attention_window_size",
                                              "max_kv_cache_length",
                                              "sink_token_length",
                                              "batch_scheduler_policy",
                                              "kv_cache_free_gpu_mem_fraction",
                                              "kv_cache_host_memory_bytes",
                                              "kv_cache_onboard_blocks",
                                              "enable_kv_cache_reuse",
                                              "cross_kv_cache_fraction",
                                              "exclude_input_in_output",
                                              "cancellation_check_period_ms",
                                              "stats_check_period_ms",
                                              "recv_poll_period_ms",
                                              "iter_stats_max_iterations",
                                              "request_stats_max_iterations",
                                              "normalize_log_probs",
                                              "enable_chunked_context",
                                              "gpu_device_ids",
                                              "participant_ids",
                                              "num_nodes",
                                              "lora_cache_optimal_adapter_size",
                                              "lora_cache_max_adapter_size",
                                              "lora_cache_gpu_memory_fraction",
                                              "lora_cache_host_memory_bytes",
                                              "lora_prefetch_dir",
                                              "decoding_mode",
                                              "medusa_choices",
                                              "eagle_choices",
                                              "lookahead_window_size",
                                              "lookahead_ngram_size",
                                              "lookahead_verification_set_size",
                                              "gpu_weights_percent",
                                              "enable_trt_overlap",
                                              "max_num_sequences",
                                              "worker_path",
                                              "executor_worker_path",
                                              "enable_context_fmha_fp32_acc",
                                              "multi_block_mode",
                                              "cuda_graph_mode",
                                              "cuda_graph_cache_size",
                                              "speculative_decoding_fast_logits",
                                              "guided_decoding_backend",
                                              "xgrammar_tokenizer_info_path",
                                              "tokenizer_dir",
                                              "FORCE_CPU_ONLY_INPUT_TENSORS"};

// Lines a key, of fields and parameters together.
std::map<std::string, int> Count(const std::string& text, ModelKind kind, const char* value) {
  std::string all = text;
  for (const std::string& key : kParameters) {
    all += "parameters { key: \"" + key + "\" value: { string_value: \"" + value + "\" } }\n";
  }
  const auto parsed = ParseModelConfig(all);
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  KeyReport report = ReportFields(kind, *parsed, parsed->config);
  if (kind == ModelKind::kLlm) {
    (void)contract::ParseLlmParameters(AllParameters(parsed->config), {}, &report);
  }
  std::map<std::string, int> counts;
  for (const KeyLine& line : report) ++counts[line.key];
  return counts;
}

// What the report calls each field of a message; those of some messages are told apart.
std::vector<std::string> FieldKeys(const Descriptor& message) {
  std::vector<std::string> keys;
  const auto add = [&](const std::vector<std::string>& more, const std::string& prefix = "") {
    for (const std::string& key : more) keys.push_back(prefix + key);
  };
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor* field = message.field(i);
    const std::string& name = field->name();
    if (name == "parameters" || field->real_containing_oneof() != nullptr) continue;
    if (name == "instance_group") {
      add(FieldKeys(*field->message_type()), "instance_group.");
    } else if (name == "model_transaction_policy" || name == "default_queue_policy") {
      add(FieldKeys(*field->message_type()));
    } else {
      keys.push_back(name);
    }
  }
  return keys;
}

TEST(ReportFields, EachKeyOfALargestFileHasExactlyOneLine) {
  const auto fields = FieldKeys(*::inference::ModelConfig::descriptor());
  const auto of_batching = FieldKeys(*::inference::ModelDynamicBatching::descriptor());
  const std::map<const char*, std::vector<std::string>> choices = {
      {kDynamic, of_batching},
      {kSequence, {"sequence_batching"}},
      {kEnsemble, {"step", "max_inflight_requests"}}};
  for (const auto& [choice, of_choice] : choices) {
    for (const char* value : {"1", "${left_open}", ""}) {
      for (const ModelKind kind : {ModelKind::kLlm, ModelKind::kEnsemble, ModelKind::kUnknown}) {
        std::map<std::string, int> expected;
        for (const auto* keys : {&fields, &of_choice, &kParameters}) {
          for (const std::string& key : *keys) expected[key] = 1;
        }
        EXPECT_EQ(Count(std::string(kFields) + choice, kind, value), expected) << choice;
      }
    }
  }
}

TEST(ReportFields, KeysLeftOpenHaveOneLineToo) {
  const auto parsed = ParseModelConfig(R"(
    max_batch_size: ${a} model_transaction_policy { decoupled: ${b} }
    dynamic_batching { max_queue_delay_microseconds: ${c} priority_levels: ${d}
                       default_queue_policy { max_queue_size: ${e}
                                              default_timeout_microseconds: ${f} } }
    instance_group [ { count: ${g} }, { count: 1 } ])");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  std::map<std::string, int> counts;
  for (const KeyLine& line : ReportFields(ModelKind::kLlm, *parsed, parsed->config)) {
    ++counts[line.key];
  }
  const std::map<std::string, int> expected = {
      {"backend", 1},         {"max_batch_size", 1},       {"decoupled", 1},
      {"priority_levels", 1}, {"preferred_batch_size", 1}, {"max_queue_delay_microseconds", 1},
      {"max_queue_size", 1},  {"instance_group.count", 1}, {"default_timeout_microseconds", 1}};
  EXPECT_EQ(counts, expected);
}

KeyLine LineOf(ModelKind kind, const std::string& text, const std::string& key) {
  const auto parsed = ParseModelConfig("name: \"m\" " + text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  for (KeyLine& line : ReportFields(kind, *parsed, parsed->config)) {
    if (line.key == key) return line;
  }
  ADD_FAILURE() << key << " has no line";
  return {};
}

std::string QueuePolicy(const std::string& fields) {
  return "dynamic_batching { default_queue_policy { " + fields + " } }";
}

TEST(ReportFields, LinesSayValueSourceAndEffect) {
  const std::string text = std::string(kFields) + kDynamic;
  const auto expect = [&](ModelKind kind, const char* key, const char* value, KeyEffect effect,
                          const char* reason) {
    const auto parsed = ParseModelConfig(text);
    for (const KeyLine& line : ReportFields(kind, *parsed, parsed->config)) {
      if (line.key != key) continue;
      EXPECT_EQ(line.value, value) << key;
      EXPECT_EQ(line.source, KeySource::kFile) << key;
      EXPECT_EQ(line.effect, effect) << key;
      EXPECT_THAT(line.reason, HasSubstr(reason)) << key;
    }
  };
  using enum KeyEffect;
  constexpr auto kLlm = ModelKind::kLlm;
  expect(kLlm, "name", "tensorrt_llm", kHonoured, "");
  expect(kLlm, "input", "2", kHonoured, "");
  expect(kLlm, "priority_levels", "2", kHonoured, "");
  expect(kLlm, "preserve_ordering", "false", kHonoured, "");
  expect(kLlm, "timeout_action", "REJECT", kHonoured, "");
  expect(kLlm, "default_timeout_microseconds", "5000", kHonoured, "");
  expect(kLlm, "priority_queue_policy", "1", kRefused, "is not supported; leave it out");
  expect(kLlm, "instance_group.count", "1 1", kHonoured, "");
  expect(kLlm, "instance_group.kind", "KIND_CPU KIND_GPU", kIgnored,
         "--device says where models run");
  expect(kLlm, "model_operations", "set", kIgnored, "for other runtimes only");
  expect(ModelKind::kPreprocessing, "priority_levels", "2", kIgnored, "no queue");
  expect(ModelKind::kPreprocessing, "default_timeout_microseconds", "5000", kIgnored, "no queue");
}

TEST(ReportFields, OfTheQueuePolicyOnlyTheDelayIsRefused) {
  constexpr auto kLlm = ModelKind::kLlm;
  const std::string timeout = "default_timeout_microseconds: 100 ";
  const KeyLine delay =
      LineOf(kLlm, QueuePolicy(timeout + "timeout_action: DELAY"), "timeout_action");
  EXPECT_EQ(delay.effect, KeyEffect::kRefused);
  EXPECT_EQ(delay.value, "DELAY");
  EXPECT_EQ(delay.reason, "timeout_action of model 'm' is not supported; set it to REJECT");
  for (const char* field : {"timeout_action: DELAY", "allow_timeout_override: true"}) {
    const std::string key(field, std::string_view(field).find(':'));
    EXPECT_EQ(LineOf(kLlm, QueuePolicy(field), key).effect, KeyEffect::kIgnored) << field;
  }
  const auto parsed = ParseModelConfig(QueuePolicy(timeout + "allow_timeout_override: true"));
  EXPECT_TRUE(CheckFields(kLlm, *parsed).ok());
}

TEST(CheckFields, OfSequencesOnlyRepetitionIsRefused) {
  const auto check = [](const std::string& fields) {
    const auto parsed = ParseModelConfig("name: \"m\" sequence_batching { " + fields + " }");
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    return CheckFields(ModelKind::kConformance, *parsed);
  };
  EXPECT_TRUE(check(R"(state { input_name: "S" output_name: "T" data_type: TYPE_INT32 })").ok());
  EXPECT_THAT(check("iterative_sequence: true").message(), HasSubstr("iterative_sequence"));
  EXPECT_TRUE(check("iterative_sequence: false").ok());
  EXPECT_TRUE(check("direct { max_queue_delay_microseconds: 5 }").ok());
  EXPECT_EQ(LineOf(ModelKind::kConformance,
                   "sequence_batching { direct { minimum_slot_utilization: 0.5 } }",
                   "minimum_slot_utilization")
                .effect,
            KeyEffect::kHonoured);
}

TEST(ReportFields, OnlyTestModelsHaveABatcher) {
  constexpr char kBatcher[] =
      "dynamic_batching { preferred_batch_size: 2 max_queue_delay_microseconds: 5 "
      "preserve_ordering: true }";
  const auto effect = [&](ModelKind kind, const char* key) {
    return LineOf(kind, kBatcher, key).effect;
  };
  for (const char* key :
       {"preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering"})
    EXPECT_EQ(effect(ModelKind::kConformance, key), KeyEffect::kHonoured) << key;
  EXPECT_EQ(effect(ModelKind::kLlm, "preferred_batch_size"), KeyEffect::kIgnored);
  EXPECT_EQ(effect(ModelKind::kBls, "max_queue_delay_microseconds"), KeyEffect::kIgnored);
  EXPECT_EQ(effect(ModelKind::kLlm, "preserve_ordering"), KeyEffect::kRefused);
}

TEST(CheckFields, AConfigurationAsJsonIsRefusedForWhatAFileIs) {
  for (const char* member : {R"("batch_input": [{"kind": "BATCH_ELEMENT_COUNT"}])",
                             R"("dynamic_batching": {"preserve_ordering": true})",
                             R"("sequence_batching": {})", R"("instance_group": [{"count": 2}])"}) {
    const auto parsed = ParseModelConfigJson(R"({"name": "m", "backend": "tensorrtllm", )" +
                                             std::string(member) + "}");
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(CheckFields(ModelKind::kLlm, *parsed).code(), StatusCode::kUnimplemented) << member;
  }
}

TEST(CheckFields, TextsOfAJsonConfigurationStayAsTheyAre) {
  const std::string value = "${left} \"quoted\" # \n\xc3\xa9";
  const auto parsed = ParseModelConfigJson(
      R"({"name": "m", "parameters": {"k": {"string_value": "${left} \"quoted\" # \n\u00e9"}}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->config.parameters().at("k").string_value(), value);
  EXPECT_TRUE(parsed->unfilled.empty());
  EXPECT_TRUE(parsed->IsWritten("parameters"));
  EXPECT_FALSE(parsed->IsWritten("backend"));
}

TEST(ReportFields, AFilenameSaysTheBackendWhereNothingElseDoes) {
  for (const bool has_backend : {false, true}) {
    const auto parsed = ParseModelConfig("default_model_filename: \"model.py\"" +
                                         std::string(has_backend ? " backend: \"python\"" : ""));
    ASSERT_TRUE(parsed.ok());
    const auto report = ReportFields(ModelKind::kUnknown, *parsed, parsed->config);
    const auto line = std::find_if(report.begin(), report.end(), [](const KeyLine& each) {
      return each.key == "default_model_filename";
    });
    ASSERT_NE(line, report.end());
    EXPECT_EQ(line->effect, has_backend ? KeyEffect::kIgnored : KeyEffect::kHonoured);
  }
}

TEST(ReportFields, RateLimitersAreOfInstancesAndOfServersThatLimit) {
  const auto parsed = ParseModelConfig(
      "name: \"m\" instance_group { rate_limiter { resources { name: \"R\" count: 1 } } }");
  ASSERT_TRUE(parsed.ok());
  const auto effect = [&](ModelKind kind, bool has_rate_limiter) {
    for (const KeyLine& line : ReportFields(kind, *parsed, parsed->config, has_rate_limiter)) {
      if (line.key == "instance_group.rate_limiter") return line.effect;
    }
    ADD_FAILURE() << "no line";
    return KeyEffect::kRefused;
  };
  EXPECT_EQ(effect(ModelKind::kConformance, true), KeyEffect::kHonoured);
  EXPECT_EQ(effect(ModelKind::kConformance, false), KeyEffect::kIgnored);
  EXPECT_EQ(effect(ModelKind::kLlm, true), KeyEffect::kIgnored);
}

}  // namespace
}  // namespace inflight::serving
