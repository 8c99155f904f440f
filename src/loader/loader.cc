// SPDX-License-Identifier: Apache-2.0
#include "loader/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "artifact/hub_cache.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/engine_memory.h"
#include "comm/shared_group.h"
#include "executor/cuda_rank_processes.h"
#include "executor/cuda_ranks.h"
#include "executor/executor.h"
#include "executor/local_backend.h"
#include "executor/ranked_backend.h"
#include "flight_recorder/recorder.h"
#include "kv_events/publisher.h"
#include "loader/devices.h"
#include "loader/draft_model.h"
#include "loader/rank_processes.h"
#include "model/config_json.h"
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
                 std::span<const executor::MemoryPlan> ranks) {
  ModelMemory memory;
  for (const executor::MemoryPlan& rank : ranks) {
    memory.weight_bytes += rank.weight_bytes;
    memory.kv_cache_bytes += rank.kv_bytes();
    memory.total_bytes += rank.total_bytes();
  }
  const std::string_view algo = model::QuantAlgoName(config.quant_algo);
  return {.architecture = config.architecture,
          .dtype = std::string(DTypeName(config.dtype)),
          .quant_algo = std::string(algo.empty() ? "none" : algo),
          .device = device.name(),
          .end_ids = EndIdsWithin(config),
          .drafts = ranks.front().drafts,
          .memory = memory};
}

std::string KernelDevice(const Device& device) {
  return device.kind() == DeviceKind::kCuda ? device.cuda().name : device.name();
}

// `text` with the model's name, of an owner "name/version", for each {model}.
std::string WithModel(std::string text, const std::string& owner) {
  constexpr std::string_view kModel = "{model}";
  const std::string model = owner.substr(0, owner.find('/'));
  for (size_t at = text.find(kModel); at != std::string::npos;
       at = text.find(kModel, at + model.size()))
    text.replace(at, kModel.size(), model);
  return text;
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
  for (std::string* text : {&events.endpoint, &events.replay_endpoint, &events.topic})
    *text = WithModel(std::move(*text), options.owner);
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

Status CheckRanks(const artifact::RankMapping& ranks) {
  constexpr int kMost = comm::SharedGroup::kMaxRanks;
  for (const auto& [name, size] : {std::pair{"tensor_parallel_size", ranks.tp_size},
                                   {"pipeline_parallel_size", ranks.pp_size}})
    if (size < 1 || size > kMost)
      return InvalidArgument(name, fmt::format("got {}, must be in [1, {}]", size, kMost));
  return Status::Ok();
}

// Before weights are read.
Status CheckRanksRunOn(const Device& device, const builder::OpenOptions& open) {
  if (open.ranks.num_ranks() == 1 || device.kind() == DeviceKind::kCpu) return Status::Ok();
  return executor::CheckCudaRanks({.tp_size = open.ranks.tp_size, .pp_size = open.ranks.pp_size});
}

// Of ranks on GPUs that are processes.
Status CheckGpuProcesses(const OpenOptions& options) {
  const GpuWeights& weights = options.executor.gpu_weights;
  if (weights.fraction == 1 && !weights.as_many_as_fit) return Status::Ok();
  return Unimplemented(
      "gpu_weights_percent: ranks on GPUs that are processes hold all their weights; leave it out, "
      "use more ranks, or run them as threads of one process, on GPUs of one host");
}

// The options' own, or such that all that is asked of them is the same device each time.
Result<std::shared_ptr<Devices>> DevicesOf(const OpenOptions& options) {
  if (options.devices != nullptr) return options.devices;
  return FindDevices(options.device, options.num_threads);
}

}  // namespace

artifact::RankSizes RankSizesOf(const OpenOptions& options) {
  return {.tp_size = options.tensor_parallel_size,
          .pp_size = options.pipeline_parallel_size,
          .moe_tp_size = options.moe_tp_size,
          .moe_ep_size = options.moe_ep_size};
}

