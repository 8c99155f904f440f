// SPDX-License-Identifier: Apache-2.0
// What the client saw, as a table and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/load/load.h"

namespace inflight::bench {
namespace {

using nlohmann::ordered_json;

struct Summary {
  size_t num_ok = 0;
  int64_t num_tokens = 0;
  std::map<std::string, int> errors;
  // Milliseconds. Latencies count from when a request was due, so that a client that falls behind
  // does not hide it.
  std::vector<double> delay, ttft, gap, per_token, total;
};

Summary Summarize(const LoadResult& result) {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  Summary s;
  for (const RequestOutcome& o : result.outcomes) {
    if (!o.error.empty()) {
      ++s.errors[o.error];
      continue;
    }
    ++s.num_ok;
    s.num_tokens += o.num_tokens;
    s.delay.push_back(ms(o.sent_ns - o.due_ns));
    s.total.push_back(ms(o.end_ns - o.due_ns));
    if (o.first_ns == 0) continue;
    s.ttft.push_back(ms(o.first_ns - o.due_ns));
    for (const int64_t gap : o.gaps_ns) s.gap.push_back(ms(gap));
    const int64_t decode_ns = std::accumulate(o.gaps_ns.begin(), o.gaps_ns.end(), int64_t{0});
    if (o.num_tokens > 1) s.per_token.push_back(ms(decode_ns) / (o.num_tokens - 1));
  }
  for (auto* values : {&s.delay, &s.ttft, &s.gap, &s.per_token, &s.total})
    std::sort(values->begin(), values->end());
  return s;
}

// The smallest value that at least the share `q` of all does not exceed.
double Percentile(const std::vector<double>& sorted, double q) {
  const double rank = std::ceil(q * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(1.0, rank)) - 1];
}

constexpr std::pair<const char*, double> kPercentiles[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"max", 1.0}};

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

ordered_json Spread(const std::vector<double>& sorted) {
  if (sorted.empty()) return nullptr;
  ordered_json out = {{"count", sorted.size()}, {"mean", Mean(sorted)}};
  for (const auto& [name, q] : kPercentiles) out[name] = Percentile(sorted, q);
  return out;
}

std::string Row(const char* name, const std::vector<double>& sorted) {
  if (sorted.empty()) return {};
  std::string row = fmt::format("{:<22}{:>10.2f}", name, Mean(sorted));
  for (const auto& [unused, q] : kPercentiles)
    row += fmt::format("{:>10.2f}", Percentile(sorted, q));
  return row + "\n";
}

const char* ProtocolName(LoadProtocol protocol) {
  switch (protocol) {
    case LoadProtocol::kInfer:
      return "infer";
    case LoadProtocol::kGenerate:
      return "generate";
    case LoadProtocol::kGenerateStream:
      return "generate_stream";
    case LoadProtocol::kGrpcStream:
      return "grpc";
  }
  return "";
}

}  // namespace

std::string LoadReportText(const LoadOptions& options, const LoadResult& result) {
  const Summary s = Summarize(result);
  std::string out = fmt::format(
      "{} of {} at {}:{}, {}\n", ProtocolName(options.protocol), options.model, options.host,
      options.port,
      options.request_rate > 0
          ? fmt::format("{} requests/s (Poisson, seed {})", options.request_rate, options.seed)
          : fmt::format("{} at once", options.concurrency));
  out += fmt::format("{} requests, {} answered, {} failed, in {:.3f} s; client CPU {:.3f} s\n",
                     result.outcomes.size(), s.num_ok, result.outcomes.size() - s.num_ok,
                     result.wall_s, result.cpu_s);
  for (const auto& [kind, count] : s.errors) out += fmt::format("  {} x {}\n", count, kind);
  out += fmt::format("{:.2f} requests/s", static_cast<double>(s.num_ok) / result.wall_s);
  if (s.num_tokens > 0)
    out += fmt::format(", {:.2f} tokens/s", static_cast<double>(s.num_tokens) / result.wall_s);
  out += fmt::format("\n\n{:<22}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ms", "mean", "p50", "p90",
                     "p95", "p99", "max");
  out += Row("first token", s.ttft);
  out += Row("between responses", s.gap);
  out += Row("per output token", s.per_token);
  out += Row("whole answer", s.total);
  out += Row("sent late by", s.delay);
  return out;
}

std::string LoadReportJson(const LoadOptions& options, const LoadResult& result) {
  const Summary s = Summarize(result);
  ordered_json errors = ordered_json::object();
  for (const auto& [kind, count] : s.errors) errors[kind] = count;
  const ordered_json report = {{"protocol", ProtocolName(options.protocol)},
                               {"model", options.model},
                               {"concurrency", options.concurrency},
                               {"request_rate", options.request_rate},
                               {"seed", options.seed},
                               {"num_requests", result.outcomes.size()},
                               {"num_answered", s.num_ok},
                               {"errors", errors},
                               {"wall_s", result.wall_s},
                               {"client_cpu_s", result.cpu_s},
                               {"num_tokens", s.num_tokens},
                               {"requests_per_s", static_cast<double>(s.num_ok) / result.wall_s},
                               {"tokens_per_s", static_cast<double>(s.num_tokens) / result.wall_s},
                               {"ttft_ms", Spread(s.ttft)},
                               {"inter_response_ms", Spread(s.gap)},
                               {"per_output_token_ms", Spread(s.per_token)},
                               {"end_to_end_ms", Spread(s.total)},
                               {"send_delay_ms", Spread(s.delay)}};
  return report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace inflight::bench
