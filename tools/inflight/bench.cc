// SPDX-License-Identifier: Apache-2.0
// inflight bench: generation through the executor, beside the limits of this machine measured in
// the same run.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <random>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "bench/limits/limits.h"
#include "bench_cost.h"
#include "bench_runs.h"
#include "command_line.h"
#include "commands.h"
#include "model_options.h"
#include "random_model.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight bench DIR | --shape llama-3.2-1b [--use-weight-only] [--batch 1,16,64]",
    "Measures decode and prefill of a model, or of random weights in a known "
    "shape, and prints CSV: each figure with the limit\n"
    "computed from this machine's measured read bandwidth and arithmetic peak."};

struct Options {
  ModelOptions model{.executor = {.step_time_goal_ms = 60000}};  // whole prompts in one step
  std::string shape;
  std::string batch = "1,16,64";
  int input_len = 128;
  int output_len = 32;
  int repeats = 3;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Bench");
  AddShape(schema);
  schema.Add(
      "batch", [](Options& o) -> auto& { return o.batch; },
      "Numbers of sequences, separated by commas; a scenario each.");
  schema.Add(
      "input_len", [](Options& o) -> auto& { return o.input_len; },
      "Prompt tokens of each sequence.", config::AtLeast(1));
  schema.Add(
      "output_len", [](Options& o) -> auto& { return o.output_len; },
      "Generated tokens of each sequence.", config::AtLeast(2));
  schema.Add(
      "repeats", [](Options& o) -> auto& { return o.repeats; },
      "Runs of each scenario, with the read bandwidth measured before and after each.",
      config::Range(1, 1000));
  schema.Section("Engine");
  AddModel(schema);
  schema.Add(
      "step_time_goal_ms", [](Options& o) -> auto& { return o.model.executor.step_time_goal_ms; },
      "As of serve; the large default computes whole prompts in one step.",
      config::Range(1, 600000));
  return schema;
}

Result<std::vector<int>> ParseBatches(const std::string& text) {
  std::vector<int> batches;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int value = 0;
    const auto [next, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc() || next != text.data() + end || value < 1)
      return InvalidArgument("--batch: got '" + text +
                             "', needs positive integers separated by commas");
    batches.push_back(value);
    begin = end + 1;
  }
  return batches;
}

// One run of a scenario.
struct Sample {
  std::vector<double> step_s;   // of steps that hold every sequence in decode alone
  std::vector<double> host_us;  // of the same
  int64_t num_yielded = 0;      // by those whose yield is known
  int64_t num_yielding_rows = 0;
  int64_t prefill_tokens = 0;
  double prefill_s = 0;
  double total_s = 0;           // from the first request to the last answer
  double read_bytes_per_s = 0;  // of the machine around it: neighbours come and go
};

struct Bench {
  const Options& options;
  const loader::Loaded& model;
  const bench::MachineLimits& limits;
  StepLog& log;
  const ModelCost cost{model.engine->config};

  Status RunBatch(int batch) const;
  Result<Sample> RunOnce(int batch) const;
  void PrintPrefill(int batch, const std::vector<Sample>& samples) const;
  void PrintDecode(int batch, const std::vector<Sample>& samples) const;
  double BytesPerDecodeStep(int batch) const;
  double LayerPeak() const;
  double HeadPeak() const;
  double PeakOf(DType dtype) const;
};

// Weights once, and K and V of each sequence at the middle of its output.
double Bench::BytesPerDecodeStep(int batch) const {
  const double context = options.input_len + options.output_len / 2.0;
  return cost.LayerBytes(batch) + cost.head_bytes + batch * context * cost.kv_bytes;
}

// The arithmetic that the weights' dtype can be computed in at most.
double Bench::LayerPeak() const { return PeakOf(LinearDType(model.engine->config)); }

double Bench::HeadPeak() const {
  const model::ModelConfig& config = model.engine->config;
  return PeakOf(FormOfTable(config, StemOfHead(config)).dtype);
}

double Bench::PeakOf(DType dtype) const {
  if (ops::IsInteger(dtype)) return std::max(limits.fp32_flops, limits.int8_ops);
  const bool is_bf16 = dtype == DType::kBF16 || dtype == DType::kF8E4M3;  // which becomes it
  return std::max(limits.fp32_flops, is_bf16 ? limits.bf16_flops : 0.0);
}