Result<builder::OpenOptions> BuilderOptions(const fs::path& directory, const OpenOptions& options) {
  builder::OpenOptions open{.group_size = options.group_size,
                            .fp8_kv_cache = options.fp8_kv_cache,
                            .quantize_lm_head = options.quantize_lm_head};
  ASSIGN_OR_RETURN(open.ranks, builder::RanksOf(directory, RankSizesOf(options)));
  RETURN_IF_ERROR(CheckRanks(open.ranks));
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
    using enum model::QuantAlgo;
    if (!open.quant_algo || *open.quant_algo == kNone || *open.quant_algo == kMixedPrecision)
      return InvalidArgument(
          fmt::format("quant_algo: got '{}', must be auto, none, W8A16, W4A16, W8A16_GPTQ, "
                      "W4A16_GPTQ or FP8_PER_CHANNEL_PER_TOKEN",
                      options.quant_algo));
  }
  return open;
}

Result<std::shared_ptr<Device>> DeviceFor(const fs::path& directory, const OpenOptions& options,
                                          int rank) {
  ASSIGN_OR_RETURN(builder::OpenOptions open, BuilderOptions(directory, options));
  open.rank = rank;
  ASSIGN_OR_RETURN(const std::shared_ptr<Devices> devices, DevicesOf(options));
  return options.gpus.empty() ? devices->For(directory, open)
                              : devices->ForGpu(directory, options.gpus.front());
}

Result<std::vector<std::shared_ptr<Device>>> DevicesFor(const fs::path& directory,
                                                        const OpenOptions& options, int num_ranks) {
  OpenOptions with = options;
  ASSIGN_OR_RETURN(with.devices, DevicesOf(options));
  ASSIGN_OR_RETURN(const std::shared_ptr<Device> first, DeviceFor(directory, with));
  std::vector<std::shared_ptr<Device>> devices(static_cast<size_t>(num_ranks), first);
  if (first->kind() == DeviceKind::kCpu) return devices;
  const std::vector<int>& named = options.gpus;
  if (!named.empty() && named.size() != devices.size())
    return InvalidArgument(
        fmt::format("{} GPUs for {} ranks: name one for each", named.size(), num_ranks));
  for (int r = 1; r < num_ranks; ++r) {
    const auto place = static_cast<size_t>(r);
    auto device = named.empty() ? with.devices->Behind(*first, r)
                                : with.devices->ForGpu(directory, named[place]);
    if (!device.ok())
      return device.status().WithPrefix(fmt::format("{} ranks, a GPU for each", num_ranks));
    devices[place] = *std::move(device);
  }
  return devices;
}

Result<ExecutorLimits> LimitsOf(const executor::MemoryPlan& memory,
                                const model::ModelConfig& config, const model::EngineLimits& limits,
                                const ExecutorOptions& options) {
  return executor::MakeLimits(
      executor::BackendInfoOf(memory, config.vocab_size, limits.max_beam_width), options);
}

