// SPDX-License-Identifier: Apache-2.0
// inflight bench throughput and bench latency: token ids in and out through the executor, beside
// the limit that this device's measured rates allow.
//
// throughput: all requests of a scenario are queued at once. latency: one request at a time.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "bench/limits/gpu_limits.h"
#include "bench/limits/limits.h"
#include "bench_adapters.h"
#include "bench_cost.h"
#include "bench_runs.h"
#include "builder/builder.h"
#include "command_line.h"
#include "commands.h"
#include "model_directory.h"
#include "model_options.h"
#include "ops/profile.h"
#include "random_model.h"

namespace inflight::tool {
namespace {

const Usage kThroughputUsage = {
    "inflight bench throughput DIR | --shape llama-3-8b [--scenarios 64x1024/256,1024x128/128]",
    "Queues all requests of a scenario at once and prints CSV: output tokens a second, time to the "
    "first token, inter-token latency,\n"
    "the limit from this device's measured bandwidth and arithmetic, and the fraction reached."};
const Usage kLatencyUsage = {
    "inflight bench latency DIR | --shape llama-3-8b [--scenarios 1x128/256,1x2048/64]",
    "Sends one request at a time and prints CSV: time to the first token, inter-token latency and "
    "tokens a second while decoding,\n"
    "beside the limits from this device's measured bandwidth and arithmetic."};

struct Options {
  ModelOptions model{.executor = {.enable_prefix_reuse = false,  // every prompt is computed
                                  .scheduler_policy = SchedulerPolicy::kMaxUtilization,
                                  .step_time_goal_ms = 60000}};
  std::string shape;
  std::string scenarios;
  int repeats = 3;
  int max_batch_size = 1024;
  int max_num_tokens = 8192;
  bool profile = false;
  int adapters = 0;
  int adapter_rank = 16;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Bench");
  AddShape(schema);
  schema.Add(
      "scenarios", [](Options& o) -> auto& { return o.scenarios; },
      "REQUESTSxINPUT/OUTPUT in tokens, separated by commas.");
  schema.Add(
      "repeats", [](Options& o) -> auto& { return o.repeats; }, "Runs of each scenario.",
      config::Range(1, 1000));
  schema.Add(
      "profile", [](Options& o) -> auto& { return o.profile; },
      "Instead of the figures, print the device's time by part of a step, measured operator by "
      "operator without graphs; then, of decode steps without that, the whole step, the host's "
      "work that the device hides, and how long the device waits for the host. CUDA only.",
      config::Switch());
  schema.Add(
      "adapters", [](Options& o) -> auto& { return o.adapters; },
      "Adapters (LoRA) of random factors of all modules, which the requests have in turn.",
      config::Range(0, 1024));
  schema.Add(
      "adapter_rank", [](Options& o) -> auto& { return o.adapter_rank; }, "Their rank.",
      config::Range(1, 256));
  schema.Section("Engine");
  AddModel(schema);
  schema.Add(
      "max_batch_size", [](Options& o) -> auto& { return o.max_batch_size; },
      "Sequences in a step; with --shape.", config::Range(1, 1024));
  schema.Add(
      "max_num_tokens", [](Options& o) -> auto& { return o.max_num_tokens; },
      "Tokens in a step; with --shape.", config::AtLeast(1));
  schema.Add(
      "kv_cache_free_memory_fraction",
      [](Options& o) -> auto& { return o.model.executor.kv_cache_free_memory_fraction; },
      "Share of free memory for the KV cache.", config::Range(0.001, 0.999));
  return schema;
}

struct Limits {
  Rates rates;
  std::string text;  // for the first line
};

Result<Limits> LimitsOf(Device& device, const model::ModelConfig& config) {
  Limits limits;
  if (device.kind() == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(const bench::GpuLimits gpu, bench::MeasureGpuLimits(device));
    const bool is_fp8 = LinearDType(config) == DType::kF8E4M3;
    limits.rates = {.bytes_per_s = gpu.read_bytes_per_s,
                    .layer_flops = is_fp8 ? gpu.fp8_flops : gpu.f16_flops,
                    .head_flops = gpu.f16_flops,
                    .attention_flops = gpu.f16_flops};
    limits.text = fmt::format(
        "{}, driver for CUDA {}.{}; read {:.2f} TB/s, copy {:.2f} TB/s, upload {:.1f} GB/s, "
        "bfloat16 {:.0f} TFLOP/s, fp8 {:.0f} TFLOP/s, graph node {:.2f} us",
        gpu.gpu_name, gpu.driver_version / 1000, gpu.driver_version % 1000 / 10,
        gpu.read_bytes_per_s * 1e-12, gpu.copy_bytes_per_s * 1e-12, gpu.upload_bytes_per_s * 1e-9,
        gpu.f16_flops * 1e-12, gpu.fp8_flops * 1e-12, gpu.graph_node_s * 1e6);
    return limits;
  }
  const bench::MachineLimits cpu = bench::MeasureLimits(device.cpu_pool());
  const auto peak = [&cpu](DType dtype) {
    if (ops::IsInteger(dtype)) return std::max(cpu.fp32_flops, cpu.int8_ops);
    const bool is_bf16 = dtype == DType::kBF16 || dtype == DType::kF8E4M3;  // which becomes it
    return std::max(cpu.fp32_flops, is_bf16 ? cpu.bf16_flops : 0.0);
  };
  limits.rates = {.bytes_per_s = cpu.read_bytes_per_s,
                  .layer_flops = peak(LinearDType(config)),
                  .head_flops = peak(FormOfTable(config, StemOfHead(config)).dtype),
                  .attention_flops = cpu.fp32_flops};
  limits.text =
      fmt::format("{}, {} threads; read {:.1f} GB/s, {:.0f} GFLOP/s", cpu.cpu_name, cpu.num_threads,
                  cpu.read_bytes_per_s * 1e-9, limits.rates.layer_flops * 1e-9);
  return limits;
}

// One run of a scenario.
struct Sample {
  double total_s = 0;                   // from the first request to the last answer
  std::vector<double> ttft_ms, itl_ms;  // of each request; the latter its mean
  // Of steps that only decode, all requests in them, with stages the share that one step has.
  std::vector<double> step_ms, host_us, launch_us, idle_us;
};

struct Bench {
  const Options& options;
  const loader::Loaded& model;
  const Limits& limits;
  StepLog& log;
  const ModelCost cost{model.engine->config};
  const std::shared_ptr<const LoraTensors> adapter = options.adapters > 0
                                                         ? RandomAdapter(model.engine->config,
                                                                         options.adapter_rank)
                                                         : nullptr;

