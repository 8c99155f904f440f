// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/measure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace inflight::bench {
namespace {

using nlohmann::ordered_json;

// What a request took in the server, on average.
struct ServerTimes {
  double request = 0, queue = 0, input = 0, infer = 0, output = 0;
  double overhead() const { return std::max(0.0, request - queue - input - infer - output); }
};

ServerTimes TimesOf(const ModelCounters& counters) {
  if (counters.num_successes == 0) return {};
  const auto us = [&](int64_t ns) {
    return static_cast<double>(ns) * 1e-3 / static_cast<double>(counters.num_successes);
  };
  return {us(counters.success_ns), us(counters.queue_ns), us(counters.input_ns),
          us(counters.infer_ns), us(counters.output_ns)};
}

std::string ServerText(const ModelCounters& counters, const std::string& indent) {
  const ServerTimes t = TimesOf(counters);
  return fmt::format(
      "{0}Inference count: {1}\n{0}Execution count: {2}\n{0}Successful request count: {3}\n"
      "{0}Avg request latency: {4:.0f} usec (overhead {5:.0f} usec + queue {6:.0f} usec + compute "
      "input {7:.0f} usec + compute infer {8:.0f} usec + compute output {9:.0f} usec)\n",
      indent, counters.num_inferences, counters.num_executions, counters.num_successes, t.request,
      t.overhead(), t.queue, t.input, t.infer, t.output);
}

ModelCounters CountersOf(const Figures& figures, const std::string& name) {
  const auto found = figures.server.find(name);
  return found == figures.server.end() ? ModelCounters() : found->second;
}

std::string LatencyName(const MeasureOptions& options, const char* average) {
  return options.percentile ? fmt::format("p{}", *options.percentile) : average;
}

const char* LevelName(const MeasureOptions& options) {
  return options.is_rate ? "Request Rate" : "Concurrency";
}

}  // namespace

std::string SettingsText(const MeasureOptions& options) {
  std::string text =
      fmt::format("*** Measurement Settings ***\n  Batch size: {}\n  Service Kind: TRITON\n",
                  options.batch_size);
  if (options.num_requests > 0) {
    text += fmt::format("  Requests of each level: {}\n", options.num_requests);
  } else {
    const bool counts = options.window_requests > 0;
    text += fmt::format("  Using \"{}\" mode for stabilization\n",
                        counts ? "count_windows" : "time_windows");
    text += fmt::format("  Stabilizing using {}latency and throughput\n",
                        LatencyName(options, "average ") + (options.percentile ? " " : ""));
    text += counts ? fmt::format("  Minimum number of samples in each window: {}\n",
                                 options.window_requests)
                   : fmt::format("  Measurement window: {} msec\n", options.interval_ms);
  }
  if (options.latency_limit_us > 0)
    text += fmt::format("  Latency limit: {:.0f} msec\n", options.latency_limit_us * 1e-3);
  if (options.levels.size() > 1)
    text += options.is_rate ? fmt::format("  Request Rate limit: {:g} requests per seconds\n",
                                          options.levels.back())
                            : fmt::format("  Concurrency limit: {:g} concurrent requests\n",
                                          options.levels.back());
  if (options.is_rate)
    text += fmt::format("  Using {} distribution on request generation\n",
                        options.is_poisson ? "poisson" : "uniform");
  return text + "  Using asynchronous calls for inference\n\n";
}

std::string LevelText(const MeasureOptions& options, const ReportOptions& report,
                      const ServedModel& model, const LevelResult& result) {
  const Figures& f = result.figures;
  std::string text =
      options.is_rate
          ? fmt::format("Request Rate: {:g} inference requests per seconds\n", result.level)
          : fmt::format("Request concurrency: {:g}\n", result.level);
  text += fmt::format("  Client: \n    Request count: {}\n", f.num_requests);
  int num_failed = 0;
  for (const auto& [kind, count] : f.errors) num_failed += count;
  if (num_failed > 0) text += fmt::format("    Failed request count: {}\n", num_failed);
  for (const auto& [kind, count] : f.errors) text += fmt::format("      {} x {}\n", count, kind);
  text += fmt::format("    Throughput: {:.6g} infer/sec\n", f.inferences_per_s);
  if (report.is_streaming)
    text += fmt::format("    Response Throughput: {:.6g} infer/sec\n", f.responses_per_s);
  if (options.is_rate) text += fmt::format("    Avg send delay: {:.0f} usec\n", f.delay);
  if (!options.percentile)
    text += fmt::format("    Avg latency: {:.0f} usec (standard deviation {:.0f} usec)\n",
                        f.latency, f.deviation);
  for (const auto& [percent, latency] : f.percentiles)
    text += fmt::format("    p{} latency: {:.0f} usec\n", percent, latency);
  if (f.first_response > 0)
    text += fmt::format("    Avg first response: {:.0f} usec\n", f.first_response);
  text += fmt::format(
      "    Avg {} time: {:.0f} usec ({} {:.0f} usec + response wait {:.0f} usec + {} {:.0f} "
      "usec)\n",
      report.is_grpc ? "gRPC" : "HTTP", f.latency, report.is_grpc ? "marshal" : "send", f.send,
      std::max(0.0, f.latency - f.send - f.receive), report.is_grpc ? "unmarshal" : "receive",
      f.receive);
  text += "  Server: \n" + ServerText(CountersOf(f, model.name), "    ");
  if (!model.composing.empty()) text += "\n  Composing models: \n";
  for (const std::string& name : model.composing)
    text += fmt::format("  {}: \n{}", name, ServerText(CountersOf(f, name), "      "));
  if (!result.is_stable)
    text += fmt::format(
        "  Failed to obtain stable measurement within {} measurement windows for {} {:g}. Please "
        "try to increase the --measurement-interval.\n",
        options.max_windows, options.is_rate ? "request rate" : "concurrency", result.level);
  return text + "\n";
}