namespace {

executor::WeightSizes SizesOf(const builder::Description& model) {
  return {.num_layers = model.config.num_layers,
          .total_bytes = model.weight_bytes,
          .layer_bytes = model.layer_bytes};
}

// The engine of `dir`, its layers where `options` wants them.
Result<std::shared_ptr<const model::Engine>> OpenWeights(const fs::path& dir, Device& device,
                                                         builder::OpenOptions open,
                                                         const OpenOptions& options) {
  RETURN_IF_ERROR(CheckRanksRunOn(device, open));
  const GpuWeights& asked = options.executor.gpu_weights;
  if (asked.fraction == 1 && !asked.as_many_as_fit)
    return builder::Open(dir, device, open, options.progress);
  open.target = device.kind();
  ASSIGN_OR_RETURN(const builder::Description model, builder::Describe(dir, open));
  std::unique_lock<std::mutex> sizing;  // until the weights that fit are taken
  if (asked.as_many_as_fit) sizing = device.ledger().LockSizing();
  ASSIGN_OR_RETURN(const DraftPlan draft, PlanDrafts(model.config, model.limits, open, options));
  ExecutorOptions executor_options = options.executor;
  executor_options.drafts = draft.source;
  ASSIGN_OR_RETURN(const StreamingPlan plan,
                   PlanStreaming(model.config, model.limits, device, SizesOf(model),
                                 executor_options, draft.CostOf(model.config.part)));
  LogStreaming(plan);
  open.streamed_layers = plan.weights.streamed;
  return builder::Open(dir, device, open, options.progress);
}

// Of all ranks: each is planned with its share of what the weights on its device leave, and has as
// many tokens as the one with the least room (CreateRankedBackend, CreateCudaRanks).
Result<std::vector<executor::MemoryPlan>> PlanRanks(
    const fs::path& dir, builder::OpenOptions open, ExecutorOptions options, const DraftPlan& draft,
    std::span<const std::shared_ptr<Device>> devices) {
  const int num_ranks = open.ranks.num_ranks();
  std::vector<builder::Description> models;
  for (open.rank = 0; open.rank < num_ranks; ++open.rank) {
    ASSIGN_OR_RETURN(models.emplace_back(), builder::Describe(dir, open));
  }
  const bool is_cuda = open.target == DeviceKind::kCuda;
  std::vector<executor::WeightPlan> weights;
  for (size_t r = 0; r < models.size(); ++r) {
    ASSIGN_OR_RETURN(
        const StreamingPlan streaming,
        PlanStreaming(models[r].config, models[r].limits, *devices[r], SizesOf(models[r]), options,
                      draft.CostOf(models[r].config.part)));
    weights.push_back(streaming.weights);
  }
  // Beside the leader is what drafts work in; on GPUs beside every rank of a stage.
  const auto has_drafts = [&](size_t rank) {
    return is_cuda ? draft.IsOn(models[rank].config.part) : rank == 0;
  };
  const auto share_of = [&](size_t rank) {
    const Device& device = *devices[rank];
    uint64_t taken = 0;
    uint64_t of_drafts = 0;
    uint64_t num_shares = 0;
    for (size_t r = 0; r < models.size(); ++r) {
      if (devices[r].get() != &device) continue;
      taken += weights[r].device_bytes();
      if (has_drafts(r)) of_drafts = draft.weight_bytes;
      ++num_shares;
    }
    taken += of_drafts;
    return (device.FreeBytes() - std::min(device.FreeBytes(), taken)) / num_shares;
  };
  options.kv_cache_host_bytes /= static_cast<uint64_t>(num_ranks);
  std::vector<executor::MemoryPlan> plans;
  for (const bool is_final : {false, true}) {
    plans.clear();
    for (size_t r = 0; r < models.size(); ++r) {
      const builder::Description& model = models[r];
      const bool is_leader = r == 0;
      const uint64_t share = share_of(r);
      const uint64_t beside = has_drafts(r) ? draft.cost.bytes - draft.weight_bytes : 0;
      const ExecutorOptions own =
          is_leader || is_cuda ? options : executor::FollowerOptions(options, plans.front());
      ASSIGN_OR_RETURN(
          plans.emplace_back(),
          executor::PlanMemory(
              model.config, model.limits, open.target, weights[r].device_bytes(),
              /*weights_are_taken=*/true, own, share - std::min(share, beside),
              {.ring_bytes = weights[r].ring_bytes,
               .host_bytes = weights[r].host_bytes,
               .draft_kv_bytes_per_block = has_drafts(r) ? draft.cost.kv_bytes_per_block : 0,
               .eagle = has_drafts(r) ? draft.eagle_config() : nullptr}));
      if (is_final) continue;
      const int64_t tokens = plans.back().kv_tokens();
      options.max_kv_tokens = std::min(options.max_kv_tokens.value_or(tokens), tokens);
    }
  }
  return plans;
}

// A line for each of several.
std::string TextOfRanks(std::span<const executor::MemoryPlan> ranks, uint64_t total_bytes) {
  if (ranks.size() == 1) return "";
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string text = fmt::format("ranks      {}, in all {:.2f} GiB\n", ranks.size(),
                                 static_cast<double>(total_bytes) / (1 << 30));
  for (size_t r = 0; r < ranks.size(); ++r)
    text += fmt::format(
        "{:<11}{:.1f} MiB: weights {:.1f}, workspace {:.1f}, KV cache {:.1f}, others {:.1f}\n",
        fmt::format("  rank {}", r), mib(ranks[r].total_bytes()), mib(ranks[r].weight_bytes),
        mib(ranks[r].workspace_bytes), mib(ranks[r].kv_bytes()),
        mib(ranks[r].total_bytes() - ranks[r].weight_bytes - ranks[r].workspace_bytes -
            ranks[r].kv_bytes()));
  return text + "of rank 0:\n";
}

}  // namespace

