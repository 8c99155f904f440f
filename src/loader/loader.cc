// SPDX-License-Identifier: Apache-2.0
#include "loader/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "artifact/hub_cache.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/engine_memory.h"
#include "executor/executor.h"
#include "executor/local_backend.h"
#include "executor/model_drafts.h"
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

namespace {

Status CheckDraftModel(const OpenOptions& options, const Device& device) {
  if (options.executor.drafts == DraftSource::kNgram)
    return InvalidArgument("draft_model", "n-grams propose tokens already; leave one of them out");
  if (device.kind() == DeviceKind::kCuda)
    return Unimplemented("draft_model",
                         "a GPU does not verify draft tokens; leave it out, or use --device cpu");
  return Status::Ok();
}

}  // namespace

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
  ExecutorOptions executor_options = options.executor;
  uint64_t free_bytes = plan.device->FreeBytes();
  if (!options.draft_model.empty()) {
    RETURN_IF_ERROR(CheckDraftModel(options, *plan.device));
    ASSIGN_OR_RETURN(const fs::path draft_dir, artifact::ResolveModelDir(options.draft_model));
    const auto draft = builder::Describe(draft_dir, open);
    if (!draft.ok()) return draft.status().WithPrefix("draft_model");
    const uint64_t draft_bytes =
        draft->weight_bytes +
        executor::ModelDrafts::Bytes(draft->config, draft->limits, model.limits);
    free_bytes -= std::min(free_bytes, draft_bytes);
    executor_options.drafts = DraftSource::kModel;
  }
  ASSIGN_OR_RETURN(plan.memory,
                   executor::PlanMemory(model.config, model.limits, open.target, model.weight_bytes,
                                        /*weights_are_taken=*/false, executor_options, free_bytes));
  plan.info = InfoOf(model.config, *plan.device, plan.memory);
  plan.info.directory = dir;
  plan.info.tokenizer_dir = model.tokenizer_dir;
  ASSIGN_OR_RETURN(plan.info.limits,
                   LimitsOf(plan.memory, model.config, model.limits, executor_options));
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

namespace {

Result<Loaded> StartWith(const std::shared_ptr<const model::Engine>& engine,
                         const std::shared_ptr<Device>& device, const OpenOptions& options,
                         const std::shared_ptr<const model::Engine>& draft);

// The draft model is quantised as its own directory says.
Result<Loaded> StartWithDrafts(const std::shared_ptr<const model::Engine>& engine,
                               const std::shared_ptr<Device>& device, const OpenOptions& options) {
  if (options.draft_model.empty()) return StartWith(engine, device, options, nullptr);
  RETURN_IF_ERROR(CheckDraftModel(options, *device));
  ASSIGN_OR_RETURN(const fs::path dir, artifact::ResolveModelDir(options.draft_model));
  OpenOptions of_draft = options;
  of_draft.quant_algo = "auto";
  ASSIGN_OR_RETURN(const builder::OpenOptions open, BuilderOptions(of_draft));
  auto draft = builder::Open(dir, *device, open);
  if (!draft.ok()) return draft.status().WithPrefix("draft_model");
  OpenOptions with = options;
  with.executor.drafts = DraftSource::kModel;
  return StartWith(engine, device, with, *draft);
}

}  // namespace

Result<Loaded> Load(const fs::path& directory, const OpenOptions& options) {
  ASSIGN_OR_RETURN(const fs::path dir, artifact::ResolveModelDir(directory));
  ASSIGN_OR_RETURN(const builder::OpenOptions open, BuilderOptions(options));
  // The engine goes before the device that its memory is of.
  ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, DeviceFor(dir, options));
  const MemoryLedger::OwnerScope scope(device->ledger(), options.owner);
  ASSIGN_OR_RETURN(const std::shared_ptr<const model::Engine> engine,
                   builder::Open(dir, *device, open, options.progress));
  ASSIGN_OR_RETURN(Loaded loaded, StartWithDrafts(engine, device, options));
  loaded.info.directory = dir;
  LogShares(options.owner, *loaded.device);
  return loaded;
}

Result<Loaded> Start(const std::shared_ptr<const model::Engine>& engine,
                     const std::shared_ptr<Device>& device, const OpenOptions& options) {
  return StartWith(engine, device, options, nullptr);
}

namespace {

Result<Loaded> StartWith(const std::shared_ptr<const model::Engine>& engine,
                         const std::shared_ptr<Device>& device, const OpenOptions& options,
                         const std::shared_ptr<const model::Engine>& draft) {
  ExecutorOptions executor_options = options.executor;
  ASSIGN_OR_RETURN(executor_options.kv_observer, KvObserverOf(options, *device));
  ASSIGN_OR_RETURN(
      executor::LocalBackend local,
      executor::CreateLocalBackend(engine, *device, executor_options, options.ops, draft));
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

}  // namespace

}  // namespace inflight::loader