Result<Sample> Bench::RunOnce(int batch) const {
  const int vocab_size = model.engine->config.vocab_size;
  std::mt19937 random(static_cast<uint32_t>(batch));
  log.Reset();
  auto sink = std::make_shared<CountdownSink>(batch);
  const int64_t begin_ns = Clock::System().NowNs();
  for (int i = 0; i < batch; ++i) {
    Request request;
    for (int t = 0; t < options.input_len; ++t)
      request.input_ids.push_back(
          static_cast<TokenId>(random() % static_cast<uint32_t>(vocab_size)));
    request.max_tokens = options.output_len;
    request.streaming = true;  // the dearer way: a stream thread is woken in each step
    RETURN_IF_ERROR(model.executor->Enqueue(std::move(request), sink).status());
  }
  RETURN_IF_ERROR(sink->Wait());

  Sample sample;
  sample.total_s = static_cast<double>(Clock::System().NowNs() - begin_ns) * 1e-9;
  for (const StepLog::Step& step : log.steps()) {
    if (step.num_prefill_tokens > 0) {
      sample.prefill_tokens += step.num_tokens;
      sample.prefill_s += static_cast<double>(step.step_ns) * 1e-9;
    } else if (step.num_rows == batch) {
      sample.step_s.push_back(static_cast<double>(step.step_ns) * 1e-9);
      sample.num_yielded += step.num_yielded;
      if (step.num_yielded > 0) sample.num_yielding_rows += batch;
      if (step.host_ns > 0) sample.host_us.push_back(static_cast<double>(step.host_ns) * 1e-3);
    }
  }
  if (sample.step_s.empty() || sample.prefill_tokens == 0)
    return FailedPrecondition(fmt::format(
        "no step held {} sequences in decode alone; raise --output-len or --step-time-goal-ms",
        batch));
  return sample;
}

Status Bench::RunBatch(int batch) const {
  CpuPool& pool = model.device->cpu_pool();
  std::vector<Sample> samples;
  double before = bench::MeasureReadBytesPerS(pool);
  for (int i = 0; i < options.repeats; ++i) {
    ASSIGN_OR_RETURN(Sample sample, RunOnce(batch));
    const double after = bench::MeasureReadBytesPerS(pool);
    sample.read_bytes_per_s = (before + after) / 2;
    before = after;
    samples.push_back(std::move(sample));
  }
  PrintPrefill(batch, samples);
  PrintDecode(batch, samples);
  std::vector<double> rates;
  for (const Sample& sample : samples) rates.push_back(batch * options.output_len / sample.total_s);
  fmt::print("total,{},{},{},{:.2f},,,,,,,,,\n", batch, options.input_len, options.output_len,
             SpreadOf(rates).median);
  return Status::Ok();
}

void Bench::PrintDecode(int batch, const std::vector<Sample>& samples) const {
  const double arithmetic_s =
      batch * (cost.layer_flops / LayerPeak() + cost.head_flops / HeadPeak());
  std::vector<double> step_s, host_us, limits_s, fractions;
  for (const Sample& sample : samples) {
    limits_s.push_back(std::max(BytesPerDecodeStep(batch) / sample.read_bytes_per_s, arithmetic_s));
    fractions.push_back(limits_s.back() / SpreadOf(sample.step_s).median);
    step_s.insert(step_s.end(), sample.step_s.begin(), sample.step_s.end());
    host_us.insert(host_us.end(), sample.host_us.begin(), sample.host_us.end());
  }
  int64_t num_yielded = 0;
  int64_t num_yielding_rows = 0;
  for (const Sample& sample : samples) {
    num_yielded += sample.num_yielded;
    num_yielding_rows += sample.num_yielding_rows;
  }
  // 1, unless drafts are accepted.
  const double tokens_per_row = static_cast<double>(num_yielded) /
                                static_cast<double>(std::max(num_yielding_rows, int64_t{1}));
  if (num_yielded != num_yielding_rows)
    fmt::print("# of {} sequences, each yields {:.2f} tokens in a step\n", batch, tokens_per_row);
  const Spread step = SpreadOf(step_s);
  const Spread fraction = SpreadOf(fractions);
  fmt::print(
      "decode,{},{},{},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.1f},{:.3f},{:.3f},{:.3f},{:.1f}\n",
      batch, options.input_len, options.output_len, batch * tokens_per_row / step.median,
      step.median * 1e3, step.low * 1e3, step.high * 1e3, batch / SpreadOf(limits_s).median,
      BytesPerDecodeStep(batch) / step.median * 1e-9, fraction.median, fraction.low, fraction.high,
      SpreadOf(host_us).median);
}