Result<Plan> MakePlan(const fs::path& directory, const OpenOptions& options) {
  ASSIGN_OR_RETURN(const fs::path dir, artifact::ResolveModelDir(directory));
  Plan plan;
  ASSIGN_OR_RETURN(builder::OpenOptions open, BuilderOptions(dir, options));
  ASSIGN_OR_RETURN(const auto devices, DevicesFor(dir, options, open.ranks.num_ranks()));
  plan.device = devices.front();
  RETURN_IF_ERROR(CheckRanksRunOn(*plan.device, open));
  open.target = plan.device->kind();
  ASSIGN_OR_RETURN(plan.description, builder::Describe(dir, open));
  const builder::Description& model = plan.description;
  RETURN_IF_ERROR(builder::CheckOpensOn(open.target, dir, model));
  RETURN_IF_ERROR(model::CheckRuns(model.config, *plan.device));
  RETURN_IF_ERROR(
      model::CheckRanks(model.config, open.ranks.num_ranks(), model::FactsOf(open.target)));
  ASSIGN_OR_RETURN(const DraftPlan draft, PlanDrafts(model.config, model.limits, open, options));
  ExecutorOptions executor_options = options.executor;
  executor_options.drafts = draft.source;
  ASSIGN_OR_RETURN(plan.streaming, PlanStreaming(model.config, model.limits, *plan.device,
                                                 SizesOf(model), executor_options, draft.cost));
  const executor::WeightPlan& weights = plan.streaming.weights;
  if (open.ranks.num_ranks() == 1) {
    const uint64_t free_bytes =
        plan.device->FreeBytes() - std::min(plan.device->FreeBytes(), draft.cost.bytes);
    ASSIGN_OR_RETURN(
        plan.memory,
        executor::PlanMemory(model.config, model.limits, open.target, weights.device_bytes(),
                             /*weights_are_taken=*/false, executor_options, free_bytes,
                             {.ring_bytes = weights.ring_bytes,
                              .host_bytes = weights.host_bytes,
                              .draft_kv_bytes_per_block = draft.cost.kv_bytes_per_block,
                              .eagle = draft.eagle_config()}));
    plan.ranks = {plan.memory};
  } else {
    ASSIGN_OR_RETURN(plan.ranks, PlanRanks(dir, open, executor_options, draft, devices));
    plan.memory = plan.ranks.front();
  }
  plan.info = InfoOf(model.config, *plan.device, plan.ranks);
  plan.info.directory = dir;
  plan.info.tokenizer_dir = model.tokenizer_dir;
  ASSIGN_OR_RETURN(plan.info.limits,
                   LimitsOf(plan.memory, model.config, model.limits, executor_options));
  return plan;
}

