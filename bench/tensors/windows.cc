// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/windows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace inflight::bench {
namespace {

double MeanUs(const std::vector<Sample>& samples, int64_t Sample::*member) {
  if (samples.empty()) return 0;
  double sum = 0;
  for (const Sample& sample : samples) sum += static_cast<double>(sample.*member);
  return sum / static_cast<double>(samples.size()) * 1e-3;
}

double DeviationUs(const std::vector<Sample>& samples, double mean_us) {
  if (samples.empty()) return 0;
  double sum = 0;
  for (const Sample& sample : samples) {
    const double distance = static_cast<double>(sample.latency_ns) * 1e-3 - mean_us;
    sum += distance * distance;
  }
  return std::sqrt(sum / static_cast<double>(samples.size()));
}

bool AreNear(const std::vector<double>& values, double share) {
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return std::ranges::all_of(values,
                             [&](double value) { return std::abs(value - mean) <= share * mean; });
}

}  // namespace

Sample SampleOf(const RequestOutcome& o) {
  return {.latency_ns = o.end_ns - o.sent_ns,
          .send_ns = o.written_ns == 0 ? 0 : o.written_ns - o.sent_ns,
          .receive_ns = o.answer_ns == 0 ? 0 : o.end_ns - o.answer_ns,
          .delay_ns = o.sent_ns - o.due_ns,
          .first_ns = o.first_ns == 0 ? 0 : o.first_ns - o.sent_ns,
          .num_responses = o.num_chunks};
}

double Figures::Latency(std::optional<int> percentile) const {
  return percentile ? percentiles.at(*percentile) : latency;
}

Figures Summarize(const std::vector<Window>& windows, int batch_size,
                  std::optional<int> percentile) {
  Figures figures;
  std::vector<Sample> samples;
  double seconds = 0;
  for (const Window& window : windows) {
    seconds += window.seconds;
    samples.insert(samples.end(), window.samples.begin(), window.samples.end());
    for (const auto& [kind, count] : window.errors) figures.errors[kind] += count;
    for (const auto& [name, counters] : window.server)
      figures.server[name] = figures.server[name] + counters;
  }
  figures.num_requests = static_cast<int64_t>(samples.size());
  int64_t num_responses = 0;
  std::vector<Sample> streamed;
  for (const Sample& sample : samples) {
    num_responses += sample.num_responses;
    if (sample.first_ns > 0) streamed.push_back(sample);
  }
  if (seconds > 0) {
    figures.inferences_per_s = static_cast<double>(samples.size()) * batch_size / seconds;
    figures.responses_per_s = static_cast<double>(num_responses) / seconds;
  }
  figures.latency = MeanUs(samples, &Sample::latency_ns);
  figures.deviation = DeviationUs(samples, figures.latency);
  figures.send = MeanUs(samples, &Sample::send_ns);
  figures.receive = MeanUs(samples, &Sample::receive_ns);
  figures.delay = MeanUs(samples, &Sample::delay_ns);
  figures.first_response = MeanUs(streamed, &Sample::first_ns);
  std::ranges::sort(samples, {}, &Sample::latency_ns);
  std::vector<int> wanted = {50, 90, 95, 99};
  if (percentile) wanted.push_back(*percentile);
  for (const int p : wanted) {
    // The smallest latency that at least p percent do not exceed.
    const size_t rank = (samples.size() * static_cast<size_t>(p) + 99) / 100;
    figures.percentiles[p] =
        samples.empty()
            ? 0
            : static_cast<double>(samples[std::max<size_t>(rank, 1) - 1].latency_ns) * 1e-3;
  }
  return figures;
}

bool IsStable(const std::vector<Window>& windows, double share, std::optional<int> percentile) {
  if (windows.size() < kStableWindows) return false;
  std::vector<double> rates, latencies;
  for (auto window = windows.end() - kStableWindows; window != windows.end(); ++window) {
    const Figures figures = Summarize({*window}, 1, percentile);
    if (figures.num_requests == 0) return false;
    rates.push_back(figures.inferences_per_s);
    latencies.push_back(figures.Latency(percentile));
  }
  return AreNear(rates, share) && AreNear(latencies, share);
}

}  // namespace inflight::bench
