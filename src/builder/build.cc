// SPDX-License-Identifier: Apache-2.0
// Checkpoint or Hugging Face directory -> engine, on disk or in memory.
#include <fmt/format.h>

#include "artifact/checkpoint.h"
#include "artifact/engine_file.h"
#include "artifact/tensor_set.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/engine_config.h"
#include "builder/engine_memory.h"
#include "builder/engine_writer.h"
#include "builder/hf_config.h"
#include "builder/merge.h"
#include "builder/model_files.h"
#include "builder/pack.h"
#include "builder/rank_source.h"
#include "builder/tune.h"
#include "builder/upload.h"
#include "builder/weight_source.h"
#include "model/limits.h"
#include "model/supported.h"

namespace inflight::builder {
namespace {

// The sizes must equal a checkpoint's, as of trtllm-build.
Status CheckMapping(const WeightSource& source, const BuildOptions& options) {
  const auto check = [&](const char* name, std::optional<int> asked, int found,
                         const char* parallelism) {
    if (asked.value_or(found) == found) return Status::Ok();
    return InvalidArgument(
        fmt::format("{}: got {}, {} has {} ({} parallelism mismatch); convert it with {} {}, or "
                    "leave the option out",
                    name, *asked, source.where, found, parallelism, name, *asked));
  };
  RETURN_IF_ERROR(check("tp_size", options.tp_size, source.ranks.tp_size, "tensor"));
  RETURN_IF_ERROR(check("pp_size", options.pp_size, source.ranks.pp_size, "pipeline"));
  const artifact::RankSizes sizes = {.tp_size = source.ranks.tp_size,
                                     .moe_tp_size = options.moe_tp_size,
                                     .moe_ep_size = options.moe_ep_size};
  if (!sizes.says_experts()) return Status::Ok();
  ASSIGN_OR_RETURN(const artifact::RankMapping asked, artifact::MakeMapping(sizes));
  return check("moe_ep_size", asked.moe_ep_size, source.ranks.moe_ep_size, "expert");
}

// Those of the engine.
Result<artifact::RankMapping> RanksToBuild(const WeightSource& source,
                                           const BuildOptions& options) {
  ASSIGN_OR_RETURN(const SourceKind kind, Detect(options.checkpoint_dir));
  artifact::RankMapping ranks = source.ranks;
  if (kind == SourceKind::kHuggingFace) {
    ASSIGN_OR_RETURN(ranks, artifact::MakeMapping({.tp_size = options.tp_size,
                                                   .pp_size = options.pp_size,
                                                   .moe_tp_size = options.moe_tp_size,
                                                   .moe_ep_size = options.moe_ep_size}));
  } else {
    RETURN_IF_ERROR(CheckMapping(source, options));
  }
  return options.merge_ranks ? artifact::RankMapping{} : ranks;
}

// This machine's first GPU, for what it does better than the host; null where there is none.
std::unique_ptr<Device> GpuOf(DeviceKind target) {
  if (target != DeviceKind::kCuda) return nullptr;
  Result<std::unique_ptr<Device>> gpu = Device::Cuda(0);
  return gpu.ok() ? *std::move(gpu) : nullptr;
}

// The file of hints beside the engine; none where there is nothing to say.
Status WriteTuning(const model::ModelConfig& config, const model::EngineLimits& limits,
                   const BuildOptions& options, Device* gpu, const Progress& progress) {
  const std::filesystem::path path = options.output_dir / artifact::kTuningFile;
  std::error_code error;
  std::filesystem::remove(path, error);  // an earlier build's
  if (!options.tune || gpu == nullptr) return Status::Ok();
  if (progress) progress(1.0, "timing products on the GPU");
  const Result<std::string> tuning = TuneProducts(config, limits, *gpu);
  if (!tuning.ok()) {
    logging::Warning("products are not tuned", {{"reason", tuning.status().message()}});
    return Status::Ok();
  }
  return WriteFile(path, *tuning);
}

void PackSlots(const WeightSource& source, std::span<const PlacedSlot> slots, Device& device,
               const Progress& progress) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const PlacedSlot& placed = slots[i];
    if (progress)
      progress(static_cast<double>(placed.target - slots.front().target) /
                   static_cast<double>(slots.back().target + 1 - slots.front().target),
               placed.slot.name);
    PackSlot(source, placed.slot, device.kind(), device.cpu_pool(), placed.target);
  }
}