std::string Plan::ToString() const {
  const ExecutorLimits& limits = info.limits;
  return TextOfRanks(ranks, info.memory.total_bytes) + memory.ToString() + streaming.ToString() +
         fmt::format(
             "limits     {} sequences and {} tokens in a step; {} tokens in a sequence, {} "
             "in its prompt; {} beams\n",
             limits.max_batch_size, limits.max_num_tokens, limits.max_seq_len, limits.max_input_len,
             limits.max_beam_width);
}

namespace {

using Engines = executor::RankEngines;
using RankDevices = std::vector<std::shared_ptr<Device>>;

// `drafts`: of the leader, on GPUs of each rank; empty without.
Result<executor::LocalBackend> MakeBackend(const Engines& engines, const RankDevices& devices,
                                           const ExecutorOptions& options, const std::string& ops,
                                           const std::vector<executor::DraftWeights>& drafts,
                                           RankProcesses::Load* others) {
  const executor::DraftWeights draft = drafts.empty() ? executor::DraftWeights() : drafts.front();
  Device& device = *devices.front();
  if (others != nullptr) return others->CreateBackend(engines.front(), device, options, ops, draft);
  if (engines.size() == 1)
    return executor::CreateLocalBackend(engines.front(), device, options, ops, draft);
  if (device.kind() == DeviceKind::kCuda) {
    std::vector<Device*> gpus;
    for (const auto& gpu : devices) gpus.push_back(gpu.get());
    return executor::CreateCudaRanks(engines, gpus, options, ops, drafts);
  }
  return executor::CreateRankedBackend(engines, device, options, ops, draft);
}

Result<std::unique_ptr<executor::LoopWatcher>> RecorderOf(const Recording& recording,
                                                          const fs::path& dir,
                                                          const OpenOptions& options,
                                                          Device& device,
                                                          const executor::BackendInfo& info) {
  const bool is_gpu = device.kind() == DeviceKind::kCuda;
  if (is_gpu && !options.executor.deterministic)
    logging::Warning("what is recorded may not repeat to the bit: --deterministic is not given");
  flight_recorder::Header header{.owner = options.owner,
                                 .model = fs::absolute(dir).string(),
                                 .device = device.name(),
                                 .shape = flight_recorder::ShapeOf(info),
                                 .least_step_ns = info.least_step_ns,
                                 .open = options};
  ExecutorOptions& executor = header.open.executor;
  if (!options.draft_model.empty()) executor.drafts = DraftSource::kAuto;  // what it is decides
  const executor::KvGroup& group = info.kv_groups.front();
  executor.max_kv_tokens = group.num_blocks * group.block_size;
  std::string owner = options.owner;  // each version has a file
  std::ranges::replace(owner, '/', '-');
  return flight_recorder::Record({.file = WithModel(recording.file, owner),
                                  .file_bytes = recording.file_bytes,
                                  .keeps_prompts = recording.keeps_prompts},
                                 std::move(header));
}

// What an executor sleeps by; null where it is not to. `reload` reads the weights of all ranks
// again.
Result<std::unique_ptr<executor::Sleeper>> SleeperOf(const executor::Backend& backend,
                                                     const Engines& engines,
                                                     const OpenOptions& options,
                                                     std::function<Status()> reload) {
  if (!options.executor.enable_sleep) return std::unique_ptr<executor::Sleeper>();
  Result<executor::ReleasableParts> parts = backend.releasable();
  executor::Sleeper::Options with = {.owner = options.owner,
                                     .reload = std::move(reload),
                                     .no_sleep = parts.status(),
                                     .no_reload = {}};
  const bool streams =
      std::ranges::any_of(engines, [](const auto& engine) { return !engine->host_layers.empty(); });
  if (streams) {
    with.reload = nullptr;
    with.no_reload = Unimplemented(
        "level", "got 2, layers in host memory (gpu_weights_percent) are not read again; use 1");
  } else if (with.reload == nullptr) {
    with.no_reload = Unimplemented(
        "level",
        "got 2, the model's weights come from no directory that could be read again; use 1");
  }
  return std::make_unique<executor::Sleeper>(
      parts.ok() ? *std::move(parts) : executor::ReleasableParts(), std::move(with));
}

// Of one rank or several; `others` are those of other processes, `dir` what was opened.
Result<Loaded> StartOn(const Engines& engines, const RankDevices& devices,
                       const OpenOptions& options,
                       const std::vector<executor::DraftWeights>& drafts,
                       RankProcesses::Load* others = nullptr, const fs::path& dir = {},
                       const Recording& recording = {},
                       const std::function<Status()>& reload = nullptr) {
  const std::shared_ptr<const model::Engine>& engine = engines.front();
  const std::shared_ptr<Device>& device = devices.front();
  ExecutorOptions executor_options = options.executor;
  ASSIGN_OR_RETURN(executor_options.kv_observer, KvObserverOf(options, *device));
  ASSIGN_OR_RETURN(executor::LocalBackend local,
                   MakeBackend(engines, devices, executor_options, options.ops, drafts, others));
  std::unique_ptr<executor::LoopWatcher> recorder;
  if (!recording.file.empty()) {
    ASSIGN_OR_RETURN(recorder, RecorderOf(recording, dir, options, *device, local.backend->info()));
  }
  ASSIGN_OR_RETURN(auto sleeper, SleeperOf(*local.backend, engines, options, reload));
  ASSIGN_OR_RETURN(auto executor, executor::CreateExecutor(
                                      std::move(local.backend), executor_options, Clock::System(),
                                      std::move(recorder), std::move(sleeper)));
  Loaded loaded{.device = device,
                .engine = engine,
                .info = InfoOf(engine->config, *device, local.plans),
                .kernels = {.table = std::move(local.ops), .device = KernelDevice(*device)},
                // The executor goes before what it runs on.
                .executor = std::shared_ptr<Executor>(executor.release(),
                                                      [devices](Executor* e) { delete e; })};
  loaded.info.tokenizer_dir = engine->tokenizer_dir;
  loaded.info.limits = loaded.executor->limits();
  return loaded;
}

}  // namespace

