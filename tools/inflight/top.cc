// SPDX-License-Identifier: Apache-2.0
// inflight top: what a server does, by its metrics page, in the terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "asked_server.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"
#include "metrics_text.h"
#include "protocol/http_client/http_client.h"

namespace inflight::tool {
namespace {

constexpr size_t kMaxPageBytes = size_t{16} << 20;

const Usage kUsage = {
    "inflight top [URL]",
    "Shows what the models and GPUs of a server do, by its metrics page, and anew each second; "
    "where the output is no terminal, once. URL is http://127.0.0.1:8002/metrics where it is not "
    "given."};

struct Options {
  int interval_ms = 1000;
  std::string api_key;
  std::string api_key_file;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Top");
  schema.Add(
      "interval_ms", [](Options& o) -> auto& { return o.interval_ms; },
      "Milliseconds between two looks.", config::Range(100, 86400000));
  schema.Add(
      "api_key", [](Options& o) -> auto& { return o.api_key; },
      "Key of the role metrics, where the server asks for one.");
  schema.Add(
      "api_key_file", [](Options& o) -> auto& { return o.api_key_file; },
      "File whose first line is that key, which the list of processes then does not show.");
  return schema;
}

// Of one version of a model.
struct Figures {
  double running = 0, queued = 0, kv_used = 0, kv_max = 0;                          // gauges
  double tokens = 0, prompt_tokens = 0, successes = 0, failures = 0;                // counters
  double first_ms_sum = 0, first_count = 0, between_ms_sum = 0, between_count = 0;  // of histograms
};

// Of a GPU; empty where the page has no such series of it.
struct GpuFigures {
  std::optional<double> utilization;                // 0 to 1
  std::optional<double> memory_used, memory_total;  // bytes, of all processes
  std::optional<double> power_watts, power_limit_watts;
};

struct Look {
  int64_t time_ns = 0;
  std::map<std::string, Figures> models;   // by "name version"
  std::map<std::string, GpuFigures> gpus;  // by UUID
};

std::string Printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  return text;
}

void Count(const MetricSample& sample, Figures& figures) {
  static const std::map<std::string, double Figures::*, std::less<>> kByFamily = {
      {"inflight_tokens_generated_total", &Figures::tokens},
      {"inflight_prompt_tokens_total", &Figures::prompt_tokens},
      {"nv_inference_request_success", &Figures::successes},
      {"nv_inference_request_failure", &Figures::failures},
      {"inflight_time_to_first_token_ms_sum", &Figures::first_ms_sum},
      {"inflight_time_to_first_token_ms_count", &Figures::first_count},
      {"inflight_inter_token_ms_sum", &Figures::between_ms_sum},
      {"inflight_inter_token_ms_count", &Figures::between_count}};
  if (const auto found = kByFamily.find(sample.family); found != kByFamily.end())
    figures.*found->second += sample.value;
  const auto is = [&](const char* family, const char* label, const char* value) {
    return sample.family == family && sample.Has(label, value);
  };
  constexpr char kRequests[] = "nv_trt_llm_request_metrics";
  constexpr char kBlocks[] = "nv_trt_llm_kv_cache_block_metrics";
  if (is(kRequests, "request_type", "active")) figures.running += sample.value;
  if (is(kBlocks, "kv_cache_block_type", "used")) figures.kv_used += sample.value;
  if (is(kBlocks, "kv_cache_block_type", "max")) figures.kv_max += sample.value;
  if (sample.family == "nv_inference_pending_request_count") figures.queued += sample.value;
}

// Models on a GPU have the label gpu_uuid too: the family decides.
void CountGpu(const MetricSample& sample, std::map<std::string, GpuFigures>& gpus) {
  static const std::map<std::string, std::optional<double> GpuFigures::*, std::less<>> kByFamily = {
      {"nv_gpu_utilization", &GpuFigures::utilization},
      {"nv_gpu_memory_used_bytes", &GpuFigures::memory_used},
      {"nv_gpu_memory_total_bytes", &GpuFigures::memory_total},
      {"nv_gpu_power_usage", &GpuFigures::power_watts},
      {"nv_gpu_power_limit", &GpuFigures::power_limit_watts}};
  const auto found = kByFamily.find(sample.family);
  const auto uuid = sample.labels.find("gpu_uuid");
  if (found == kByFamily.end() || uuid == sample.labels.end()) return;
  gpus[Printable(uuid->second)].*found->second = sample.value;
}

// `shown`: the address as text.
Result<Look> LookAt(const http_client::Url& url, const std::string& shown, const Options& options) {
  http_client::Request request{.url = url, .method = "GET", .max_answer_bytes = kMaxPageBytes};
  if (!options.api_key.empty())
    request.headers.emplace_back("Authorization", "Bearer " + options.api_key);
  const auto asked = http_client::Ask(std::move(request));
  if (!asked.ok()) return Unavailable(shown + ": " + asked.status().message() + kNoServer);
  const http_client::Answer& answer = *asked;
  if (answer.status == 401)
    return Unavailable(shown +
                       ": the server answers with status 401; --api-key-file names the file of a "
                       "key");
  if (answer.status != 200)
    return Unavailable(
        fmt::format("{}: the server answers with status {}; needed is its metrics page, "
                    "as http://127.0.0.1:8002/metrics",
                    shown, answer.status));
  Look look{.time_ns = Clock::System().NowNs(), .models = {}, .gpus = {}};
  for (const MetricSample& sample : ParseMetrics(answer.body)) {
    CountGpu(sample, look.gpus);
    const auto model = sample.labels.find("model");
    if (model == sample.labels.end()) continue;
    const auto version = sample.labels.find("version");
    const std::string number = version == sample.labels.end() ? "" : " " + version->second;
    Count(sample, look.models[Printable(model->second + number)]);
  }
  return look;
}

std::string Ratio(double value, double by, const char* format = "{:.1f}") {
  return by > 0 ? fmt::format(fmt::runtime(format), value / by) : "-";
}

std::string InUnits(std::optional<double> value, double unit) {
  return value ? fmt::format("{:.1f}", *value / unit) : "-";
}

// Nothing where the server reads no GPU.
std::string GpuTableOf(const Look& look) {
  if (look.gpus.empty()) return "";
  constexpr double kGiB = 1 << 30;
  constexpr double kPercent = 0.01;
  std::string text = fmt::format("\n{:<40} {:>6} {:>8} {:>8} {:>8} {:>8}\n", "GPU", "busy %",
                                 "used GiB", "of GiB", "power W", "of W");
  for (const auto& [uuid, gpu] : look.gpus)
    text += fmt::format("{:<40.40} {:>6} {:>8} {:>8} {:>8} {:>8}\n", uuid,
                        InUnits(gpu.utilization, kPercent), InUnits(gpu.memory_used, kGiB),
                        InUnits(gpu.memory_total, kGiB), InUnits(gpu.power_watts, 1),
                        InUnits(gpu.power_limit_watts, 1));
  return text;
}

std::string ModelTableOf(const Look& look, const Look* before) {
  std::string text = fmt::format("{:<28} {:>7} {:>6} {:>9} {:>9} {:>6} {:>9} {:>8} {:>9} {:>7}\n",
                                 "model", "running", "queued", "tokens/s", "prompt/s", "KV %",
                                 "first ms", "token ms", "answered", "failed");
  const double seconds =
      before == nullptr ? 0 : static_cast<double>(look.time_ns - before->time_ns) * 1e-9;
  for (const auto& [name, now] : look.models) {
    Figures then;
    if (before != nullptr)
      if (const auto found = before->models.find(name); found != before->models.end())
        then = found->second;
    text += fmt::format(
        "{:<28.28} {:>7} {:>6} {:>9} {:>9} {:>6} {:>9} {:>8} {:>9} {:>7}\n", name, now.running,
        now.queued, Ratio(now.tokens - then.tokens, seconds),
        Ratio(now.prompt_tokens - then.prompt_tokens, seconds),
        Ratio(100 * now.kv_used, now.kv_max),
        Ratio(now.first_ms_sum - then.first_ms_sum, now.first_count - then.first_count),
        Ratio(now.between_ms_sum - then.between_ms_sum, now.between_count - then.between_count),
        now.successes, now.failures);
  }
  return look.models.empty() ? text + "no models yet\n" : text;
}

// Rates and times are of what came since `before`, times of all where there is none.
std::string TableOf(const Look& look, const Look* before) {
  return ModelTableOf(look, before) + GpuTableOf(look);
}

Status RunTop(Options& options, std::span<const std::string> positionals) {
  if (positionals.size() > 1) return UsageError(kUsage, "one URL is needed");
  std::string text = positionals.empty() ? "http://127.0.0.1:8002/metrics" : positionals[0];
  if (text.find("://") == std::string::npos) text = "http://" + text;
  ASSIGN_OR_RETURN(http_client::Url url, http_client::ParseUrl(text));
  if (url.path.empty() || url.path == "/") {
    url.path = "/metrics";
    text += text.ends_with('/') ? "metrics" : "/metrics";
  }
  if (!options.api_key_file.empty()) {
    ASSIGN_OR_RETURN(options.api_key, KeyIn(options.api_key_file));
  }
  ASSIGN_OR_RETURN(Look look, LookAt(url, text, options));
  if (isatty(STDOUT_FILENO) == 0) {
    std::fputs(TableOf(look, nullptr).c_str(), stdout);
    return Status::Ok();
  }
  constexpr char kClear[] = "\x1b[H\x1b[2J";
  std::optional<Look> before;
  while (std::ferror(stdout) == 0) {
    fmt::print("{}{}\n\n{}\nCtrl-C ends.\n", kClear, Printable(text),
               TableOf(look, before ? &*before : nullptr));
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(options.interval_ms));
    auto next = LookAt(url, text, options);
    if (!next.ok()) return next.status();
    before = std::exchange(look, *std::move(next));
  }
  return Status::Ok();
}

}  // namespace

int TopMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), RunTop); }

Manual TopManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
