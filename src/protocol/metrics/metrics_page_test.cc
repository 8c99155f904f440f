// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/metrics_page.h"

#include <gtest/gtest.h>

#include "protocol/http_listener/test_client.h"
#include "protocol/kserve/http/fake_server.h"
#include "protocol/metrics/metrics_server.h"
#include "protocol/metrics/text_writer.h"

namespace inflight::metrics {
namespace {

using kserve_http::FakeServer;

TEST(TextWriterTest, WritesTheExpositionFormat) {
  TextWriter out;
  out.Family("f_total", "Say \"what\" \\ and\nwhy", "counter");
  const Label labels[] = {{"model", "a\"b\\c\nd"}, {"version", "1"}};
  out.Sample(labels, uint64_t{18446744073709551615U});
  out.Family("g", "No labels", "gauge");
  out.Sample({}, 0.25);
  EXPECT_EQ(out.Take(),
            "# HELP f_total Say \"what\" \\\\ and\\nwhy\n"
            "# TYPE f_total counter\n"
            "f_total{model=\"a\\\"b\\\\c\\nd\",version=\"1\"} 18446744073709551615\n"
            "# HELP g No labels\n"
            "# TYPE g gauge\n"
            "g 0.25\n");
}

TEST(TextWriterTest, HistogramBucketsAreCumulative) {
  TextWriter out;
  out.Family("h_ms", "Times", "histogram");
  const Label labels[] = {{"model", "m"}};
  const double bounds[] = {0.5, 10};
  const uint64_t counts[] = {2, 0, 3};
  out.HistogramSamples(labels, bounds, counts, 61.5);
  EXPECT_EQ(out.Take(),
            "# HELP h_ms Times\n"
            "# TYPE h_ms histogram\n"
            "h_ms_bucket{model=\"m\",le=\"0.5\"} 2\n"
            "h_ms_bucket{model=\"m\",le=\"10\"} 2\n"
            "h_ms_bucket{model=\"m\",le=\"+Inf\"} 5\n"
            "h_ms_sum{model=\"m\"} 61.5\n"
            "h_ms_count{model=\"m\"} 5\n");
}

std::vector<std::string> LinesOf(const std::string& page) {
  std::vector<std::string> lines;
  for (size_t start = 0; start < page.size();) {
    const size_t end = page.find('\n', start);
    lines.push_back(page.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

bool HasLine(const std::string& page, const std::string& line) {
  const auto lines = LinesOf(page);
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

constexpr serving::RequestSpan kOneRequest = {.received_ns = 1'000'000,
                                              .compute_start_ns = 1'010'000,
                                              .compute_input_end_ns = 1'030'000,
                                              .compute_output_start_ns = 1'090'000,
                                              .finished_ns = 1'100'000};

TEST(MetricsPageTest, WithoutLatencyCountersTheirFamiliesAreMissing) {
  FakeServer server;
  server.Add(R"(name: "m")").statistics().RequestSucceeded(kOneRequest);
  const std::string page = MetricsPage(server, {.with_latency_counters = false});
  EXPECT_EQ(page.find("_duration_us"), page.npos);
  EXPECT_EQ(page.find("nv_inference_request_success"), page.npos);
  EXPECT_TRUE(HasLine(page, "nv_inference_count{model=\"m\",version=\"1\"} 1"));
  EXPECT_NE(MetricsPage(server).find("nv_inference_queue_duration_us{"), page.npos);
}

TEST(MetricsPageTest, RequestMemoryIsThatOfItsAccount) {
  FakeServer server;
  EXPECT_EQ(MetricsPage(server).find("inflight_request_memory"), std::string::npos);
  const auto memory = MemoryAccount::Make(MemoryLimits::Of(1000));
  MemoryCharge charge(memory->NewConnection("a", [] {}));
  ASSERT_TRUE(charge.Resize(300).ok());
  EXPECT_FALSE(charge.Resize(600).ok());
  const std::string page = MetricsPage(server, {.memory = memory});
  for (const char* line :
       {"inflight_request_memory_bytes 300", "inflight_request_memory_limit_bytes 1000",
        "inflight_request_memory_refused_total 1", "inflight_request_memory_ended_total 0"})
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
}

TEST(MetricsPageTest, TagsOfAModelAreLabelsOfItsSeries) {
  FakeServer server;
  auto& model = server.Add(R"(
    name: "m" metric_tags { key: "team" value: "a" } metric_tags { key: "cost" value: "b\"c" })");
  server.Add(R"(name: "plain")");
  model.statistics().Configure({.first_response_ms = {5}, .quantiles = {{0.5, 0.05}}});
  model.statistics().RequestSucceeded(kOneRequest);
  const std::string page = MetricsPage(server);
  const std::string labels = R"(_cost="b\"c",_team="a",model="m")";
  for (const std::string& line :
       {"nv_inference_count{" + labels + ",version=\"1\"} 1",
        "nv_inference_request_failure{" + labels + ",reason=\"OTHER\",version=\"1\"} 0",
        "nv_inference_request_summary_us_count{" + labels + ",version=\"1\"} 1",
        "nv_inference_first_response_histogram_ms_count{" + labels + ",version=\"1\"} 0",
        std::string("nv_inference_count{model=\"plain\",version=\"1\"} 0")})
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
}

class PinningModel : public kserve_http::FakeModel {
 public:
  using FakeModel::FakeModel;
  std::vector<serving::MemoryUsage> memory_usage() const override {
    return {{.type = "CPU", .bytes = 5},
            {.type = "CPU_PINNED", .bytes = 7},
            {.type = "GPU", .id = 1, .bytes = 9}};
  }
};

class PinningServer : public FakeServer {
 public:
  std::vector<std::shared_ptr<serving::Model>> models() const override { return {model_, model_}; }

 private:
  const std::shared_ptr<serving::Model> model_ = std::make_shared<PinningModel>(
      kserve_http::ConfigFromText(R"(name: "m")"), kserve_http::Behaviour());
};

TEST(MetricsPageTest, PinnedMemoryIsThatOfAllModelsAndMissingWithoutAny) {
  FakeServer plain;
  plain.Add(R"(name: "m")");
  EXPECT_EQ(MetricsPage(plain).find("nv_pinned_memory"), std::string::npos);
  const std::string page = MetricsPage(PinningServer());
  EXPECT_TRUE(HasLine(page, "nv_pinned_memory_pool_total_bytes 14"));
  EXPECT_TRUE(HasLine(page, "nv_pinned_memory_pool_used_bytes 14"));
}

TEST(MetricsPageTest, ModelsOnAGpuSayWhich) {
  const std::string page = MetricsPage(PinningServer(), {.gpu_uuids = {"GPU-00", "GPU-11"}});
  EXPECT_TRUE(HasLine(page, R"(nv_inference_count{gpu_uuid="GPU-11",model="m",version="1"} 0)"));
  const std::string unread = MetricsPage(PinningServer());
  EXPECT_TRUE(HasLine(unread, R"(nv_inference_count{model="m",version="1"} 0)"));
  FakeServer plain;
  plain.Add(R"(name: "m")");
  EXPECT_EQ(MetricsPage(plain, {.gpu_uuids = {"GPU-00"}}).find("gpu_uuid"), std::string::npos);
}

TEST(MetricsPageTest, SummariesOfLatenciesWhereTheyAreKept) {
  FakeServer server;
  auto& model = server.Add(R"(name: "m")");
  EXPECT_EQ(MetricsPage(server).find("summary"), std::string::npos);
  model.statistics().Configure({.quantiles = {{0.5, 0.05}, {0.999, 0.001}}});
  model.statistics().RequestSucceeded(kOneRequest);
  const std::string page = MetricsPage(server);
  for (const char* line :
       {"# TYPE nv_inference_request_summary_us summary",
        "nv_inference_request_summary_us_count{model=\"m\",version=\"1\"} 1",
        "nv_inference_request_summary_us_sum{model=\"m\",version=\"1\"} 100",
        "nv_inference_request_summary_us{model=\"m\",version=\"1\",quantile=\"0.5\"} 100",
        "nv_inference_queue_summary_us{model=\"m\",version=\"1\",quantile=\"0.999\"} 10",
        "nv_inference_compute_input_summary_us{model=\"m\",version=\"1\",quantile=\"0.5\"} 20",
        "nv_inference_compute_infer_summary_us{model=\"m\",version=\"1\",quantile=\"0.5\"} 60",
        "nv_inference_compute_output_summary_us{model=\"m\",version=\"1\",quantile=\"0.5\"} 10"}) {
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
  }
  EXPECT_EQ(page.find("nv_cache_"), page.npos);
}

TEST(MetricsPageTest, AModelWithoutRequestsHasSummariesOfNothing) {
  FakeServer server;
  server.Add(R"(name: "m")").statistics().Configure({.quantiles = {{0.5, 0.05}}});
  EXPECT_TRUE(HasLine(MetricsPage(server),
                      "nv_inference_queue_summary_us{model=\"m\",version=\"1\",quantile=\"0.5\"} "
                      "NaN"));
}

TEST(MetricsPageTest, CachedModelsHaveCacheFamiliesAndNoRequestSummary) {
  FakeServer server;
  auto& model = server.Add(R"(name: "m")");
  model.statistics().Configure({.quantiles = {{0.5, 0.05}}, .has_cache = true});
  model.statistics().RequestSucceeded(kOneRequest);
  model.statistics().CacheMissed(7000);
  model.statistics().RequestCached(0, 3000, 5000);
  model.statistics().RequestCached(0, 3000, 5000);
  const std::string page = MetricsPage(server);
  for (const char* line : {"nv_cache_num_hits_per_model{model=\"m\",version=\"1\"} 2",
                           "nv_cache_num_misses_per_model{model=\"m\",version=\"1\"} 1",
                           "nv_cache_hit_duration_per_model{model=\"m\",version=\"1\"} 6",
                           "nv_cache_miss_duration_per_model{model=\"m\",version=\"1\"} 7",
                           "nv_cache_hit_summary_per_model_sum{model=\"m\",version=\"1\"} 6",
                           "nv_cache_miss_summary_per_model_count{model=\"m\",version=\"1\"} 1",
                           "nv_inference_request_success{model=\"m\",version=\"1\"} 3",
                           "nv_inference_count{model=\"m\",version=\"1\"} 1"}) {
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
  }
  EXPECT_EQ(page.find("nv_inference_request_summary_us"), page.npos);
}

TEST(MetricsPageTest, TimesToTheFirstResponseWhereTheyAreKept) {
  FakeServer server;
  auto& model = server.Add(R"(name: "m")");
  model.statistics().ObserveFirstResponse(1);
  EXPECT_EQ(MetricsPage(server).find("nv_inference_first_response"), std::string::npos);
  model.statistics().Configure({.first_response_ms = {100, 500}});
  model.statistics().ObserveFirstResponse(200'000'000);
  const std::string page = MetricsPage(server);
  const std::string name = "nv_inference_first_response_histogram_ms";
  EXPECT_TRUE(HasLine(page, "# TYPE " + name + " histogram"));
  EXPECT_TRUE(HasLine(page, name + "_bucket{model=\"m\",version=\"1\",le=\"100\"} 0"));
  EXPECT_TRUE(HasLine(page, name + "_bucket{model=\"m\",version=\"1\",le=\"500\"} 1"));
  EXPECT_TRUE(HasLine(page, name + "_count{model=\"m\",version=\"1\"} 1"));
}

TEST(MetricsPageTest, RequestFamiliesComeFromTheStatistics) {
  FakeServer server;
  auto& model = server.Add(R"(name: "m")");
  model.statistics().RequestSucceeded({.received_ns = 1'000'000,
                                       .compute_start_ns = 1'010'000,
                                       .compute_input_end_ns = 1'030'000,
                                       .compute_output_start_ns = 1'090'000,
                                       .finished_ns = 1'100'000});
  model.statistics().RequestFailed(serving::FailureReason::kRejected, 1, 2);
  const std::string page = MetricsPage(server);
  for (const char* line :
       {"# TYPE nv_inference_request_success counter",
        "nv_inference_request_success{model=\"m\",version=\"1\"} 1",
        "# TYPE nv_inference_request_failure counter",
        "nv_inference_request_failure{model=\"m\",reason=\"BACKEND\",version=\"1\"} 0",
        "nv_inference_request_failure{model=\"m\",reason=\"CANCELED\",version=\"1\"} 0",
        "nv_inference_request_failure{model=\"m\",reason=\"OTHER\",version=\"1\"} 0",
        "nv_inference_request_failure{model=\"m\",reason=\"REJECTED\",version=\"1\"} 1",
        "nv_inference_count{model=\"m\",version=\"1\"} 1",
        "nv_inference_exec_count{model=\"m\",version=\"1\"} 1",
        "nv_inference_request_duration_us{model=\"m\",version=\"1\"} 100",
        "nv_inference_queue_duration_us{model=\"m\",version=\"1\"} 10",
        "nv_inference_compute_input_duration_us{model=\"m\",version=\"1\"} 20",
        "nv_inference_compute_infer_duration_us{model=\"m\",version=\"1\"} 60",
        "nv_inference_compute_output_duration_us{model=\"m\",version=\"1\"} 10",
        "# TYPE nv_inference_pending_request_count gauge",
        "nv_inference_pending_request_count{model=\"m\",version=\"1\"} 0"}) {
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
  }
}

TEST(MetricsPageTest, LatenciesAreHistograms) {
  FakeServer server;
  server.Add(R"(name: "m")").statistics().ObserveTtft(3'000'000);
  const std::string page = MetricsPage(server);
  for (const char* line : {"# TYPE inflight_time_to_first_token_ms histogram",
                           "inflight_time_to_first_token_ms_sum{model=\"m\",version=\"1\"} 3",
                           "inflight_time_to_first_token_ms_count{model=\"m\",version=\"1\"} 1",
                           "inflight_inter_token_ms_count{model=\"m\",version=\"1\"} 0",
                           "inflight_queue_ms_count{model=\"m\",version=\"1\"} 0",
                           "inflight_step_ms_count{model=\"m\",version=\"1\"} 0"}) {
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
  }
}

TEST(MetricsPageTest, FailuresMayBeOneSeries) {
  FakeServer server;
  auto& statistics = server.Add(R"(name: "m")").statistics();
  statistics.RequestFailed(serving::FailureReason::kRejected, 1, 2);
  statistics.RequestCancelled(1, 2);
  const std::string page = MetricsPage(server, {.with_failure_reasons = false});
  EXPECT_TRUE(HasLine(page, "nv_inference_request_failure{model=\"m\",version=\"1\"} 2")) << page;
  EXPECT_EQ(page.find("reason="), std::string::npos);
}

// Lines of the page that begin with `prefix`, without HELP and TYPE.
std::vector<std::string> Samples(const std::string& page, const std::string& prefix) {
  std::vector<std::string> samples;
  for (const std::string& line : LinesOf(page)) {
    if (line.starts_with(prefix)) samples.push_back(line);
  }
  return samples;
}

serving::ExecutorGauges SomeGauges(serving::IterationProfile profile) {
  serving::ExecutorGauges gauges{.model = "tensorrt_llm", .version = "1", .profile = profile};
  gauges.stats.tokens_generated = 42;
  gauges.stats.kv_blocks_offloaded = 9;
  gauges.stats.kv_blocks_onboarded = 5;
  gauges.iteration.block_size = 64;
  gauges.iteration.timestamp_us = 1'715'988'519'250'000;
  ExecutorStats& stats = gauges.iteration.stats;
  stats.num_active_requests = 3;
  stats.kv_blocks_max = 8;
  stats.kv_blocks_used = 2;
  stats.cpu_memory_bytes = int64_t{3} << 40;
  return gauges;
}

TEST(MetricsPageTest, ExecutorGaugesHaveSortedLabels) {
  FakeServer server;
  server.gauges = {SomeGauges({.release = 19})};
  const std::string page = MetricsPage(server);
  const std::string tail = "model=\"tensorrt_llm\",version=\"1\"}";
  for (const std::string& line :
       {std::string("nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"active\","
                    "version=\"1\"} 3"),
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"," + tail + " 2",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"," + tail + " 0.25",
        "nv_trt_llm_runtime_memory_metrics{memory_type=\"cpu\"," + tail + " 3298534883328",
        "nv_trt_llm_general_metrics{general_type=\"timestamp\"," + tail + " 1715988519250000",
        std::string("# HELP nv_trt_llm_general_metrics General TRT LLM metrics"),
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"," + tail + " 64",
        "inflight_tokens_generated_total{" + tail + " 42",
        "inflight_kv_blocks_offloaded_total{" + tail + " 9",
        "inflight_kv_blocks_onboarded_total{" + tail + " 5"}) {
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
  }
}

TEST(MetricsPageTest, NewestIterationsHaveGauges) {
  FakeServer server;
  server.gauges = {SomeGauges({.release = 11})};
  serving::Iteration& iteration = server.gauges[0].iteration;
  iteration.stats.last_step_ns = 2'500'000;
  iteration.stats.kv_blocks_reused = 1;
  iteration.stats.kv_blocks_missed = 3;
  iteration.new_active_queue_ns = 1'250'000;
  iteration.num_new_active = 2;
  iteration.num_terminated = 4;
  iteration.rows_decoded = 2;
  iteration.tokens_decoded = 3;
  iteration.max_batch_size = 8;
  const std::string page = MetricsPage(server);
  const auto sample = [](const std::string& statistic) {
    return "inflight_iteration{model=\"tensorrt_llm\",statistic=\"" + statistic +
           "\",version=\"1\"} ";
  };
  for (const std::string& line :
       {sample("latency_ms") + "2.5", sample("new_active_requests") + "2",
        sample("new_active_requests_queue_latency_ms") + "1.25", sample("completed_requests") + "4",
        sample("missed_blocks") + "3", sample("cache_hit_rate") + "0.25",
        sample("avg_decoded_tokens_per_iter") + "1.5", sample("max_batch_size") + "8"}) {
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
  }
  EXPECT_EQ(page.find("_by_stage"), std::string::npos) << "no records of requests are kept";
}

// Who infers and reads this page before and after would learn what others found there.
TEST(MetricsPageTest, WhatWasFoundInTheCacheIsLeftOutWhereItIsNotToBeSeen) {
  FakeServer server;
  server.gauges = {SomeGauges({.release = 16})};
  server.gauges[0].requests = std::make_shared<const RequestStatsPerIteration>();
  const std::string whole = MetricsPage(server, {.with_vllm_names = true});
  const std::string page = MetricsPage(server, {.with_vllm_names = true, .with_reuse = false});
  for (const std::string tells :
       {"inflight_prompt_tokens_cached_total", "inflight_kv_blocks_reused_total",
        "inflight_kv_blocks_missed_total", "inflight_kv_blocks_onboarded_total",
        "kv_cache_block_type=\"reused\"", "statistic=\"alloc_new_blocks\"",
        "statistic=\"missed_blocks\"", "statistic=\"cache_hit_rate\"",
        "inflight_context_tokens_by_stage", "vllm:prefix_cache_hits_total"}) {
    EXPECT_NE(whole.find(tells), std::string::npos) << tells;
    EXPECT_EQ(page.find(tells), std::string::npos) << tells;
  }
  for (const std::string stays :
       {"inflight_prompt_tokens_total", "kv_cache_block_type=\"used\"",
        "statistic=\"alloc_total_blocks\"", "inflight_sequences_by_stage"})
    EXPECT_NE(page.find(stays), std::string::npos) << stays;
}

TEST(MetricsPageTest, RecordsOfRequestsAreSummedByStage) {
  FakeServer server;
  server.gauges = {SomeGauges({.release = 11})};
  using enum RequestStage;
  server.gauges[0].requests = std::make_shared<const RequestStatsPerIteration>(
      RequestStatsPerIteration{.iter = 3,
                               .requests = {{.id = 1,
                                             .stage = kGenerationInProgress,
                                             .context_prefill_position = 10,
                                             .num_generated_tokens = 5},
                                            {.id = 2,
                                             .stage = kGenerationInProgress,
                                             .context_prefill_position = 20,
                                             .num_generated_tokens = 7},
                                            {.id = 3, .stage = kQueued}}});
  const std::string page = MetricsPage(server);
  const auto labels = [](const std::string& stage) {
    return "{model=\"tensorrt_llm\",stage=\"" + stage + "\",version=\"1\"} ";
  };
  const std::string generating = labels("GENERATION_IN_PROGRESS");
  for (const std::string& line :
       {"inflight_sequences_by_stage" + generating + "2",
        "inflight_context_tokens_by_stage" + generating + "30",
        "inflight_generated_tokens_by_stage" + generating + "12",
        "inflight_sequences_by_stage" + labels("QUEUED") + "1",
        "inflight_sequences_by_stage" + labels("GENERATION_COMPLETE") + "0"}) {
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
  }
}

// As many samples as the back-end's own check expects, 17 in flight and 16 of a static batch, and
// the two that routers read.
TEST(MetricsPageTest, FamiliesFollowReleaseAndModelType) {
  FakeServer server;
  server.gauges = {SomeGauges({.release = 11})};
  EXPECT_EQ(Samples(MetricsPage(server), "nv_trt_llm_").size(), 19U);
  server.gauges = {SomeGauges({.release = 11, .is_static_batch = true})};
  const std::string page = MetricsPage(server);
  EXPECT_EQ(Samples(page, "nv_trt_llm_").size(), 18U);
  EXPECT_EQ(Samples(page, "nv_trt_llm_inflight_batcher_metrics").size(), 0U);
  EXPECT_TRUE(HasLine(page,
                      "nv_trt_llm_v1_metrics{model=\"tensorrt_llm\",v1_specific_metric="
                      "\"empty_generation_slots\",version=\"1\"} 0"))
      << page;
  server.gauges = {SomeGauges({.release = 11}), SomeGauges({.release = 11})};
  server.gauges[1].model = "other";
  const std::string two = MetricsPage(server);
  EXPECT_EQ(Samples(two, "nv_trt_llm_").size(), 38U);
  EXPECT_EQ(Samples(two, "# TYPE nv_trt_llm_").size(), 5U);
}

TEST(MetricsPageTest, LengthHistogramsCameWithALaterRelease) {
  FakeServer server;
  server.Add(R"(name: "tensorrt_llm")")
      .statistics()
      .ObserveFinished({.num_prompt_tokens = 3, .num_output_tokens = 50});
  server.gauges = {SomeGauges({.release = 15})};
  EXPECT_EQ(Samples(MetricsPage(server), "nv_llm_").size(), 0U);
  server.gauges = {SomeGauges({.release = 16})};
  const std::string page = MetricsPage(server);
  for (const char* line :
       {"nv_llm_input_token_len_bucket{model=\"tensorrt_llm\",response_metric_type=\"total_input_"
        "tokens\",version=\"1\",le=\"10\"} 1",
        "nv_llm_output_token_len_bucket{model=\"tensorrt_llm\",response_metric_type=\"total_output_"
        "tokens\",version=\"1\",le=\"10\"} 0",
        "nv_llm_output_token_len_bucket{model=\"tensorrt_llm\",response_metric_type=\"total_output_"
        "tokens\",version=\"1\",le=\"50\"} 1",
        "# HELP nv_llm_output_token_len TRT LLM response metrics",
        "inflight_request_output_tokens_sum{model=\"tensorrt_llm\",version=\"1\"} 50"}) {
    EXPECT_TRUE(HasLine(page, line)) << line << "\n" << page;
  }
}

TEST(MetricsPageTest, FinishedRequestsOfExecutorsHaveAReason) {
  FakeServer server;
  serving::ModelStatistics& statistics = server.Add(R"(name: "tensorrt_llm")").statistics();
  server.Add(R"(name: "preprocessing")");
  statistics.ObserveFinished({.latency_ns = 7'000'000, .reason = FinishReason::kStopWords});
  server.gauges = {SomeGauges({.release = 15})};
  const std::string page = MetricsPage(server);
  const std::string labels = "model=\"tensorrt_llm\",version=\"1\"";
  EXPECT_TRUE(HasLine(page, "inflight_request_ms_sum{" + labels + "} 7")) << page;
  EXPECT_EQ(Samples(page, "inflight_requests_finished_total").size(), 4U) << "of the LLM alone";
  for (const char* reason : {"end_id", "stop_words", "length", "cancelled"}) {
    const std::string count = reason == std::string_view("stop_words") ? "1" : "0";
    EXPECT_TRUE(HasLine(page, "inflight_requests_finished_total{finish_reason=\"" +
                                  std::string(reason) + "\"," + labels + "} " + count))
        << page;
  }
}

TEST(MetricsPageTest, ServerWithoutModelsHasAnEmptyPage) {
  FakeServer server;
  EXPECT_EQ(MetricsPage(server), "");
}

TEST(MetricsServerTest, ServesThePageAndEmptyOtherPaths) {
  using http_listener::Get;
  using http_listener::RoundTrip;
  FakeServer fake;
  fake.Add(R"(name: "m")");
  auto server = MetricsServer::Start(fake, {.listener = {.address = "127.0.0.1", .threads = 1}});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const int port = (*server)->port();
  for (const char* path : {"/metrics", "/metrics/", "/metrics?x=1"}) {
    const auto response = RoundTrip(port, Get(path));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.Header("Content-Type"), "text/plain; charset=utf-8");
    EXPECT_TRUE(HasLine(response.body, "nv_inference_count{model=\"m\",version=\"1\"} 0"));
  }
  const auto root = RoundTrip(port, Get("/"));
  EXPECT_EQ(root.status, 200);
  EXPECT_EQ(root.body, "");
  const auto post = RoundTrip(port, http_listener::Post("/metrics", ""));
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.body, R"({"error":"Method Not Allowed"})");
}

}  // namespace
}  // namespace inflight::metrics