namespace {

// What an executor is made of.
struct Parts {
  fs::path dir;
  RankDevices devices;  // the engines go before the devices that their memory is of
  std::map<Device*, std::unique_ptr<MemoryLedger::OwnerScope>> scopes;
  std::unique_ptr<RankProcesses::Load> others;  // of the other ranks, where they are processes
  Engines engines;
  std::vector<executor::DraftWeights> drafts;  // as of MakeBackend
  OpenOptions options;                         // with the drafts' source
};

Result<Parts> OpenParts(const fs::path& directory, const OpenOptions& options) {
  Parts parts{.options = options};
  ASSIGN_OR_RETURN(parts.dir, artifact::ResolveModelDir(directory));
  ASSIGN_OR_RETURN(builder::OpenOptions open, BuilderOptions(parts.dir, options));
  open.can_release = options.executor.enable_sleep;
  ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, DeviceFor(parts.dir, options));
  const bool are_processes =
      options.rank_processes != nullptr && open.ranks.num_ranks() > 1 &&
      (device->kind() == DeviceKind::kCpu || options.gpu_ranks_are_processes);
  if (are_processes && device->kind() == DeviceKind::kCuda) {
    RETURN_IF_ERROR(CheckGpuProcesses(options));
    parts.devices = {device};
  } else {
    ASSIGN_OR_RETURN(parts.devices, DevicesFor(parts.dir, options, open.ranks.num_ranks()));
  }
  for (const auto& each : parts.devices)
    if (auto& scope = parts.scopes[each.get()]; scope == nullptr)
      scope = std::make_unique<MemoryLedger::OwnerScope>(each->ledger(), options.owner);
  if (are_processes) {
    ASSIGN_OR_RETURN(const auto processes, options.rank_processes(open.ranks.num_ranks()));
    ASSIGN_OR_RETURN(parts.others, processes->BeginLoad(parts.dir, options, open.ranks));
  }
  const int num_own_ranks = parts.others == nullptr ? open.ranks.num_ranks() : 1;
  const bool is_gpu_process = parts.others != nullptr && device->kind() == DeviceKind::kCuda;
  for (int rank = 0; rank < num_own_ranks; ++rank) {
    open.rank =
        is_gpu_process ? executor::CudaRankOf(0, open.ranks.tp_size, open.ranks.pp_size) : rank;
    ASSIGN_OR_RETURN(
        parts.engines.emplace_back(),
        OpenWeights(parts.dir, *parts.devices[static_cast<size_t>(rank)], open, options));
  }
  const bool all_draft = device->kind() == DeviceKind::kCuda;
  for (size_t rank = 0; rank < (all_draft ? parts.engines.size() : 1); ++rank) {
    ASSIGN_OR_RETURN(OpenedDrafts opened,
                     OpenDrafts(*parts.engines[rank], *parts.devices[rank], options));
    parts.options.executor.drafts = opened.source;
    parts.drafts.push_back(std::move(opened.weights));
  }
  return parts;
}

