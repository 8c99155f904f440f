// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/measure_report.h"

#include <gtest/gtest.h>

namespace inflight::bench {
namespace {

LevelResult LevelOf(double level, double inferences_per_s) {
  LevelResult result{.level = level, .is_stable = true, .figures = {}};
  Figures& f = result.figures;
  f.num_requests = 8;
  f.inferences_per_s = inferences_per_s;
  f.latency = 500;
  f.deviation = 20;
  f.send = 3;
  f.receive = 7;
  f.percentiles = {{50, 490}, {90, 520}, {95, 530}, {99, 540}};
  f.server["m"] = {.num_inferences = 16,
                   .num_executions = 4,
                   .num_successes = 8,
                   .success_ns = 8 * 400'000,
                   .queue_ns = 8 * 100'000,
                   .input_ns = 8 * 10'000,
                   .infer_ns = 8 * 200'000,
                   .output_ns = 8 * 30'000};
  return result;
}

const ServedModel kModel = {.name = "m", .version = "1"};

TEST(MeasureReportTest, LevelHasWhatClientAndServerSaw) {
  EXPECT_EQ(LevelText({}, {}, kModel, LevelOf(4, 1234.5)),
            "Request concurrency: 4\n"
            "  Client: \n"
            "    Request count: 8\n"
            "    Throughput: 1234.5 infer/sec\n"
            "    Avg latency: 500 usec (standard deviation 20 usec)\n"
            "    p50 latency: 490 usec\n"
            "    p90 latency: 520 usec\n"
            "    p95 latency: 530 usec\n"
            "    p99 latency: 540 usec\n"
            "    Avg HTTP time: 500 usec (send 3 usec + response wait 490 usec + receive 7 usec)\n"
            "  Server: \n"
            "    Inference count: 16\n"
            "    Execution count: 4\n"
            "    Successful request count: 8\n"
            "    Avg request latency: 400 usec (overhead 60 usec + queue 100 usec + compute input "
            "10 usec + compute infer 200 usec + compute output 30 usec)\n"
            "\n");
}

TEST(MeasureReportTest, RowsStandByRisingThroughput) {
  EXPECT_EQ(ResultsCsv({}, kModel, {LevelOf(1, 900), LevelOf(2, 700.5)}),
            "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
            "Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,"
            "p50 latency,p90 latency,p95 latency,p99 latency\n"
            "2,700.5,3,150,100,10,200,30,7,490,520,530,540\n"
            "1,900,3,150,100,10,200,30,7,490,520,530,540\n");
}

TEST(MeasureReportTest, APercentileTakesThePlaceOfTheAverage) {
  MeasureOptions options;
  options.percentile = 95;
  EXPECT_EQ(SummaryText(options, {LevelOf(1, 900)}),
            "Inferences/Second vs. Client p95 Batch Latency\n"
            "Concurrency: 1, throughput: 900 infer/sec, latency 530 usec\n");
  EXPECT_EQ(LevelText(options, {}, kModel, LevelOf(1, 900)).find("Avg latency"), std::string::npos);
  options.percentile = {};
  EXPECT_EQ(SummaryText(options, {LevelOf(1, 900)}),
            "Inferences/Second vs. Client Average Batch Latency\n"
            "Concurrency: 1, throughput: 900 infer/sec, latency 500 usec\n");
}

}  // namespace
}  // namespace inflight::bench