  // Each adapter comes once.
  Status WarmUp(const Scenario& first) const {
    const int requests = std::max(std::min(first.requests, 8), options.adapters);
    return RunOnce({requests, first.input_len, 4}, 0).status();
  }
  Result<Sample> RunOnce(const Scenario& scenario, uint32_t seed) const;
  Status Throughput(const Scenario& scenario) const;
  Status Latency(const Scenario& scenario) const;
  Status Profile(const Scenario& scenario, const Sample& unprofiled) const;
};

Result<Sample> Bench::RunOnce(const Scenario& s, uint32_t seed) const {
  const auto vocab_size = static_cast<uint32_t>(model.engine->config.vocab_size);
  std::mt19937 random(seed);
  std::vector<Request> requests(static_cast<size_t>(s.requests));
  uint64_t next_adapter = 0;
  for (Request& request : requests) {
    if (adapter != nullptr)
      request.lora = LoraUse{.id = next_adapter++ % static_cast<uint64_t>(options.adapters),
                             .tensors = adapter};
    request.input_ids.resize(static_cast<size_t>(s.input_len));
    for (TokenId& id : request.input_ids) id = static_cast<TokenId>(random() % vocab_size);
    request.max_tokens = s.output_len;
    request.streaming = true;  // the dearer way: stream threads are woken in each step
  }
  log.Reset();
  auto sink = std::make_shared<CountdownSink>(s.requests);
  const int64_t begin_ns = Clock::System().NowNs();
  for (Request& request : requests)
    RETURN_IF_ERROR(model.executor->Enqueue(std::move(request), sink).status());
  RETURN_IF_ERROR(sink->Wait());
  Sample sample;
  sample.total_s = static_cast<double>(Clock::System().NowNs() - begin_ns) * 1e-9;
  for (const RequestTimes& times : sink->times()) {
    sample.ttft_ms.push_back(static_cast<double>(times.first_token_ns - begin_ns) * 1e-6);
    if (s.output_len > 1)
      sample.itl_ms.push_back(static_cast<double>(times.last_token_ns - times.first_token_ns) *
                              1e-6 / (s.output_len - 1));
  }
  const int num_stages = model.engine->config.part.pp_size;
  const int num_rows = (s.requests + num_stages - 1) / num_stages;
  for (const StepLog::Step& step : log.steps()) {
    if (step.num_tokens != num_rows || step.num_rows != num_rows) continue;
    sample.step_ms.push_back(static_cast<double>(step.step_ns) * 1e-6);
    if (step.host_ns == 0) continue;  // the last one, whose times nobody read
    sample.host_us.push_back(static_cast<double>(step.host_ns) * 1e-3);
    sample.launch_us.push_back(static_cast<double>(step.launch_ns) * 1e-3);
    sample.idle_us.push_back(static_cast<double>(step.idle_ns) * 1e-3);
  }
  return sample;
}

void Append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

Status Bench::Throughput(const Scenario& s) const {
  std::vector<double> rates, ttft_ms, itl_ms, step_ms, host_us, idle_us;
  for (int i = 0; i < options.repeats; ++i) {
    ASSIGN_OR_RETURN(const Sample sample, RunOnce(s, static_cast<uint32_t>(i + 1)));
    rates.push_back(static_cast<double>(s.requests) * s.output_len / sample.total_s);
    Append(ttft_ms, sample.ttft_ms);
    Append(itl_ms, sample.itl_ms);
    Append(step_ms, sample.step_ms);
    Append(host_us, sample.host_us);
    Append(idle_us, sample.idle_us);
  }
  const Spread rate = SpreadOf(rates), ttft = SpreadOf(ttft_ms), itl = SpreadOf(itl_ms);
  const double least_s =
      LeastPrefillSeconds(cost, limits.rates, s) + LeastDecodeSeconds(cost, limits.rates, s);
  const double limit = static_cast<double>(s.requests) * s.output_len / least_s;
  fmt::print(
      "{},{:.1f},{:.1f},{:.1f},{:.2f},{:.2f},{:.3f},{:.3f},{:.3f},{:.1f},{:.1f},{:.0f},{:.3f}\n",
      s.ToString(), rate.median, rate.low, rate.high, ttft.median, ttft.high, itl.median, itl.high,
      SpreadOf(step_ms).median, SpreadOf(host_us).median, SpreadOf(idle_us).median, limit,
      rate.median / limit);
  std::fflush(stdout);
  return Status::Ok();
}

Status Bench::Latency(const Scenario& s) const {
  std::vector<double> ttft_ms, itl_ms;
  for (int i = 0; i < options.repeats; ++i) {
    ASSIGN_OR_RETURN(const Sample sample, RunOnce(s, static_cast<uint32_t>(i + 1)));
    Append(ttft_ms, sample.ttft_ms);
    Append(itl_ms, sample.itl_ms);
  }
  const Spread ttft = SpreadOf(ttft_ms), itl = SpreadOf(itl_ms);
  // A short prompt is bound by the weights' bytes, as a decode step is.
  const double weights_ms =
      (cost.LayerBytes(s.input_len) + cost.head_bytes) / limits.rates.bytes_per_s * 1e3;
  const double ttft_limit_ms =
      std::max(LeastPrefillSeconds(cost, limits.rates, s) * 1e3, weights_ms);
  const double itl_limit_ms =
      s.output_len > 1 ? LeastDecodeSeconds(cost, limits.rates, s) * 1e3 / (s.output_len - 1) : 0;
  fmt::print("{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.1f},{:.1f},{:.3f}\n",
             s.ToString(), ttft.median, ttft.low, ttft.high, ttft_limit_ms, itl.median, itl.low,
             itl.high, itl.median > 0 ? 1e3 / itl.median : 0,
             itl_limit_ms > 0 ? 1e3 / itl_limit_ms : 0,
             itl.median > 0 ? itl_limit_ms / itl.median : 0);
  std::fflush(stdout);
  return Status::Ok();
}

// Parts of steps by operators that are measured, then whole steps and the host as they are without.
Status Bench::Profile(const Scenario& s, const Sample& unprofiled) const {
  ops::ResetProfile();
  RETURN_IF_ERROR(RunOnce(s, 1).status());
  int64_t num_steps = 0, num_decode = 0;
  for (const StepLog::Step& step : log.steps()) {
    ++num_steps;
    if (step.num_tokens == step.num_rows) ++num_decode;
  }
  double total_ms[2] = {0, 0};
  const std::vector<ops::ProfileEntry> entries = ops::TakeProfile();
  for (const ops::ProfileEntry& entry : entries) total_ms[entry.is_prefill] += entry.device_ms;
  for (const ops::ProfileEntry& entry : entries) {
    const int64_t steps = entry.is_prefill ? num_steps - num_decode : num_decode;
    if (steps == 0) continue;
    fmt::print("{},{},{},{},{:.4f},{:.3f}\n", s.ToString(), entry.is_prefill ? "prefill" : "decode",
               entry.name, entry.calls / steps, entry.device_ms / static_cast<double>(steps),
               entry.device_ms / total_ms[entry.is_prefill]);
  }
  if (unprofiled.step_ms.empty()) return Status::Ok();  // no step had all requests decode
  const double step_ms = SpreadOf(unprofiled.step_ms).median;
  const double idle_ms = SpreadOf(unprofiled.idle_us).median * 1e-3;
  const double host_ms =
      (SpreadOf(unprofiled.host_us).median + SpreadOf(unprofiled.launch_us).median) * 1e-3;
  for (const auto& [part, ms] : {std::pair{"whole step, unprofiled", step_ms},
                                 {"host, hidden", std::max(host_ms - idle_ms, 0.0)},
                                 {"host, not hidden (the device waits)", idle_ms}})
    fmt::print("{},decode,\"{}\",,{:.4f},{:.3f}\n", s.ToString(), part, ms, ms / step_ms);
  std::fflush(stdout);
  return Status::Ok();
}

Result<loader::Loaded> OpenShape(const Options& options, const std::vector<Scenario>& scenarios,
                                 Limits& limits) {
  ASSIGN_OR_RETURN(auto device,
                   Device::ByName(options.model.device, options.model.num_threads.value_or(0)));
  ASSIGN_OR_RETURN(const model::ModelConfig config,
                   RandomConfig(options.shape, options.model, device->kind()));
  model::EngineLimits engine_limits{.max_batch_size = 1,
                                    .max_num_tokens = options.max_num_tokens,
                                    .max_seq_len = 0,
                                    .max_input_len = 0};
  for (const Scenario& s : scenarios) {
    engine_limits.max_batch_size =
        std::max(engine_limits.max_batch_size, std::min(s.requests, options.max_batch_size));
    engine_limits.max_seq_len = std::max(engine_limits.max_seq_len, s.input_len + s.output_len);
  }
  engine_limits.max_input_len = engine_limits.max_seq_len;
  ASSIGN_OR_RETURN(limits, LimitsOf(*device, config));
  return OpenRandom(std::move(device), config, engine_limits, /*tune=*/true, options.model);
}

Result<loader::Loaded> OpenDirectory(const Options& options, const std::string& named,
                                     Limits& limits) {
  ASSIGN_OR_RETURN(const std::filesystem::path dir, ModelDirectory(named));
  {
    ASSIGN_OR_RETURN(const OpenOptions open, options.model.ToOpenOptions());
    ASSIGN_OR_RETURN(const loader::Plan plan, loader::MakePlan(dir, open));
    ASSIGN_OR_RETURN(limits, LimitsOf(*plan.device, plan.description.config));
  }
  return LoadModel(dir, options.model);
}

enum class Measure { kThroughput, kLatency };

Status CheckLengths(const std::vector<Scenario>& scenarios, const ExecutorLimits& limits) {
  for (const Scenario& s : scenarios)
    if (s.input_len > limits.max_input_len || s.input_len + s.output_len > limits.max_seq_len)
      return InvalidArgument(
          fmt::format("--scenarios: got {}, a sequence of this model has at most {} tokens, {} of "
                      "them its prompt; give shorter ones",
                      s.ToString(), limits.max_seq_len, limits.max_input_len));
  return Status::Ok();
}

Status Run(Options& options, std::span<const std::string> positionals, Measure measure) {
  const bool is_latency = measure == Measure::kLatency;
  if (positionals.size() > 1 || positionals.empty() == options.shape.empty())
    return UsageError(is_latency ? kLatencyUsage : kThroughputUsage,
                      "a model directory or --shape is needed");
  logging::SetLevel(logging::Level::kWarning);
  if (options.scenarios.empty())
    options.scenarios = is_latency ? "1x128/256,1x2048/64" : "64x1024/256";
  ASSIGN_OR_RETURN(const std::vector<Scenario> scenarios, ParseScenarios(options.scenarios));
  for (const Scenario& s : scenarios)
    if (is_latency && s.requests != 1)
      return InvalidArgument(
          fmt::format("--scenarios: got {}, bench latency sends one request at a time: 1x{}/{}",
                      s.ToString(), s.input_len, s.output_len));
  StepLog log;
  options.model.executor.step_observer = &log;
  options.model.executor.max_queue_size = 1 << 16;
  constexpr double kAdapterShare = 0.25;  // of the memory beside weights: room for many
  if (options.adapters > 0) options.model.executor.adapter_memory_fraction = kAdapterShare;
  Limits limits;
  const auto open = [&] {
    return options.shape.empty() ? OpenDirectory(options, positionals[0], limits)
                                 : OpenShape(options, scenarios, limits);
  };
  std::vector<Sample> unprofiled;
  if (options.profile && options.model.tensor_parallel_size.value_or(1) > 1)
    return InvalidArgument(
        "--profile: times the operators of one rank alone; leave it out, or "
        "--tensor-parallel-size");
  if (options.profile) {
    ASSIGN_OR_RETURN(const loader::Loaded model, open());
    if (model.device->kind() != DeviceKind::kCuda)
      return InvalidArgument(
          "--profile: got device cpu, needs an NVIDIA GPU, whose operators are timed by its "
          "events; "
          "leave --profile out, or give --device cuda where there is one");
    log.Watch(model.executor.get());
    const Bench bench{options, model, limits, log};
    RETURN_IF_ERROR(bench.WarmUp(scenarios.front()));
    for (const Scenario& s : scenarios) {
      ASSIGN_OR_RETURN(Sample sample, bench.RunOnce(s, 1));
      unprofiled.push_back(std::move(sample));
    }
    options.model.ops = "cuda/profiled";
  }
  ASSIGN_OR_RETURN(const loader::Loaded model, open());
  RETURN_IF_ERROR(CheckLengths(scenarios, model.executor->limits()));
  log.Watch(model.executor.get());
  const model::ModelConfig& c = model.engine->config;
  const std::string_view algo = model::QuantAlgoName(c.quant_algo);
  fmt::print("# device: {}\n", limits.text);
  fmt::print(
      "# model: {} {}{}{}, KV cache {}, {} layers, hidden {}, intermediate {}, heads {}/{}, "
      "vocabulary {}\n",
      c.architecture, DTypeName(c.dtype), algo.empty() ? "" : " ", algo, DTypeName(KvDType(c)),
      c.num_layers, c.hidden_size, c.intermediate_size, c.num_heads, c.num_kv_heads, c.vocab_size);
  const Bench bench{options, model, limits, log};
  RETURN_IF_ERROR(bench.WarmUp(scenarios.front()));
  if (options.profile)
    fmt::print("scenario,phase,part,calls_per_step,ms_per_step,share\n");
  else if (is_latency)
    fmt::print(
        "scenario,ttft_ms,ttft_ms_p10,ttft_ms_p90,ttft_limit_ms,itl_ms,itl_ms_p10,itl_ms_p90,"
        "decode_tokens_per_s,limit_tokens_per_s,fraction_of_limit\n");
  else
    fmt::print(
        "scenario,output_tokens_per_s,p10,p90,ttft_ms,ttft_ms_p90,itl_ms,itl_ms_p90,"
        "decode_step_ms,host_us,idle_us,limit_tokens_per_s,fraction_of_limit\n");
  for (size_t i = 0; i < scenarios.size(); ++i) {
    const Scenario& s = scenarios[i];
    RETURN_IF_ERROR(options.profile ? bench.Profile(s, unprofiled[i])
                    : is_latency    ? bench.Latency(s)
                                    : bench.Throughput(s));
  }
  return Status::Ok();
}

Status RunThroughput(Options& options, std::span<const std::string> positionals) {
  return Run(options, positionals, Measure::kThroughput);
}

Status RunLatency(Options& options, std::span<const std::string> positionals) {
  return Run(options, positionals, Measure::kLatency);
}

}  // namespace

int BenchThroughputMain(Args args) {
  return RunCommand(args, kThroughputUsage, MakeSchema(), RunThroughput);
}
int BenchLatencyMain(Args args) {
  return RunCommand(args, kLatencyUsage, MakeSchema(), RunLatency);
}

Manual BenchThroughputManual() { return {kThroughputUsage, MakeSchema().options()}; }
Manual BenchLatencyManual() { return {kLatencyUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
