// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/parameter_values.h"

namespace inflight::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

KeyLine LineOf(const KeyReport& report, std::string_view key) {
  const KeyLine* found = nullptr;
  for (const KeyLine& line : report) {
    if (line.key != key) continue;
    EXPECT_EQ(found, nullptr) << key << " stands twice in the report";
    found = &line;
  }
  EXPECT_NE(found, nullptr) << key << " is not in the report";
  return found != nullptr ? *found : KeyLine{};
}

using Map = std::map<std::string, std::string>;

TEST(LlmParameters, UnfilledOnesTakeDefaults) {
  const auto parsed = ParseLlmParameters({{"gpt_model_type", "${batching_strategy}"},
                                          {"gpt_model_path", "${engine_dir}"},
                                          {"max_beam_width", "${max_beam_width}"},
                                          {"enable_kv_cache_reuse", ""},
                                          {"kv_cache_free_gpu_mem_fraction", "${x}"}},
                                         {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_TRUE(parsed->engine_dir.empty());
  EXPECT_FALSE(parsed->exclude_input_in_output);
  EXPECT_TRUE(parsed->normalize_log_probs);
  EXPECT_TRUE(parsed->executor.enable_prefix_reuse);
  EXPECT_EQ(parsed->executor.kv_cache_free_memory_fraction, 0.9);
  EXPECT_THAT(parsed->warnings, IsEmpty());
}

TEST(LlmParameters, FilledOnesReachTheExecutor) {
  const auto parsed = ParseLlmParameters({{"gpt_model_type", "inflight_fused_batching"},
                                          {"gpt_model_path", "/engines/a"},
                                          {"max_tokens_in_paged_kv_cache", "2560"},
                                          {"batch_scheduler_policy", "guaranteed_no_evict"},
                                          {"kv_cache_free_gpu_mem_fraction", "0.25"},
                                          {"max_num_sequences", "12"},
                                          {"enable_kv_cache_reuse", "False"},
                                          {"enable_chunked_context", "0"},
                                          {"exclude_input_in_output", "True"},
                                          {"normalize_log_probs", "false"}},
                                         {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->engine_dir, "/engines/a");
  EXPECT_EQ(parsed->executor.max_kv_tokens, 2560);
  EXPECT_EQ(parsed->executor.kv_cache_free_memory_fraction, 0.25);
  EXPECT_EQ(parsed->executor.max_batch_size, 12);
  EXPECT_FALSE(parsed->executor.enable_prefix_reuse);
  EXPECT_FALSE(parsed->executor.enable_chunked_prefill);
  EXPECT_TRUE(parsed->exclude_input_in_output);
  EXPECT_FALSE(parsed->normalize_log_probs);
}

TEST(LlmParameters, SchedulingReachesTheExecutor) {
  const auto policy = [](const Map& parameters) {
    return ParseLlmParameters(parameters, {})->executor.scheduler_policy;
  };
  EXPECT_EQ(policy({}), SchedulerPolicy::kGuaranteedNoEvict);
  EXPECT_EQ(policy({{"batch_scheduler_policy", "max_utilization"}}),
            SchedulerPolicy::kMaxUtilization);
  EXPECT_EQ(policy({{"batch_scheduler_policy", "static_batch"}}), SchedulerPolicy::kStaticBatch);
  EXPECT_EQ(policy({{"batch_scheduler_policy", "GUARANTEED_NO_EVICT"}}),
            SchedulerPolicy::kGuaranteedNoEvict);
  EXPECT_EQ(policy({{"gpt_model_type", "V1"}}), SchedulerPolicy::kStaticBatch);
  EXPECT_EQ(policy({{"gpt_model_type", "v1"}, {"batch_scheduler_policy", "max_utilization"}}),
            SchedulerPolicy::kStaticBatch);

  // The file goes before the server's options, which fill what it leaves open.
  ExecutorOptions base;
  base.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  EXPECT_EQ(ParseLlmParameters({}, base)->executor.scheduler_policy,
            SchedulerPolicy::kMaxUtilization);
  EXPECT_EQ(ParseLlmParameters({{"batch_scheduler_policy", "guaranteed_no_evict"}}, base)
                ->executor.scheduler_policy,
            SchedulerPolicy::kGuaranteedNoEvict);

  const auto chunking = ParseLlmParameters({{"context_chunking_policy", "EQUAL_PROGRESS"}}, {});
  EXPECT_EQ(chunking->executor.chunking_policy, ChunkingPolicy::kEqualProgress);
}

TEST(LlmParameters, WhatIsNotSupportedIsRefusedByName) {
  const std::vector<Map> refused = {
      {{"decoding_mode", "eagle"}}, {{"num_nodes", "2"}}, {{"encoder_model_path", "/enc"}}};
  for (const Map& parameters : refused) {
    const auto parsed = ParseLlmParameters(parameters, {});
    EXPECT_EQ(parsed.status().code(), StatusCode::kUnimplemented) << parameters.begin()->first;
    EXPECT_THAT(parsed.status().message(), HasSubstr(parameters.begin()->first));
    EXPECT_THAT(parsed.status().message(), HasSubstr(parameters.begin()->second));
  }
}

TEST(LlmParameters, MedusaIsAModeWithATree) {
  const auto parsed =
      ParseLlmParameters({{"decoding_mode", "medusa"}, {"medusa_choices", "[[0], [0, 1]]"}}, {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->decoding_mode, DecodingMode::kMedusa);
  EXPECT_EQ(parsed->executor.medusa_choices, (std::vector<std::vector<int>>{{0}, {0, 1}}));
  EXPECT_EQ(ParseLlmParameters({{"medusa_choices", "{0"}}, {}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(LlmParameters, InvalidOnesAreErrors) {
  EXPECT_THAT(ParseLlmParameters({{"gpt_model_type", "fast"}}, {}).status().message(),
              HasSubstr("Invalid gpt_model_type"));
  EXPECT_FALSE(ParseLlmParameters({{"kv_cache_free_gpu_mem_fraction", "1.5"}}, {}).ok());
  EXPECT_FALSE(ParseLlmParameters({{"max_tokens_in_paged_kv_cache", "-3"}}, {}).ok());
}

TEST(LlmParameters, UnknownAndPowerlessOnesWarn) {
  const auto parsed = ParseLlmParameters(
      {{"enable_trt_overlap", "True"}, {"batch_scheduler_policy", "best"}, {"no_such_key", "1"}},
      {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->warnings.size(), 3U);
}

TEST(LlmParameters, TheBeamWidthIsBoundedByFileAndEngine) {
  const auto width = [](std::map<std::string, std::string> parameters) {
    const auto parsed = ParseLlmParameters(parameters, {});
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    return MaxBeamWidth(*parsed, {.max_beam_width = 6});
  };
  EXPECT_EQ(width({}), 6);
  EXPECT_EQ(width({{"max_beam_width", "4"}}), 4);
  EXPECT_EQ(width({{"max_beam_width", "8"}}), 6);
  EXPECT_EQ(width({{"max_beam_width", "${max_beam_width}"}, {"decoding_mode", "beam_search"}}), 6);
}

TEST(LlmParameters, WindowsSinksAndTheHostPoolAreTheExecutors) {
  const auto parsed = ParseLlmParameters({{"max_attention_window_size", "2560, 4096,"},
                                          {"sink_token_length", "4"},
                                          {"kv_cache_host_memory_bytes", "5000000000"}},
                                         {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_THAT(parsed->executor.attention_windows, ElementsAre(2560, 4096));
  EXPECT_EQ(parsed->executor.sink_tokens, 4);
  EXPECT_EQ(parsed->executor.kv_cache_host_bytes, 5'000'000'000U);
  EXPECT_THAT(ParseLlmParameters({{"max_kv_cache_length", "96"}}, {})->executor.attention_windows,
              ElementsAre(96));
  EXPECT_THAT(ParseLlmParameters({{"sink_token_length", "-1"}}, {}).status().message(),
              HasSubstr("sink_token_length: got -1"));
  EXPECT_EQ(ParseLlmParameters({{"kv_cache_host_memory_bytes", "-5"}}, {}).status().message(),
            "kv_cache_host_memory_bytes: got -5, must be at least 0");
}

TEST(LlmParameters, ThePartOfTheWeightsThatStaysIsAFractionOrAsManyAsFit) {
  const auto parse = [](const char* value, KeyReport* report = nullptr) {
    return ParseLlmParameters({{"gpu_weights_percent", value}}, {}, report);
  };
  KeyReport report;
  EXPECT_EQ(parse("0.5", &report)->executor.gpu_weights.fraction, 0.5);
  EXPECT_EQ(LineOf(report, "gpu_weights_percent").value, "0.5");
  EXPECT_EQ(LineOf(report, "gpu_weights_percent").effect, KeyEffect::kHonoured);
  EXPECT_EQ(parse("0")->executor.gpu_weights.fraction, 0);
  EXPECT_EQ(parse("1")->executor.gpu_weights.fraction, 1);
  EXPECT_FALSE(parse("1.0")->executor.gpu_weights.as_many_as_fit);
  EXPECT_TRUE(parse("auto")->executor.gpu_weights.as_many_as_fit);
  EXPECT_EQ(parse("${gpu_weights_percent}")->executor.gpu_weights.fraction, 1);
  EXPECT_EQ(parse("half")->warnings.size(), 1U);
  for (const char* value : {"50", "-0.1", "1.01"}) {
    const Status status = parse(value).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << value;
    EXPECT_EQ(status.field(), "gpu_weights_percent") << value;
    EXPECT_THAT(status.message(), HasSubstr(std::string("got ") + value)) << value;
    EXPECT_THAT(status.message(), HasSubstr("between 0 and 1")) << value;
  }
  // The file goes before the server's options.
  const ExecutorOptions base = {.gpu_weights = {.as_many_as_fit = true}};
  EXPECT_FALSE(ParseLlmParameters({{"gpu_weights_percent", "0.5"}}, base)
                   ->executor.gpu_weights.as_many_as_fit);
  EXPECT_TRUE(ParseLlmParameters({}, base)->executor.gpu_weights.as_many_as_fit);
}

TEST(LlmParameters, WhatTheEngineRefusesIsInTheReport) {
  KeyReport report;
  ASSERT_TRUE(ParseLlmParameters({{"max_attention_window_size", "64"}}, {}, &report).ok());
  EXPECT_EQ(LineOf(report, "max_attention_window_size").effect, KeyEffect::kHonoured);
  NoteRefusal(Unimplemented("max_attention_window_size", "got 64, not on this device"), &report);
  EXPECT_EQ(LineOf(report, "max_attention_window_size").effect, KeyEffect::kRefused);
  EXPECT_THAT(LineOf(report, "max_attention_window_size").reason, HasSubstr("not on this device"));
  EXPECT_EQ(LineOf(report, "sink_token_length").effect, KeyEffect::kHonoured);
}

TEST(LlmParameters, BlocksOfTheHostPoolHaveToComeBack) {
  KeyReport report;
  const Map host = {{"kv_cache_host_memory_bytes", "1000"}, {"kv_cache_onboard_blocks", "false"}};
  EXPECT_THAT(ParseLlmParameters(host, {}, &report).status().message(),
              HasSubstr("kv_cache_onboard_blocks: got false"));
  EXPECT_EQ(LineOf(report, "kv_cache_onboard_blocks").effect, KeyEffect::kRefused);
  EXPECT_TRUE(ParseLlmParameters({{"kv_cache_onboard_blocks", "false"}}, {}).ok())
      << "without a host pool it asks for nothing";
}

TEST(LlmParameters, TheOldNameOfTheEnginePathIsKnown) {
  const auto parsed = ParseLlmParameters({{"engine_dir", "/engines/a"}}, {});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->engine_dir, "/engines/a");
}

TEST(LlmParameters, TheReportHasEachKeyWithSourceAndEffect) {
  KeyReport report;
  ExecutorOptions flags;
  flags.enable_prefix_reuse = false;
  const auto parsed = ParseLlmParameters({{"gpt_model_type", "inflight_batching"},
                                          {"enable_trt_overlap", "True"},
                                          {"max_beam_width", "${max_beam_width}"},
                                          {"batch_scheduler_policy", "best"},
                                          {"cross_kv_cache_fraction", "0.5"},
                                          {"medusa_choices", "{0}, {0, 1}"},
                                          {"no_such_key", "1"}},
                                         flags, &report);
  // The first refusal is the answer, but the report goes on.
  EXPECT_THAT(parsed.status().message(), HasSubstr("cross_kv_cache_fraction"));
  const auto expect = [&](const char* key, const char* value, KeySource source, KeyEffect effect,
                          const char* reason) {
    const KeyLine line = LineOf(report, key);
    EXPECT_EQ(line.value, value) << key;
    EXPECT_EQ(line.source, source) << key;
    EXPECT_EQ(line.effect, effect) << key;
    EXPECT_THAT(line.reason, HasSubstr(reason)) << key;
  };
  using enum KeySource;
  using enum KeyEffect;
  expect("gpt_model_type", "inflight_batching", kFile, kHonoured, "");
  expect("enable_trt_overlap", "True", kFile, kIgnored, "overlap");
  expect("max_beam_width", "the engine's", kDefault, kHonoured, "left unfilled");
  expect("batch_scheduler_policy", "best", kFile, kIgnored, "not understood");
  expect("cross_kv_cache_fraction", "0.5", kFile, kRefused, "not supported; leave it out");
  expect("gpu_weights_percent", "1.0", kDefault, kHonoured, "");
  expect("medusa_choices", "{0}, {0, 1}", kFile, kHonoured, "");
  expect("no_such_key", "1", kFile, kIgnored, "not known");
  expect("enable_kv_cache_reuse", "false", kOption, kHonoured, "");
  expect("kv_cache_free_gpu_mem_fraction", "0.9", kDefault, kHonoured, "");
}

TEST(LlmParameters, UnfilledKeysWithoutAnyEffectAreReportedAsIgnored) {
  KeyReport report;
  ASSERT_TRUE(
      ParseLlmParameters({{"lora_cache_optimal_adapter_size", "${lora_cache_optimal_adapter_size}"},
                          {"cancellation_check_period_ms", ""},
                          {"enable_trt_overlap", "${enable_trt_overlap}"},
                          {"gpu_device_ids", "${gpu_device_ids}"},
                          {"encoder_model_path", "${encoder_engine_dir}"}},
                         {}, &report)
          .ok());
  const auto expect = [&](const char* key, KeyEffect effect, const char* reason) {
    const KeyLine line = LineOf(report, key);
    EXPECT_EQ(line.value, "unset") << key;
    EXPECT_EQ(line.source, KeySource::kDefault) << key;
    EXPECT_EQ(line.effect, effect) << key;
    EXPECT_EQ(line.reason, reason) << key;
  };
  using enum KeyEffect;
  expect("lora_cache_optimal_adapter_size", kIgnored,
         "left unfilled; memory of adapters is given out by bytes, without pages");
  expect("cancellation_check_period_ms", kIgnored,
         "left unfilled; a cancel takes effect at the next step, without polling");
  expect("enable_trt_overlap", kIgnored, "left unfilled; steps overlap where the device allows");
  expect("gpu_device_ids", kHonoured, "left unfilled");
  expect("encoder_model_path", kHonoured, "left unfilled");  // unset is what it says
}

TEST(LlmParameters, MemoryOfAdaptersReachesTheExecutor) {
  const auto none = ParseLlmParameters({}, {});
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->executor.adapter_memory_fraction);
  EXPECT_FALSE(none->executor.adapter_host_bytes);
  EXPECT_EQ(none->executor.max_adapter_rank, 0);
  const auto parsed = ParseLlmParameters({{"lora_cache_gpu_memory_fraction", "0.25"},
                                          {"lora_cache_host_memory_bytes", "5000000"},
                                          {"lora_cache_max_adapter_size", "32"}},
                                         {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->executor.adapter_memory_fraction, 0.25);
  EXPECT_EQ(parsed->executor.adapter_host_bytes, 5000000U);
  EXPECT_EQ(parsed->executor.max_adapter_rank, 32);
  for (const auto& [key, value] : {std::pair{"lora_cache_gpu_memory_fraction", "1.0"},
                                   std::pair{"lora_cache_host_memory_bytes", "-1"},
                                   std::pair{"lora_cache_max_adapter_size", "257"}}) {
    const Status status = ParseLlmParameters({{key, value}}, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << key;
    EXPECT_NE(status.message().find(std::string(key) + ": got " + value), std::string::npos)
        << status.ToString();
  }
}

TEST(LlmParameters, GpusAreAListOfIds) {
  const auto gpus = [](const char* value) {
    return ParseLlmParameters({{"gpu_device_ids", value}}, {})->gpu_device_ids;
  };
  EXPECT_THAT(gpus("3"), ElementsAre(3));
  EXPECT_THAT(gpus(" 2, "), ElementsAre(2)) << "a comma may be the last";
  EXPECT_THAT(gpus("0,1"), ElementsAre(0, 1));
  EXPECT_THAT(gpus("0;1"), ElementsAre(0, 1));
  for (const char* none : {"${gpu_device_ids}", "all", "-1", "0,all"})
    EXPECT_THAT(gpus(none), IsEmpty()) << none;
}

TEST(LlmParameters, ParticipantsAreAListOfIds) {
  const auto parsed = ParseLlmParameters({{"participant_ids", "1,2"}}, {});
  EXPECT_THAT(parsed->participant_ids, ElementsAre(1, 2));
  EXPECT_THAT(ParseLlmParameters({{"participant_ids", ""}}, {})->participant_ids, IsEmpty());
  EXPECT_EQ(ParseLlmParameters({{"participant_ids", "1,all"}}, {}).status(),
            InvalidArgument("participant_ids", "got '1,all', must be numbers, as 1,2"));
}

TEST(LlmParameters, WorkersAreTheServersOwnOrAPath) {
  const auto program = [](const char* key, const char* value) {
    return ParseLlmParameters({{key, value}}, {})->worker_program;
  };
  constexpr char kUpstreams[] = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker";
  EXPECT_EQ(program("executor_worker_path", kUpstreams), "");
  EXPECT_EQ(program("worker_path", "triton_tensorrtllm_worker"), "");
  EXPECT_EQ(program("executor_worker_path", "/w"), "/w");
  EXPECT_EQ(program("worker_path", "/w"), "/w");
  EXPECT_EQ(
      ParseLlmParameters({{"executor_worker_path", "/a"}, {"worker_path", "/b"}}, {}).status(),
      InvalidArgument("worker_path",
                      "got '/b' beside executor_worker_path '/a'; leave one of both out"));
}

TEST(LlmParameters, RequestStatisticsAreKeptAsManyAsAsked) {
  KeyReport report;
  const auto parsed = ParseLlmParameters({{"request_stats_max_iterations", "10"}}, {}, &report);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->executor.request_stats_max_iterations, 10);
  EXPECT_EQ(LineOf(report, "request_stats_max_iterations").effect, KeyEffect::kHonoured);
  EXPECT_TRUE(parsed->warnings.empty());
  report.clear();
  const auto unfilled = ParseLlmParameters(
      {{"request_stats_max_iterations", "${request_stats_max_iterations}"}}, {}, &report);
  EXPECT_EQ(unfilled->executor.request_stats_max_iterations, 0) << "none unless asked";
  EXPECT_EQ(LineOf(report, "request_stats_max_iterations").value, "0");
  EXPECT_EQ(ParseLlmParameters({{"request_stats_max_iterations", "-1"}}, {}).status().message(),
            "request_stats_max_iterations: got -1, must be in [0, 1048576]");
}

TEST(LlmParameters, DecodingModesAreThoseOfTheSamplersBuilt) {
  const auto mode = [](const char* value) {
    return ParseLlmParameters({{"decoding_mode", value}}, {})->decoding_mode;
  };
  EXPECT_EQ(mode("top_k"), DecodingMode::kTopK);
  EXPECT_EQ(mode("beam_search"), DecodingMode::kBeamSearch);
  EXPECT_EQ(mode("auto"), DecodingMode::kAuto);
  EXPECT_EQ(mode("fast"), DecodingMode::kAuto);
}

TEST(LlmParameters, StatisticsPeriodAndRingAreHonoured) {
  const auto parsed = ParseLlmParameters(
      {{"stats_check_period_ms", "250"}, {"iter_stats_max_iterations", "7"}}, {});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->stats_check_period_ms, 250);
  EXPECT_EQ(parsed->executor.iter_stats_max_iterations, 7);
  EXPECT_EQ(ParseLlmParameters({}, {})->stats_check_period_ms, 100);
  EXPECT_EQ(ParseLlmParameters({}, {})->executor.iter_stats_max_iterations, 1000);
  EXPECT_EQ(ParseLlmParameters({{"stats_check_period_ms", "0"}}, {}).status().message(),
            "stats_check_period_ms: got 0, must be in [1, 3600000]");
  EXPECT_EQ(ParseLlmParameters({{"iter_stats_max_iterations", "-1"}}, {}).status().message(),
            "iter_stats_max_iterations: got -1, must be in [0, 1048576]");
}

TEST(KeyReport, IsATableOfFourColumns) {
  EXPECT_EQ(ToTable({{.key = "max_batch_size", .value = "8", .source = KeySource::kAuto},
                     {.key = "worker_path",
                      .value = "/w",
                      .source = KeySource::kFile,
                      .effect = KeyEffect::kIgnored,
                      .reason = "there are no worker processes"}}),
            "  key             value  source  effect\n"
            "  max_batch_size  8      auto    honoured\n"
            "  worker_path     /w     file    ignored: there are no worker processes\n");
}

TEST(ParameterValues, BooleansFollowTheirPlace) {
  EXPECT_EQ(StrictBool("TRUE"), true);
  EXPECT_EQ(StrictBool("0"), false);
  EXPECT_EQ(StrictBool("yes"), std::nullopt);
  EXPECT_EQ(StrictBool("tRUE"), std::nullopt);
  EXPECT_EQ(TokenizerBool("Yes"), true);
  EXPECT_EQ(TokenizerBool("F"), false);
  EXPECT_EQ(TokenizerBool("on"), std::nullopt);
}

TEST(ParameterValues, NumbersAreReadFromTheFront) {
  EXPECT_EQ(LeadingInt(" 42abc"), 42);
  EXPECT_EQ(LeadingInt("abc"), std::nullopt);
  EXPECT_EQ(LeadingInt("99999999999999999999"), std::nullopt);
  EXPECT_EQ(LeadingDouble("0.5f"), 0.5);
  EXPECT_EQ(LeadingDouble("nan"), std::nullopt);
  EXPECT_TRUE(IsUnfilled("  "));
  EXPECT_TRUE(IsUnfilled("/a/${b}"));
  EXPECT_FALSE(IsUnfilled("0"));
}

}  // namespace
}  // namespace inflight::contract
