// SPDX-License-Identifier: Apache-2.0
#include "loader/loader.h"

#include <fmt/format.h>

#include <utility>

#include "artifact/hub_cache.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/engine_memory.h"
#include "executor/executor.h"
#include "executor/local_backend.h"
#include "kv_events/publisher.h"
#include "loader/devices.h"
#include "model/supported.h"

namespace inflight::loader {
namespace {

namespace fs = std::filesystem;

std::vector<TokenId> EndIdsWithin(const model::ModelConfig& config) {
  std::vector<TokenId> within;
  for (const TokenId id : config.end_ids) {
    if (id >= 0 && id < config.vocab_size) {
      within.push_back(id);
    } else {
      logging::Warning("end id of the model's files is outside its vocabulary",
                       {{"id", id}, {"vocab_size", config.vocab_size}});
    }
  }
  return within;
}

ModelInfo InfoOf(const model::ModelConfig& config, Device& device,
                 const executor::MemoryPlan& memory) {
  const std::string_view algo = model::QuantAlgoName(config.quant_algo);
  return {.architecture = config.architecture,
          .dtype = std::string(DTypeName(config.dtype)),
          .quant_algo = std::string(algo.empty() ? "none" : algo),
          .device = device.name(),
          .end_ids = EndIdsWithin(config),
          .memory = {.weight_bytes = memory.weight_bytes,
                     .kv_cache_bytes = memory.kv_bytes(),
                     .total_bytes = memory.total_bytes()}};
}

// Who is told of reusable blocks; null where nobody is.
Result<std::shared_ptr<KvObserver>> KvObserverOf(const OpenOptions& options, const Device& device) {
  const ExecutorOptions& executor = options.executor;
  if (executor.kv_observer != nullptr || executor.kv_events.endpoint.empty())
    return executor.kv_observer;
  if (!executor.enable_prefix_reuse)
    return InvalidArgument("kv_events_endpoint",
                           "no block is reused without enable_prefix_reuse; leave one of both out");
  KvEventsOptions events = executor.kv_events;
  const std::string model = options.owner.substr(0, options.owner.find('/'));
  constexpr std::string_view kModel = "{model}";
  for (std::string* text : {&events.endpoint, &events.replay_endpoint, &events.topic}) {
    const size_t at = text->find(kModel);
    if (at != std::string::npos) text->replace(at, kModel.size(), model);
  }
  const bool is_gpu = device.kind() == DeviceKind::kCuda;
  return kv_events::Publish(events, {.device = is_gpu ? "GPU" : "CPU", .host = "CPU"});
}

void LogShares(const std::string& owner, Device& device) {
  if (owner.empty()) return;
  for (const MemoryLedger::Entry& entry : device.ledger().entries()) {
    if (!entry.name.starts_with(owner + ": ")) continue;
    logging::Info("memory taken", {{"share", entry.name}, {"bytes", entry.bytes}});
  }
  logging::Info("memory left", {{"device", device.name()}, {"bytes", device.FreeBytes()}});
}

}  // namespace

Result<builder::OpenOptions> BuilderOptions(const OpenOptions& options) {
  builder::OpenOptions open{.fp8_kv_cache = options.fp8_kv_cache,
                            .quantize_lm_head = options.quantize_lm_head};
  if (options.dtype != "auto") {
    open.dtype = DTypeFromName(options.dtype);
    if (open.dtype != DType::kF32 && open.dtype != DType::kBF16 && open.dtype != DType::kF16)
      return InvalidArgument(fmt::format(
          "dtype: got '{}', must be auto, float32, bfloat16 or float16", options.dtype));
  }
  if (options.quant_algo == "none") {
    open.quant_algo = model::QuantAlgo::kNone;
  } else if (options.quant_algo != "auto") {
    open.quant_algo = model::QuantAlgoFromName(options.quant_algo);
    if (!open.quant_algo || *open.quant_algo == model::QuantAlgo::kNone)
      return InvalidArgument(fmt::format(
          "quant_algo: got '{}', must be auto, none, W8A16, W4A16 or FP8_PER_CHANNEL_PER_TOKEN",
          options.quant_algo));
  }
  return open;
}

Result<std::shared_ptr<Device>> DeviceFor(const fs::path& directory, const OpenOptions& options) {
  ASSIGN_OR_RETURN(const builder::OpenOptions open, BuilderOptions(options));
  std::shared_ptr<Devices> devices = options.devices;
  if (devices == nullptr) {
    ASSIGN_OR_RETURN(devices, FindDevices(options.device, options.num_threads));
  }
  return options.gpu ? devices->ForGpu(directory, *options.gpu) : devices->For(directory, open);
}

Result<ExecutorLimits> LimitsOf(const executor::MemoryPlan& memory,
                                const model::ModelConfig& config, const model::EngineLimits& limits,
                                const ExecutorOptions& options) {
  return executor::MakeLimits(
      executor::BackendInfoOf(memory, config.vocab_size, limits.max_beam_width), options);
}

Result<Plan> MakePlan(const fs::path& directory, const OpenOptions& options) {
  ASSIGN_OR_RETURN(const fs::path dir, artifact::ResolveModelDir(directory));
  Plan plan;
  ASSIGN_OR_RETURN(builder::OpenOptions open, BuilderOptions(options));
  ASSIGN_OR_RETURN(plan.device, DeviceFor(dir, options));
  open.target = plan.device->kind();
  ASSIGN_OR_RETURN(plan.description, builder::Describe(dir, open));
  const builder::Description& model = plan.description;
  RETURN_IF_ERROR(builder::CheckOpensOn(open.target, dir, model));
  RETURN_IF_ERROR(model::CheckRuns(model.config, *plan.device));
  ASSIGN_OR_RETURN(plan.memory,
                   executor::PlanMemory(model.config, model.limits, open.target, model.weight_bytes,
                                        /*weights_are_taken=*/false, options.executor,
                                        plan.device->FreeBytes()));
  plan.info = InfoOf(model.config, *plan.device, plan.memory);
  plan.info.directory = dir;
  plan.info.tokenizer_dir = model.tokenizer_dir;
  ASSIGN_OR_RETURN(plan.info.limits,
                   LimitsOf(plan.memory, model.config, model.limits, options.executor));
  return plan;
}

std::string Plan::ToString() const {
  const ExecutorLimits& limits = info.limits;
  return memory.ToString() +
         fmt::format(
             "limits     {} sequences and {} tokens in a step; {} tokens in a sequence, {} "
             "in its prompt; {} beams\n",
             limits.max_batch_size, limits.max_num_tokens, limits.max_seq_len, limits.max_input_len,
             limits.max_beam_width);
}

Result<Loaded> Load(const fs::path& directory, const OpenOptions& options) {
  ASSIGN_OR_RETURN(const fs::path dir, artifact::ResolveModelDir(directory));
  ASSIGN_OR_RETURN(const builder::OpenOptions open, BuilderOptions(options));
  // The engine goes before the device that its memory is of.
  ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, DeviceFor(dir, options));
  const MemoryLedger::OwnerScope scope(device->ledger(), options.owner);
  ASSIGN_OR_RETURN(const std::shared_ptr<const model::Engine> engine,
                   builder::Open(dir, *device, open, options.progress));
  ASSIGN_OR_RETURN(Loaded loaded, Start(engine, device, options));
  loaded.info.directory = dir;
  LogShares(options.owner, *loaded.device);
  return loaded;
}

Result<Loaded> Start(const std::shared_ptr<const model::Engine>& engine,
                     const std::shared_ptr<Device>& device, const OpenOptions& options) {
  ExecutorOptions executor_options = options.executor;
  ASSIGN_OR_RETURN(executor_options.kv_observer, KvObserverOf(options, *device));
  ASSIGN_OR_RETURN(executor::LocalBackend local,
                   executor::CreateLocalBackend(engine, *device, executor_options, options.ops));
  ASSIGN_OR_RETURN(auto executor,
                   executor::CreateExecutor(std::move(local.backend), executor_options));
  Loaded loaded{.device = device,
                .engine = engine,
                .info = InfoOf(engine->config, *device, local.plan),
                // The executor goes before what it runs on.
                .executor = std::shared_ptr<Executor>(executor.release(),
                                                      [device](Executor* e) { delete e; })};
  loaded.info.tokenizer_dir = engine->tokenizer_dir;
  loaded.info.limits = loaded.executor->limits();
  return loaded;
}

}  // namespace inflight::loader