void NoteDType(const WeightSource& source) {
  if (!source.quantization.empty())
    logging::Info("weights are quantised",
                  {{"path", source.where}, {"quantization", source.quantization}});
  if (source.narrowed_from)
    logging::Info(fmt::format("{} weights are rounded to bfloat16, which the GPU computes in",
                              DTypeName(*source.narrowed_from)),
                  {{"path", source.where}});
}

Result<std::unique_ptr<WeightSource>> OpenWhole(const std::filesystem::path& dir,
                                                const OpenOptions& options, DeviceKind target) {
  return OpenWeightSource(dir, {.dtype = options.dtype,
                                .quant_algo = options.quant_algo,
                                .group_size = options.group_size,
                                .fp8_kv_cache = options.fp8_kv_cache,
                                .quantize_lm_head = options.quantize_lm_head,
                                .target = target,
                                .is_for_one_rank = options.ranks.num_ranks() == 1});
}

// Leaves what the rank of `options` holds.
Status TakeRankOf(const OpenOptions& options, DeviceKind target, WeightSource& source) {
  if (options.ranks.num_ranks() == 1) return Status::Ok();
  const Result<Sharding> sharding = DivideOver(options.ranks, source);
  if (!sharding.ok())
    return sharding.status().WithPrefix("tensor_parallel_size, pipeline_parallel_size");
  return TakeRank(*sharding, options.rank, target, source);
}

Result<std::shared_ptr<const model::Engine>> OpenSource(const std::filesystem::path& dir,
                                                        Device& device, const OpenOptions& options,
                                                        const Progress& progress) {
  ASSIGN_OR_RETURN(const auto source, OpenWhole(dir, options, device.kind()));
  RETURN_IF_ERROR(model::CheckRuns(source->config, device));
  NoteDType(*source);
  ASSIGN_OR_RETURN(
      const model::EngineLimits limits,
      model::ResolveLimits(source->config, options.limits.value_or(model::ServedAsItIs())));
  if (options.rank == 0) RETURN_IF_ERROR(CheckCopies(*source, device.cpu_pool()));
  RETURN_IF_ERROR(TakeRankOf(options, device.kind(), *source));
  RETURN_IF_ERROR(model::CheckRuns(source->config, device));  // a rank's part has its own sizes
  const auto fill = [&](std::span<const PlacedSlot> slots) {
    if (device.kind() == DeviceKind::kCuda) return UploadSlots(*source, slots, device, progress);
    PackSlots(*source, slots, device, progress);
    return Status::Ok();
  };
  return MakeEngine({.config = source->config,
                     .limits = limits,
                     .tokenizer_dir = TokenizerDir(dir),
                     .streamed_layers = options.streamed_layers,
                     .place = WeightPlaceOf(options)},
                    device, fill, progress);
}