std::string SummaryText(const MeasureOptions& options, const std::vector<LevelResult>& results) {
  std::string text = fmt::format("Inferences/Second vs. Client {} Batch Latency\n",
                                 LatencyName(options, "Average"));
  for (const LevelResult& result : results)
    text += fmt::format("{}: {:g}, throughput: {:.6g} infer/sec, latency {:.0f} usec\n",
                        LevelName(options), result.level, result.figures.inferences_per_s,
                        result.figures.Latency(options.percentile));
  return text;
}

std::string ResultsCsv(const MeasureOptions& options, const ServedModel& model,
                       std::vector<LevelResult> results) {
  std::string text = fmt::format(
      "{},Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute "
      "Input,Server Compute Infer,Server Compute Output,Client Recv",
      LevelName(options));
  if (results.empty()) return text + "\n";
  for (const auto& [percent, unused] : results[0].figures.percentiles)
    text += fmt::format(",p{} latency", percent);
  text += "\n";
  std::ranges::stable_sort(results, {},
                           [](const LevelResult& r) { return r.figures.inferences_per_s; });
  for (const LevelResult& result : results) {
    const Figures& f = result.figures;
    const ServerTimes t = TimesOf(CountersOf(f, model.name));
    const double elsewhere =
        f.latency - f.send - f.receive - t.queue - t.input - t.infer - t.output;
    text += fmt::format("{:g},{:.6g},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f}",
                        result.level, f.inferences_per_s, f.send, std::max(0.0, elsewhere), t.queue,
                        t.input, t.infer, t.output, f.receive);
    for (const auto& [unused, latency] : f.percentiles) text += fmt::format(",{:.0f}", latency);
    text += "\n";
  }
  return text;
}

std::string ResultsJson(const MeasureOptions& options, const ServedModel& model,
                        const std::vector<LevelResult>& results) {
  ordered_json levels = ordered_json::array();
  for (const LevelResult& result : results) {
    const Figures& f = result.figures;
    ordered_json percentiles = ordered_json::object();
    for (const auto& [percent, latency] : f.percentiles)
      percentiles[fmt::format("p{}", percent)] = latency;
    ordered_json errors = ordered_json::object();
    for (const auto& [kind, count] : f.errors) errors[kind] = count;
    ordered_json server = ordered_json::object();
    for (const auto& [name, counters] : f.server) {
      const ServerTimes t = TimesOf(counters);
      server[name] = {{"inference_count", counters.num_inferences},
                      {"execution_count", counters.num_executions},
                      {"success_count", counters.num_successes},
                      {"request_us", t.request},
                      {"queue_us", t.queue},
                      {"compute_input_us", t.input},
                      {"compute_infer_us", t.infer},
                      {"compute_output_us", t.output}};
    }
    levels.push_back({{options.is_rate ? "request_rate" : "concurrency", result.level},
                      {"is_stable", result.is_stable},
                      {"request_count", f.num_requests},
                      {"errors", errors},
                      {"inferences_per_s", f.inferences_per_s},
                      {"responses_per_s", f.responses_per_s},
                      {"latency_us", f.latency},
                      {"deviation_us", f.deviation},
                      {"percentiles_us", percentiles},
                      {"first_response_us", f.first_response},
                      {"send_us", f.send},
                      {"receive_us", f.receive},
                      {"send_delay_us", f.delay},
                      {"server", server}});
  }
  const ordered_json report = {{"model", model.name},
                               {"version", model.version},
                               {"batch_size", options.batch_size},
                               {"levels", levels}};
  return report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace inflight::bench
