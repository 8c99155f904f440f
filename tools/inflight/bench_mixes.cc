// SPDX-License-Identifier: Apache-2.0
// inflight bench mixes: what decoding features cost the steps that they share with plain rows. Each
// mix runs in turns with its counterpart, so that a machine that slows down slows both.
#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <random>

#include "base/log.h"
#include "base/status_macros.h"
#include "bench/limits/limits.h"
#include "bench_runs.h"
#include "command_line.h"
#include "commands.h"
#include "random_model.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight bench mixes DIR | --shape llama-3.2-1b [--batch 16]",
    "Measures what decoding features cost a step: one row that uses every one beside plain rows, "
    "log-probs of all rows, and beams\nagainst as many sampled rows; prints CSV."};

struct Options {
  ModelOptions model{.executor = {.step_time_goal_ms = 60000}};  // whole prompts in one step
  std::string shape;
  int batch = 16;
  int input_len = 128;
  int output_len = 64;
  int repeats = 5;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Bench");
  AddShape(schema);
  schema.Add(
      "batch", [](Options& o) -> auto& { return o.batch; }, "Sequences of a step.",
      config::Range(2, 1024));
  schema.Add(
      "input_len", [](Options& o) -> auto& { return o.input_len; }, "Tokens of each prompt.",
      config::Range(1, 1 << 20));
  schema.Add(
      "output_len", [](Options& o) -> auto& { return o.output_len; },
      "Tokens generated for each prompt.", config::Range(8, 1 << 20));
  schema.Add(
      "repeats", [](Options& o) -> auto& { return o.repeats; },
      "Pairs of runs of each mix and its counterpart.", config::Range(1, 1000));
  schema.Section("Engine");
  AddModel(schema);
  return schema;
}

using Requests = std::vector<Request>;
using Change = std::function<void(Request&)>;

struct Mix {
  std::string name;
  int num_rows;   // of a step
  double limit;   // of the ratio, as the project asks
  Requests with;  // the feature
  Requests without;
};

class Bench {
 public:
  Bench(const Options& options, const loader::Loaded& model, StepLog& log)
      : options_(options), model_(model), log_(log) {}

  std::vector<Mix> Mixes() const;
  Status RunMix(const Mix& mix) const;

 private:
  Request Plain(int i) const;
  Requests Rows(int count, const Change& change = {}) const;
  Change Everything() const;
  Result<double> MedianStepMs(const Requests& requests, int num_rows) const;

  const Options& options_;
  const loader::Loaded& model_;
  StepLog& log_;
};

Request Bench::Plain(int i) const {
  const auto vocab_size = static_cast<uint32_t>(model_.engine->config.vocab_size);
  std::mt19937 random(static_cast<uint32_t>(i) + 1);
  Request request;
  for (int t = 0; t < options_.input_len; ++t)
    request.input_ids.push_back(static_cast<TokenId>(random() % vocab_size));
  request.max_tokens = options_.output_len;
  return request;
}

Requests Bench::Rows(int count, const Change& change) const {
  Requests rows;
  for (int i = 0; i < count; ++i) {
    rows.push_back(Plain(i));
    if (change) change(rows.back());
  }
  return rows;
}

Change Bench::Everything() const {
  const int vocab_size = model_.engine->config.vocab_size;
  return [vocab_size](Request& request) {
    request.sampling = {.temperature = 0.9F,
                        .top_k = 50,
                        .top_p = 0.95F,
                        .min_p = 0.01F,
                        .seed = 1,
                        .repetition_penalty = 1.1F,
                        .presence_penalty = 0.1F,
                        .frequency_penalty = 0.1F,
                        .min_tokens = request.max_tokens,
                        .no_repeat_ngram_size = 3};
    request.end_ids = {vocab_size - 1};
    request.bad_words = {{1}, {2, 3}, {4, 5, 6}};
    request.stop_words = {{7, 8, 9, 10}};
    request.embedding_bias =
        std::make_shared<const std::vector<float>>(static_cast<size_t>(vocab_size), 0.25F);
    request.output.return_log_probs = true;
  };
}

std::vector<Mix> Bench::Mixes() const {
  const auto sampled = [](Request& request) {
    request.sampling.top_k = 50;
    request.sampling.temperature = 0.9F;
  };
  Requests one_of_everything = Rows(options_.batch);
  Everything()(one_of_everything.front());
  Requests beams = Rows(1, [](Request& request) { request.sampling.beam_width = 4; });
  return {
      {"one row uses everything", options_.batch, 1.03, one_of_everything, Rows(options_.batch)},
      {"all rows return log-probs", options_.batch, 1.03,
       Rows(options_.batch, [](Request& r) { r.output.return_log_probs = true; }),
       Rows(options_.batch)},
      {"4 beams for 4 sampled rows", 4, 1.15, beams, Rows(4, sampled)},
  };
}