// Writes the files of all ranks, of which each is cut out of the whole model, and says what
// config.json has to. Leaves `source` as the last rank's.
Result<EngineConfig> WriteRanks(const Sharding& sharding, const BuildOptions& options, Device& host,
                                Device* gpu, const Progress& progress, WeightSource& source) {
  const int num_ranks = sharding.ranks.num_ranks();
  EngineConfig written{
      .model = source.config, .sharding = sharding, .rank_checksums = {}, .limits = {}};
  const std::unordered_map<std::string, WeightRecipe> whole = source.recipes;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (num_ranks > 1) {
      source.config = written.model;
      source.recipes = whole;
      RETURN_IF_ERROR(TakeRank(sharding, rank, options.target, source));
    }
    const std::filesystem::path path = options.output_dir / artifact::EngineFileName(rank);
    const auto report = [&](double fraction, std::string_view what) {
      if (progress) progress((rank + fraction) / num_ranks, what);
    };
    RETURN_IF_ERROR(WriteEngineFile(source, path, options.target, host, gpu, report));
    if (num_ranks == 1) continue;
    ASSIGN_OR_RETURN(const artifact::EngineTable table, artifact::ReadEngineTable(path));
    written.rank_checksums.push_back(table.checksum);
  }
  RETURN_IF_ERROR(artifact::RemoveFurtherEngineFiles(options.output_dir, num_ranks));
  return written;
}

}  // namespace

Status Build(const BuildOptions& options, const Progress& progress) {
  RETURN_IF_ERROR(CheckDistinct(options.checkpoint_dir, options.output_dir));
  if (!options.tokenizer_dir.empty() && TokenizerDir(options.tokenizer_dir).empty())
    return NotFound(fmt::format("tokenizer_dir: got {}, no tokenizer's files are in it",
                                options.tokenizer_dir.string()));
  ASSIGN_OR_RETURN(
      const auto source,
      OpenWeightSource(options.checkpoint_dir, {.dtype = options.dtype,
                                                .quant_algo = options.quant_algo,
                                                .group_size = options.group_size,
                                                .fp8_kv_cache = options.fp8_kv_cache,
                                                .quantize_lm_head = options.quantize_lm_head,
                                                .target = options.target}));
  // Before anything is written. Where a machine builds for another one, what the kernels of its GPU
  // lack shows when the engine is opened there.
  RETURN_IF_ERROR(model::CheckSupported(source->config, model::FactsOf(options.target)));
  NoteDType(*source);
  ASSIGN_OR_RETURN(const artifact::RankMapping ranks, RanksToBuild(*source, options));
  RETURN_IF_ERROR(
      model::CheckRanks(source->config, ranks.num_ranks(), model::FactsOf(options.target)));
  ASSIGN_OR_RETURN(const model::EngineLimits limits,
                   model::ResolveLimits(source->config, options.limits));
  const std::unique_ptr<Device> device = Device::Cpu();
  RETURN_IF_ERROR(CheckCopies(*source, device->cpu_pool()));
  Sharding sharding;
  if (ranks.num_ranks() > 1) {
    ASSIGN_OR_RETURN(sharding, DivideOver(ranks, *source));
  }
  if (options.dry_run) return Status::Ok();
  RETURN_IF_ERROR(artifact::CreateDirectory(options.output_dir));
  const std::unique_ptr<Device> gpu = GpuOf(options.target);
  ASSIGN_OR_RETURN(EngineConfig written,
                   WriteRanks(sharding, options, *device, gpu.get(), progress, *source));
  RETURN_IF_ERROR(
      options.tokenizer_dir.empty()
          ? CopyModelFiles(options.checkpoint_dir, options.output_dir)
          : CopyModelFiles(options.checkpoint_dir, options.tokenizer_dir, options.output_dir));
  RETURN_IF_ERROR(WriteTuning(source->config, limits, options, gpu.get(), progress));
  written.limits = limits;
  RETURN_IF_ERROR(WriteEngineConfig(options.output_dir, written, source->further_config.get()));
  if (progress) progress(1.0, "done");
  return Status::Ok();
}

