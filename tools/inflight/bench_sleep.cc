// SPDX-License-Identifier: Apache-2.0
// inflight bench sleep: what it takes to give a model's memory back and to take it again.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "bench_runs.h"
#include "command_line.h"
#include "commands.h"
#include "model_directory.h"
#include "model_options.h"
#include "random_model.h"

namespace inflight::tool {
namespace {

const Usage kBenchSleepUsage = {
    "inflight bench sleep DIR | --shape llama-3-8b [--repeats 3]",
    "Puts a model to sleep and wakes it, at level 1 and, of a directory, at level 2, and prints "
    "CSV: what is given back, and the\nmilliseconds that both and the first answer afterwards "
    "take. The answers before and after are compared."};

struct SleepBenchOptions {
  ModelOptions model{.executor = {.enable_sleep = true}};
  std::string shape;
  int repeats = 3;
  int max_batch_size = 64;
};

config::Schema<SleepBenchOptions> MakeSleepBenchSchema() {
  config::Schema<SleepBenchOptions> schema;
  schema.Section("Bench");
  AddShape(schema);
  schema.Add(
      "repeats", [](SleepBenchOptions& o) -> auto& { return o.repeats; }, "Times at each level.",
      config::Range(1, 1000));
  schema.Section("Engine");
  AddModel(schema);
  schema.Add(
      "max_batch_size", [](SleepBenchOptions& o) -> auto& { return o.max_batch_size; },
      "Sequences in a step; with --shape.", config::Range(1, 1024));
  schema.Add(
      "kv_cache_free_memory_fraction",
      [](SleepBenchOptions& o) -> auto& { return o.model.executor.kv_cache_free_memory_fraction; },
      "Share of free memory for the KV cache.", config::Range(0.001, 0.999));
  return schema;
}

// The ids of one answer, as they come.
class IdsSink : public CountdownSink {
 public:
  IdsSink() : CountdownSink(1) {}
  void OnResponse(Response response) override {
    ids.insert(ids.end(), response.output_ids.begin(), response.output_ids.end());
    CountdownSink::OnResponse(std::move(response));
  }
  std::vector<TokenId> ids;
};

Result<std::vector<TokenId>> AnswerOf(Executor& executor) {
  constexpr int kPromptTokens = 64;
  constexpr int kTokens = 32;
  Request request;
  const int vocab_size = executor.limits().vocab_size;
  for (int i = 0; i < kPromptTokens; ++i) request.input_ids.push_back((7 + 131 * i) % vocab_size);
  request.max_tokens = kTokens;
  const auto sink = std::make_shared<IdsSink>();
  RETURN_IF_ERROR(executor.Enqueue(std::move(request), sink).status());
  RETURN_IF_ERROR(sink->Wait());
  return sink->ids;
}

Result<loader::Loaded> OpenSleeper(const SleepBenchOptions& options, const std::string& named) {
  if (options.shape.empty()) {
    ASSIGN_OR_RETURN(const std::filesystem::path dir, ModelDirectory(named));
    return LoadModel(dir, options.model);
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Device> device,
                   Device::ByName(options.model.device, options.model.num_threads.value_or(0)));
  ASSIGN_OR_RETURN(const model::ModelConfig config,
                   RandomConfig(options.shape, options.model, device->kind()));
  const model::EngineLimits limits{.max_batch_size = options.max_batch_size};
  return OpenRandom(device, config, limits, /*tune=*/false, options.model);
}

double MsSince(int64_t start_ns) {
  return static_cast<double>(Clock::System().NowNs() - start_ns) * 1e-6;
}

Status RunRound(Executor& executor, int level, int round, const std::vector<TokenId>& expected) {
  constexpr double kGB = 1e9;
  int64_t start_ns = Clock::System().NowNs();
  RETURN_IF_ERROR(executor.Sleep({.level = level, .mode = SleepMode::kKeep}));
  const double sleep_ms = MsSince(start_ns);
  const SleepState asleep = executor.sleep_state();
  start_ns = Clock::System().NowNs();
  RETURN_IF_ERROR(executor.WakeUp({}));
  const double wake_ms = MsSince(start_ns);
  start_ns = Clock::System().NowNs();
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, AnswerOf(executor));
  fmt::print("{},{},{:.2f},{:.2f},{:.2f},{:.1f},{:.1f},{:.1f},{}\n", level, round,
             static_cast<double>(asleep.weight_bytes) / kGB,
             static_cast<double>(asleep.kv_cache_bytes) / kGB,
             static_cast<double>(asleep.host_copy_bytes) / kGB, sleep_ms, wake_ms,
             MsSince(start_ns), ids == expected ? "equal" : "other");
  std::fflush(stdout);
  return Status::Ok();
}

Status RunSleepBench(const SleepBenchOptions& options, std::span<const std::string> positionals) {
  if (positionals.size() != (options.shape.empty() ? 1 : 0))
    return UsageError(kBenchSleepUsage, "a model's directory, or --shape");
  ASSIGN_OR_RETURN(const loader::Loaded model,
                   OpenSleeper(options, positionals.empty() ? "" : positionals.front()));
  Executor& executor = *model.executor;
  RETURN_IF_ERROR(AnswerOf(executor).status());  // the first one of a process is slower
  int64_t start_ns = Clock::System().NowNs();
  ASSIGN_OR_RETURN(const std::vector<TokenId> expected, AnswerOf(executor));
  fmt::print("# device: {}; an answer takes {:.1f} ms\n", model.kernels.device, MsSince(start_ns));
  fmt::print(
      "level,round,weights_gb,kv_cache_gb,host_copy_gb,sleep_ms,wake_ms,first_answer_ms,ids\n");
  for (int level = 1; level <= (options.shape.empty() ? 2 : 1); ++level)
    for (int round = 1; round <= options.repeats; ++round)
      RETURN_IF_ERROR(RunRound(executor, level, round, expected));
  return Status::Ok();
}

}  // namespace

int BenchSleepMain(Args args) {
  return RunCommand(args, kBenchSleepUsage, MakeSleepBenchSchema(), RunSleepBench);
}

Manual BenchSleepManual() { return {kBenchSleepUsage, MakeSleepBenchSchema().options()}; }

}  // namespace inflight::tool
