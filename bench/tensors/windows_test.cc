// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/windows.h"

#include <gtest/gtest.h>

namespace inflight::bench {
namespace {

Window WindowOf(double seconds, std::initializer_list<int64_t> latencies_us) {
  Window window{.seconds = seconds, .samples = {}, .errors = {}, .server = {}};
  for (const int64_t us : latencies_us)
    window.samples.push_back({.latency_ns = us * 1000, .num_responses = 2});
  return window;
}

TEST(WindowsTest, FiguresAreThoseOfAllRequestsOfTheWindows) {
  std::vector<Window> windows = {WindowOf(1, {100, 300}), WindowOf(3, {200, 400, 500})};
  windows[0].server["m"] = {.num_inferences = 2, .success_ns = 5};
  windows[1].server["m"] = {.num_inferences = 3, .success_ns = 7};
  windows[1].errors["HTTP 400"] = 2;
  const Figures figures = Summarize(windows, /*batch_size=*/4, 20);
  EXPECT_EQ(figures.num_requests, 5);
  EXPECT_DOUBLE_EQ(figures.inferences_per_s, 5 * 4 / 4.0);
  EXPECT_DOUBLE_EQ(figures.responses_per_s, 10 / 4.0);
  EXPECT_DOUBLE_EQ(figures.latency, 300);
  EXPECT_NEAR(figures.deviation, 141.421, 1e-3);  // sqrt((200^2 + 0 + 100^2 + 100^2 + 200^2) / 5)
  EXPECT_EQ(figures.percentiles,
            (std::map<int, double>{{20, 100}, {50, 300}, {90, 500}, {95, 500}, {99, 500}}));
  EXPECT_EQ(figures.Latency(20), 100);
  EXPECT_EQ(figures.Latency(std::nullopt), 300);
  EXPECT_EQ(figures.server.at("m").num_inferences, 5);
  EXPECT_EQ(figures.server.at("m").success_ns, 12);
  EXPECT_EQ(figures.errors.at("HTTP 400"), 2);
}

TEST(WindowsTest, TimesOfARequestAreDifferencesOfItsInstants) {
  RequestOutcome outcome;
  outcome.due_ns = 50;
  outcome.sent_ns = 100;
  outcome.written_ns = 130;
  outcome.answer_ns = 900;
  outcome.first_ns = 500;
  outcome.end_ns = 1000;
  outcome.num_chunks = 3;
  const Sample sample = SampleOf(outcome);
  EXPECT_EQ(sample.latency_ns, 900);
  EXPECT_EQ(sample.send_ns, 30);
  EXPECT_EQ(sample.receive_ns, 100);
  EXPECT_EQ(sample.delay_ns, 50);
  EXPECT_EQ(sample.first_ns, 400);
  EXPECT_EQ(sample.num_responses, 3);
}

TEST(WindowsTest, ThreeWindowsNearTheirMeanAreStable) {
  const Window ten = WindowOf(1, {100, 100, 100, 100, 100, 100, 100, 100, 100, 100});
  const Window nine = WindowOf(1, {100, 100, 100, 100, 100, 100, 100, 100, 100});
  const Window slow = WindowOf(1, {200, 200, 200, 200, 200, 200, 200, 200, 200, 200});
  EXPECT_FALSE(IsStable({ten, ten}, 0.1, std::nullopt));
  EXPECT_TRUE(IsStable({ten, ten, ten}, 0, std::nullopt));
  EXPECT_TRUE(IsStable({slow, ten, nine, ten}, 0.1, std::nullopt));  // the first is forgotten
  EXPECT_FALSE(IsStable({ten, nine, ten}, 0.05, std::nullopt));      // throughput: mean 9.67
  EXPECT_FALSE(IsStable({ten, slow, ten}, 0.3, std::nullopt));       // latency: mean 133
  EXPECT_FALSE(IsStable({ten, WindowOf(1, {}), ten}, 1, std::nullopt));
}

TEST(WindowsTest, APercentileDecidesInsteadOfTheAverage) {
  const Window flat = WindowOf(1, {100, 100, 100, 100});
  const Window tail = WindowOf(1, {100, 100, 100, 900});
  EXPECT_FALSE(IsStable({flat, tail, flat}, 0.1, std::nullopt));
  EXPECT_TRUE(IsStable({flat, tail, flat}, 0.1, 50));
  EXPECT_FALSE(IsStable({flat, tail, flat}, 0.1, 99));
}

}  // namespace
}  // namespace inflight::bench