void Bench::PrintPrefill(int batch, const std::vector<Sample>& samples) const {
  std::vector<double> rates;
  for (const Sample& sample : samples)
    rates.push_back(static_cast<double>(sample.prefill_tokens) / sample.prefill_s);
  const Spread rate = SpreadOf(rates);
  const double limit = LayerPeak() / cost.layer_flops;  // the head runs once a prompt
  fmt::print("prefill,{},{},{},{:.2f},,,,{:.2f},,{:.3f},{:.3f},{:.3f},\n", batch, options.input_len,
             options.output_len, rate.median, limit, rate.median / limit, rate.low / limit,
             rate.high / limit);
}

std::string FormOf(const model::ModelConfig& config) {
  const std::string_view algo = model::QuantAlgoName(config.quant_algo);
  return fmt::format("{}{}{}", DTypeName(config.dtype), algo.empty() ? "" : " ", algo);
}

Result<loader::Loaded> OpenShape(const Options& options) {
  ASSIGN_OR_RETURN(auto device,
                   Device::ByName(options.model.device, options.model.num_threads.value_or(0)));
  ASSIGN_OR_RETURN(const model::ModelConfig config,
                   RandomConfig(options.shape, options.model, device->kind()));
  const int max_seq_len = options.input_len + options.output_len;
  const model::EngineLimits limits{.max_batch_size = 64,
                                   .max_num_tokens = 8192,
                                   .max_seq_len = max_seq_len,
                                   .max_input_len = max_seq_len};
  return OpenRandom(std::move(device), config, limits, /*tune=*/false, options.model);
}

Status Run(Options& options, std::span<const std::string> positionals) {
  if (positionals.size() > 1 || positionals.empty() == options.shape.empty())
    return UsageError(kUsage, "a model directory or --shape is needed");
  logging::SetLevel(logging::Level::kWarning);
  ASSIGN_OR_RETURN(const std::vector<int> batches, ParseBatches(options.batch));
  StepLog log;
  options.model.executor.step_observer = &log;
  options.model.executor.enable_prefix_reuse = false;
  auto opened =
      options.shape.empty() ? LoadModel(positionals[0], options.model) : OpenShape(options);
  if (!opened.ok()) return opened.status();
  const loader::Loaded& model = *opened;
  log.Watch(model.executor.get());
  const bench::MachineLimits limits = bench::MeasureLimits(model.device->cpu_pool());
  fmt::print(
      "# device: {}, {} threads; read {:.1f} GB/s, fp32 {:.0f} GFLOP/s, bf16 {:.0f} GFLOP/s, int8 "
      "{:.0f} GOP/s\n",
      limits.cpu_name, limits.num_threads, limits.read_bytes_per_s * 1e-9, limits.fp32_flops * 1e-9,
      limits.bf16_flops * 1e-9, limits.int8_ops * 1e-9);
  const model::ModelConfig& c = model.engine->config;
  fmt::print("# model: {} {}, {} layers, hidden {}, intermediate {}, heads {}/{}, vocabulary {}\n",
             c.architecture, FormOf(c), c.num_layers, c.hidden_size, c.intermediate_size,
             c.num_heads, c.num_kv_heads, c.vocab_size);
  fmt::print(
      "phase,sequences,input_len,output_len,tokens_per_s,step_ms,step_ms_p10,step_ms_p90,limit_"
      "tokens_per_s,read_gb_per_s,"
      "fraction_of_limit,fraction_p10,fraction_p90,host_us\n");
  const Bench bench{options, model, limits, log};
  for (const int batch : batches) RETURN_IF_ERROR(bench.RunBatch(batch));
  return Status::Ok();
}

}  // namespace

int BenchMain(Args args) {
  if (!args.empty() && std::string_view(args[0]) == "load") return BenchLoadMain(args.subspan(1));
  if (!args.empty() && std::string_view(args[0]) == "throughput")
    return BenchThroughputMain(args.subspan(1));
  if (!args.empty() && std::string_view(args[0]) == "latency")
    return BenchLatencyMain(args.subspan(1));
  if (!args.empty() && std::string_view(args[0]) == "mixes") return BenchMixesMain(args.subspan(1));
  if (!args.empty() && std::string_view(args[0]) == "sleep") return BenchSleepMain(args.subspan(1));
  return RunCommand(args, kUsage, MakeSchema(), Run);
}

Manual BenchManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