// Reads the weights of `engines` again from the directory, into the memory where they lay.
std::function<Status()> ReloadOf(const Parts& parts) {
  return [dir = parts.dir, devices = parts.devices, engines = parts.engines,
          options = parts.options]() -> Status {
    ASSIGN_OR_RETURN(builder::OpenOptions open, BuilderOptions(dir, options));
    open.can_release = true;
    for (size_t rank = 0; rank < engines.size(); ++rank) {
      open.rank = static_cast<int>(rank);
      open.into = engines[rank].get();
      ASSIGN_OR_RETURN(const auto read, builder::Open(dir, *devices[rank], open));
      if (model::ConfigToCheckpoint(read->config) ==
          model::ConfigToCheckpoint(engines[rank]->config))
        continue;
      return FailedPrecondition(fmt::format(
          "{}: its configuration has changed since the model was loaded; unload the model and load "
          "it again",
          dir.string()));
    }
    return Status::Ok();
  };
}

}  // namespace

Result<Loaded> Load(const fs::path& directory, const OpenOptions& options,
                    const Recording& recording) {
  if (options.executor.enable_sleep && !recording.file.empty())
    return Unimplemented(
        "enable_sleep_mode",
        "not beside --record, whose journals have no sleep; leave one of both out");
  ASSIGN_OR_RETURN(const Parts parts, OpenParts(directory, options));
  const auto reload = options.executor.enable_sleep ? ReloadOf(parts) : nullptr;
  ASSIGN_OR_RETURN(Loaded loaded, StartOn(parts.engines, parts.devices, parts.options, parts.drafts,
                                          parts.others.get(), parts.dir, recording, reload));
  loaded.info.directory = parts.dir;
  LogShares(options.owner, *loaded.device);
  return loaded;
}

Result<LoadedBackend> LoadBackend(const fs::path& directory, const OpenOptions& options) {
  ASSIGN_OR_RETURN(const Parts parts, OpenParts(directory, options));
  const OpenOptions& with = parts.options;
  ASSIGN_OR_RETURN(executor::LocalBackend local,
                   MakeBackend(parts.engines, parts.devices, with.executor, with.ops, parts.drafts,
                               parts.others.get()));
  return LoadedBackend{
      .devices = parts.devices, .options = with.executor, .backend = std::move(local.backend)};
}

Result<Loaded> Start(const std::shared_ptr<const model::Engine>& engine,
                     const std::shared_ptr<Device>& device, const OpenOptions& options,
                     const executor::DraftWeights& draft) {
  return StartOn({engine}, {device}, options, {draft});
}

Result<Loaded> StartRanks(const Engines& engines, const RankDevices& devices,
                          const OpenOptions& options) {
  return StartOn(engines, devices, options, {});
}

}  // namespace inflight::loader