Result<std::shared_ptr<const model::Engine>> Open(const std::filesystem::path& dir, Device& device,
                                                  const OpenOptions& options,
                                                  const Progress& progress) {
  const int64_t begin_ns = Clock::System().NowNs();
  ASSIGN_OR_RETURN(const SourceKind kind, Detect(dir));
  ASSIGN_OR_RETURN(auto engine, kind == SourceKind::kEngine
                                    ? OpenEngine(dir, device, options, progress)
                                    : OpenSource(dir, device, options, progress));
  const double seconds = static_cast<double>(Clock::System().NowNs() - begin_ns) * 1e-9;
  const auto bytes = static_cast<double>(engine->weight_bytes);
  logging::Info("weights loaded", {{"path", dir.string()},
                                   {"device", device.name()},
                                   {"bytes", engine->weight_bytes},
                                   {"seconds", seconds},
                                   {"gb_per_s", bytes / seconds * 1e-9}});
  return engine;
}

Result<artifact::RankMapping> RanksOf(const std::filesystem::path& dir,
                                      const artifact::RankSizes& sizes) {
  ASSIGN_OR_RETURN(const SourceKind kind, Detect(dir));
  if (kind == SourceKind::kEngine) return EngineRanks(dir, sizes);
  return artifact::MakeMapping(sizes);
}

Result<Description> Describe(const std::filesystem::path& dir, const OpenOptions& options) {
  ASSIGN_OR_RETURN(const SourceKind kind, Detect(dir));
  if (kind == SourceKind::kEngine) return DescribeEngine(dir, options);
  ASSIGN_OR_RETURN(const auto source, OpenWhole(dir, options, options.target));
  RETURN_IF_ERROR(TakeRankOf(options, options.target, *source));
  ASSIGN_OR_RETURN(
      const model::EngineLimits limits,
      model::ResolveLimits(source->config, options.limits.value_or(model::ServedAsItIs())));
  return Description{.kind = kind,
                     .target = options.target,
                     .config = source->config,
                     .limits = limits,
                     .ranks = source->ranks,
                     .stored_quantization = source->quantization,
                     .weight_bytes = EngineBytes(source->config, options.target),
                     .layer_bytes = LayerBytes(source->config, options.target),
                     .tokenizer_dir = TokenizerDir(dir)};
}

bool HasConfigAlone(const std::filesystem::path& dir) {
  const auto kind = Detect(dir);
  return kind.ok() && *kind == SourceKind::kHuggingFace && !artifact::TensorSet::HasModel(dir);
}

Result<Description> DescribeConfig(const std::filesystem::path& dir, const OpenOptions& options) {
  ASSIGN_OR_RETURN(HfConfig hf, ReadHfConfig(dir));
  model::ModelConfig& config = hf.config;
  const DType stored = hf.dtype.value_or(DType::kF32);
  const DType computed =
      options.target == DeviceKind::kCuda && stored == DType::kF32 ? DType::kBF16 : stored;
  config.dtype = options.dtype.value_or(computed);
  config.quant_algo = options.quant_algo.value_or(config.quant_algo);
  if (HasGroups(config.quant_algo))
    config.group_size = options.group_size.value_or(model::kDefaultGroupSize);
  else if (options.group_size)
    return InvalidArgument(
        fmt::format("{}: group_size: got {}, only beside quant_algo W4A16_GPTQ and W8A16_GPTQ",
                    dir.string(), *options.group_size));
  config.fp8_kv_cache = options.fp8_kv_cache.value_or(config.fp8_kv_cache);
  model::SetHead(config, options.quantize_lm_head, model::FactsOf(options.target));
  RETURN_IF_ERROR(model::Validate(config));
  ASSIGN_OR_RETURN(const model::EngineLimits limits,
                   model::ResolveLimits(config, model::ServedAsItIs()));
  return Description{.kind = SourceKind::kHuggingFace,
                     .target = options.target,
                     .config = config,
                     .limits = limits,
                     .ranks = {},
                     .stored_quantization = {},
                     .weight_bytes = EngineBytes(config, options.target),
                     .layer_bytes = LayerBytes(config, options.target),
                     .tokenizer_dir = TokenizerDir(dir)};
}

}  // namespace inflight::builder