// Of the steps that decode all rows.
Result<double> Bench::MedianStepMs(const Requests& requests, int num_rows) const {
  log_.Reset();
  auto sink = std::make_shared<CountdownSink>(static_cast<int>(requests.size()));
  for (const Request& request : requests)
    RETURN_IF_ERROR(model_.executor->Enqueue(request, sink).status());
  RETURN_IF_ERROR(sink->Wait());
  std::vector<double> step_ms;
  for (const StepLog::Step& step : log_.steps()) {
    if (step.num_rows == num_rows && step.num_tokens == num_rows)
      step_ms.push_back(static_cast<double>(step.step_ns) * 1e-6);
  }
  if (step_ms.empty())
    return FailedPrecondition(
        fmt::format("no step held {} rows in decode alone; raise --output-len", num_rows));
  return SpreadOf(step_ms).median;
}

Status Bench::RunMix(const Mix& mix) const {
  std::vector<double> with, without, ratios;
  for (int i = 0; i < options_.repeats; ++i) {
    const auto ms = MedianStepMs(mix.with, mix.num_rows);
    if (!ms.ok()) {
      fmt::print("{},{},,,,,,,refused: {}\n", mix.name, mix.num_rows, ms.status().message());
      return Status::Ok();
    }
    with.push_back(*ms);
    ASSIGN_OR_RETURN(without.emplace_back(), MedianStepMs(mix.without, mix.num_rows));
    ratios.push_back(with.back() / without.back());
  }
  const Spread ratio = SpreadOf(ratios);
  fmt::print("{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.2f},{}\n", mix.name, mix.num_rows,
             SpreadOf(with).median, SpreadOf(without).median, ratio.median, ratio.low, ratio.high,
             mix.limit, ratio.median <= mix.limit ? "reached" : "missed");
  std::fflush(stdout);
  return Status::Ok();
}

Result<loader::Loaded> OpenShape(const Options& options) {
  ASSIGN_OR_RETURN(auto device,
                   Device::ByName(options.model.device, options.model.num_threads.value_or(0)));
  ASSIGN_OR_RETURN(const model::ModelConfig config,
                   RandomConfig(options.shape, options.model, device->kind()));
  const int max_seq_len = options.input_len + options.output_len;
  const model::EngineLimits limits{.max_batch_size = std::max(options.batch, 4),
                                   .max_num_tokens = 8192,
                                   .max_seq_len = max_seq_len,
                                   .max_input_len = max_seq_len,
                                   .max_beam_width = 4};
  return OpenRandom(std::move(device), config, limits, /*tune=*/true, options.model);
}

Status Run(Options& options, std::span<const std::string> positionals) {
  if (positionals.size() > 1 || positionals.empty() == options.shape.empty())
    return UsageError(kUsage, "a model directory or --shape is needed");
  logging::SetLevel(logging::Level::kWarning);
  StepLog log;
  options.model.executor.step_observer = &log;
  options.model.executor.enable_prefix_reuse = false;
  auto opened =
      options.shape.empty() ? LoadModel(positionals[0], options.model) : OpenShape(options);
  if (!opened.ok()) return opened.status();
  log.Watch(opened->executor.get());
  const model::ModelConfig& c = opened->engine->config;
  const bench::MachineLimits limits = bench::MeasureLimits(opened->device->cpu_pool());
  fmt::print("# device: {}; {}, {} threads\n", opened->device->name(), limits.cpu_name,
             limits.num_threads);
  fmt::print("# model: {} {}, {} layers, hidden {}, vocabulary {}; {} + {} tokens\n",
             c.architecture, DTypeName(c.dtype), c.num_layers, c.hidden_size, c.vocab_size,
             options.input_len, options.output_len);
  fmt::print("mix,rows,step_ms,step_ms_without,ratio,ratio_p10,ratio_p90,asked,verdict\n");
  const Bench bench(options, *opened, log);
  for (const Mix& mix : bench.Mixes()) RETURN_IF_ERROR(bench.RunMix(mix));
  return Status::Ok();
}

}  // namespace

int BenchMixesMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual BenchMixesManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
