// SPDX-License-Identifier: Apache-2.0
// The iteration records: expectations are those of docs/metrics.md.
#include "serving/statistics/iteration_metrics.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "serving/configuration/generated_config.h"
#include "serving/statistics/iteration_reporter.h"
#include "serving/testing/fake_executor.h"

namespace inflight::serving {
namespace {

Iteration SomeIteration() {
  Iteration iteration;
  iteration.block_size = 64;
  iteration.timestamp_us = 1'715'988'519'000'042;  // 2024-05-17 23:28:39 UTC
  iteration.num_terminated = 4;
  ExecutorStats& s = iteration.stats;
  s.num_active_requests = 3;
  s.num_steps = 123;
  s.max_active_requests = 8;
  s.cpu_memory_bytes = 5'000'000'000;
  s.num_context_requests = 1;
  s.num_generation_requests = 2;
  s.num_scheduled_requests = 3;
  s.num_context_tokens = 77;
  s.num_queued_requests = 9;
  s.kv_blocks_max = 16;
  s.kv_blocks_free = 12;
  s.kv_blocks_used = 4;
  s.kv_blocks_reused = 6;
  return iteration;
}

TEST(IterationJson, HasTheMembersOfAnInFlightRecordInTheirOrder) {
  EXPECT_EQ(IterationJson(SomeIteration(), {.release = 11}),
            R"({"Active Request Count":3,"Iteration Counter":123,"Max Request Count":8,)"
            R"("Runtime CPU Memory Usage":5000000000,"Runtime GPU Memory Usage":0,)"
            R"("Runtime Pinned Memory Usage":0,"Timestamp":"05-17-2024 23:28:39",)"
            R"("Waiting Requests":9,)"
            R"("Context Requests":1,"Generation Requests":2,"MicroBatch ID":0,)"
            R"("Paused Requests":0,"Scheduled Requests":3,"Total Context Tokens":77,)"
            R"("Free KV cache blocks":12,"Max KV cache blocks":16,)"
            R"("Tokens per KV cache block":64,"Used KV cache blocks":4,)"
            R"("Fraction used KV cache blocks":0.25})");
}

TEST(IterationJson, OfAStaticBatchHasItsOwnMembers) {
  const auto json = nlohmann::json::parse(
      IterationJson(SomeIteration(), {.release = 11, .is_static_batch = true}));
  EXPECT_EQ(json.size(), 18U);
  EXPECT_EQ(json.at("Total Generation Tokens"), 2);
  EXPECT_EQ(json.at("Empty Generation Slots"), 5);
  EXPECT_FALSE(json.contains("MicroBatch ID"));
  EXPECT_FALSE(json.contains("Paused Requests"));
}

TEST(IterationJson, LaterReleasesHaveMore) {
  const auto json = nlohmann::json::parse(IterationJson(SomeIteration(), {.release = 19}));
  EXPECT_EQ(json.at("Reused KV cache blocks"), 6);
  EXPECT_EQ(json.at("Timestamp"), "05-17-2024 23:28:39.000042");
  const auto r16 = nlohmann::json::parse(IterationJson(SomeIteration(), {.release = 16}));
  EXPECT_TRUE(r16.contains("Reused KV cache blocks"));
  const auto r15 = nlohmann::json::parse(IterationJson(SomeIteration(), {.release = 15}));
  EXPECT_FALSE(r15.contains("Reused KV cache blocks"));
  const auto r8 = nlohmann::json::parse(IterationJson(SomeIteration(), {.release = 8}));
  EXPECT_EQ(r8.at("Terminated Requests"), 4);
  EXPECT_FALSE(r8.contains("Paused Requests"));
}

TEST(IterationFields, MembersAndSamplesAreOneToOne) {
  for (int release = 7; release <= 19; ++release) {
    for (const bool is_static_batch : {false, true}) {
      std::set<std::string_view> keys;
      std::set<std::pair<std::string_view, std::string_view>> samples;
      const IterationProfile profile{.release = release, .is_static_batch = is_static_batch};
      const auto fields = FieldsOf(profile);
      for (const IterationField* field : fields) {
        keys.insert(field->json_key);
        samples.emplace(InfoOf(field->family).name, field->label_value);
      }
      EXPECT_EQ(keys.size(), fields.size()) << release;
      EXPECT_EQ(samples.size(), fields.size()) << release;
    }
  }
}

std::string Gauge(std::string_view label_value, int release) {
  const IterationProfile profile{.release = release};
  for (const IterationField* field : FieldsOf(profile)) {
    if (field->label_value == label_value) return FieldText(*field, SomeIteration(), profile);
  }
  return "absent";
}

// Routers of Kubernetes read these two, whatever the release; a whole number has no point.
TEST(IterationFields, WhatRoutersReadIsInEveryRelease) {
  for (int release = 7; release <= 20; ++release) {
    EXPECT_EQ(Gauge("waiting", release), "9");
    EXPECT_EQ(Gauge("fraction", release), "0.25");
  }
  Iteration idle = SomeIteration();
  idle.stats.kv_blocks_used = 0;
  for (const IterationField* field : FieldsOf({})) {
    if (!field->is_fraction) continue;
    EXPECT_EQ(FieldText(*field, idle, {}), "0");
  }
}

TEST(IterationFields, TimestampsWereSecondsAndBecameMicroseconds) {
  EXPECT_EQ(Gauge("timestamp", 11), "1715988519");
  EXPECT_EQ(Gauge("timestamp", 12), "1715988519000042");
}

::inference::ModelConfig Config(const std::string& text) {
  ::inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

TEST(IterationProfileTest, IsReadFromTheConfiguration) {
  EXPECT_EQ(ProfileOf(LlmConfig({})).release, 11);
  EXPECT_FALSE(ProfileOf(LlmConfig({})).is_static_batch);
  EXPECT_EQ(ProfileOf(Config(R"(input { name: "input_ids" })")).release, 7);
  EXPECT_EQ(ProfileOf(Config(R"(input { name: "decoder_input_ids" }
                                input { name: "stop" reshape {} })"))
                .release,
            12);
  EXPECT_EQ(ProfileOf(Config(R"(input { name: "num_return_sequences" })")).release, 14);
  EXPECT_EQ(ProfileOf(Config(R"(input { name: "return_perf_metrics" })")).release, 19);
  EXPECT_TRUE(ProfileOf(Config(R"(parameters { key: "gpt_model_type"
                                               value { string_value: "V1" } })"))
                  .is_static_batch);
}

TEST(IterationReporter, KeepsTheNewestAndCountsWhatEndedBetween) {
  const auto executor = std::make_shared<FakeExecutor>();
  IterationReporter reporter(executor, {}, {.period_ms = 0}, Clock::System());
  EXPECT_EQ(reporter.Check().iteration.stats.num_steps, 0);
  EXPECT_EQ(reporter.Check().iteration.block_size, 16);
  EXPECT_EQ(reporter.Check().iteration.timestamp_us, 0);
  executor->iterations = {{.num_steps = 1,
                           .requests_started = 4,
                           .queue_ns = 100,
                           .rows_decoded = 2,
                           .tokens_decoded = 2,
                           .requests_completed = 1},
                          {.num_steps = 2,
                           .requests_started = 5,
                           .queue_ns = 130,
                           .rows_decoded = 6,
                           .tokens_decoded = 8,
                           .requests_completed = 3,
                           .requests_cancelled = 1}};
  const Iteration newest = reporter.Check().iteration;
  EXPECT_EQ(newest.stats.num_steps, 2);
  EXPECT_EQ(newest.num_terminated, 3);
  EXPECT_EQ(newest.num_new_active, 1);
  EXPECT_EQ(newest.new_active_queue_ns, 30);
  EXPECT_EQ(newest.rows_decoded, 4);
  EXPECT_EQ(newest.tokens_decoded, 6);
  EXPECT_GT(newest.timestamp_us, 1'700'000'000'000'000);
  EXPECT_EQ(reporter.Check().iteration.stats.num_steps, 2) << "an idle executor leaves the newest";
}

}  // namespace
}  // namespace inflight::serving
