// SPDX-License-Identifier: Apache-2.0
// Reading engine directories.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "artifact/checkpoint.h"
#include "artifact/engine_load.h"
#include "artifact/fingerprint.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "builder/engine_config.h"
#include "builder/engine_memory.h"
#include "builder/model_files.h"
#include "builder/rank_source.h"
#include "builder/weight_memory.h"
#include "model/supported.h"

namespace inflight::builder {
namespace {

using artifact::EngineTable;
using artifact::EngineTensor;
using model::WeightSlot;

// Up to here a mapping is ready sooner and shared between processes; beyond, 2 MiB pages make every
// step faster (docs/reference/kernels.md) and only anonymous memory has them.
constexpr uint64_t kMaxMappedBytes = uint64_t{64} << 20;

constexpr uint64_t kMaxTuningBytes = uint64_t{16} << 20;  // some 30 KB in practice

std::string_view NameOf(model::QuantAlgo algo) {
  return algo == model::QuantAlgo::kNone ? "none" : model::QuantAlgoName(algo);
}

// Limits, dtype and quantisation are decided when an engine is built.
Status CheckOptions(const std::filesystem::path& dir, const model::ModelConfig& config,
                    const OpenOptions& options) {
  if (options.dtype && *options.dtype != config.dtype)
    return FailedPrecondition(fmt::format("{}: the engine's dtype is {}, not {}; {}", dir.string(),
                                          DTypeName(config.dtype), DTypeName(*options.dtype),
                                          kRebuild));
  const bool wants_head = options.quantize_lm_head.value_or(false);
  if (!Grants(config, {options.quant_algo, options.group_size, wants_head})) {
    if (options.quant_algo && *options.quant_algo != config.quant_algo)
      return FailedPrecondition(fmt::format("{}: the engine's quantisation is {}, not {}; {}",
                                            dir.string(), NameOf(config.quant_algo),
                                            NameOf(*options.quant_algo), kRebuild));
    return FailedPrecondition(fmt::format("{}: the engine's group_size is {}, not {}; {}",
                                          dir.string(), config.group_size,
                                          options.group_size.value_or(0), kRebuild));
  }
  if (options.quantize_lm_head && *options.quantize_lm_head != HasQuantizedHead(config))
    return FailedPrecondition(
        fmt::format("{}: the engine's lm_head is {}, not {}; {}", dir.string(),
                    DTypeName(FormOfTable(config, StemOfHead(config)).dtype),
                    *options.quantize_lm_head ? "quantised" : "of the model's dtype", kRebuild));
  if (options.limits)
    return FailedPrecondition(fmt::format("{}: an engine's limits are fixed when it is built; {}",
                                          dir.string(), kRebuild));
  return Status::Ok();
}

Status CheckTensor(const EngineTensor& tensor, const model::ModelConfig& config,
                   const WeightSlot& slot, DeviceKind device) {
  const auto describe = [](DType dtype, const Shape& shape, std::string_view layout,
                           uint64_t bytes) {
    return fmt::format("{} {} {} of {} bytes", DTypeName(dtype), shape.ToString(), layout, bytes);
  };
  const std::string expected = describe(StoredDType(config, slot), slot.shape,
                                        ops::WeightLayoutName(StoredLayout(config, slot, device)),
                                        StoredBytes(config, slot, device));
  const std::string found = describe(tensor.dtype, tensor.shape, tensor.layout, tensor.num_bytes);
  if (found == expected) return Status::Ok();
  return InvalidArgument(
      fmt::format("{}: expected {}, found {}; {}", slot.name, expected, found, kRebuild));
}

// Where the byte of that offset from the file's first tensor lies.
using PlaceOf = std::function<const std::byte*(uint64_t offset_bytes)>;

// Compares each slot with its tensor and binds them; without `place` it compares only.
Status BindAll(const EngineTable& table, DeviceKind device, const PlaceOf& place,
               model::Engine& engine) {
  std::map<std::string_view, const EngineTensor*> by_name;
  for (const EngineTensor& tensor : table.tensors) by_name.emplace(tensor.name, &tensor);
  std::set<std::string> missing;
  const std::vector<WeightSlot> slots = model::WeightSlots(engine.config, engine.weights);
  for (const WeightSlot& slot : slots) {
    const auto found = by_name.find(slot.name);
    if (found == by_name.end()) {
      missing.insert(slot.name);
      continue;
    }
    RETURN_IF_ERROR(CheckTensor(*found->second, engine.config, slot, device));
    if (place)
      model::Bind(engine.config, slot, device,
                  place(found->second->offset_bytes - table.data_offset));
  }
  if (!missing.empty())
    return InvalidArgument(fmt::format("Required but not provided tensors:{}", missing));
  if (place && device == DeviceKind::kCpu) RETURN_IF_ERROR(model::CheckOrders(slots));
  if (engine.config.tied_embeddings) engine.weights.lm_head = engine.weights.vocab_embedding;
  return Status::Ok();
}

Status CheckTarget(const std::filesystem::path& path, std::string_view target, DeviceKind device) {
  if (target == TargetName(device)) return Status::Ok();
  return FailedPrecondition(fmt::format(
      "{}: built for target '{}', the device is '{}'; open it there, or rebuild it with "
      "`inflight build --target {} --checkpoint-dir CHECKPOINT --output-dir ENGINE`",
      path.string(), target, TargetName(device), TargetName(device)));
}

// A rank's file is the one that config.json was written with: neither of an earlier build nor of
// another rank, which may have the same shapes.
Result<EngineTable> ReadTable(const std::filesystem::path& dir, const EngineConfig& config,
                              int rank) {
  const std::filesystem::path path = dir / artifact::EngineFileName(rank);
  const bool is_one_of_several = !config.rank_checksums.empty();
  if (is_one_of_several && !FileExists(path))
    return NotFound(fmt::format(
        "{}: {} is missing, config.json's mapping has {}; copy the engine again, or {}",
        dir.string(), path.filename().string(), config.sharding.ranks.ToString(), kRebuild));
  ASSIGN_OR_RETURN(EngineTable table, artifact::ReadEngineTable(path));
  if (!is_one_of_several) return table;
  const uint64_t expected = config.rank_checksums[static_cast<size_t>(rank)];
  if (table.checksum != expected)
    return Status(
        StatusCode::kDataLoss,
        fmt::format("{}: is not the file that config.json was written with (its table's checksum "
                    "is {:016x}, rank_checksums has {:016x}): it is of another build, or of "
                    "another rank; copy the engine again, or {}",
                    path.string(), table.checksum, expected, kRebuild));
  return table;
}

Status CheckRankSize(const char* name, std::optional<int> asked, int own, const char* flag,
                     const std::filesystem::path& dir) {
  if (asked.value_or(own) == own) return Status::Ok();
  return FailedPrecondition(fmt::format(
      "{}: got {}, {} is an engine for {}; leave it out, or build the engine of a checkpoint that "
      "was converted with {} {}",
      name, *asked, dir.string(), own, flag, *asked));
}

Result<artifact::RankMapping> CheckRanks(const std::filesystem::path& dir,
                                         const artifact::RankMapping& own,
                                         const artifact::RankSizes& sizes) {
  RETURN_IF_ERROR(
      CheckRankSize("tensor_parallel_size", sizes.tp_size, own.tp_size, "--tp-size", dir));
  RETURN_IF_ERROR(
      CheckRankSize("pipeline_parallel_size", sizes.pp_size, own.pp_size, "--pp-size", dir));
  if (!sizes.says_experts()) return own;
  ASSIGN_OR_RETURN(const artifact::RankMapping asked,
                   artifact::MakeMapping({.tp_size = own.tp_size,
                                          .moe_tp_size = sizes.moe_tp_size,
                                          .moe_ep_size = sizes.moe_ep_size}));
  RETURN_IF_ERROR(
      CheckRankSize("moe_ep_size", asked.moe_ep_size, own.moe_ep_size, "--moe-ep-size", dir));
  return own;
}

// Of ranks that an engine is opened on.
Status CheckAreRanks(const std::filesystem::path& dir, const artifact::RankMapping& own,
                     const artifact::RankMapping& ranks) {
  return CheckRanks(dir, own,
                    {.tp_size = ranks.tp_size,
                     .pp_size = ranks.pp_size,
                     .moe_ep_size = ranks.tp_size == own.tp_size ? ranks.moe_ep_size : -1})
      .status();
}

// The bytes of each of `layers` in the file, whose tensors have to lie side by side.
Result<std::vector<LayerRange>> RangesInFile(const std::filesystem::path& path,
                                             const EngineTable& table,
                                             const model::ModelConfig& config,
                                             std::span<const int> layers) {
  std::map<std::string, int> layer_of;  // those of `layers`, by the tensor's name
  model::DecoderWeights unused;
  for (const WeightSlot& slot : model::WeightSlots(config, unused))
    if (std::ranges::binary_search(layers, slot.layer)) layer_of.emplace(slot.name, slot.layer);
  std::vector<const EngineTensor*> tensors;
  for (const EngineTensor& tensor : table.tensors) tensors.push_back(&tensor);
  std::ranges::sort(tensors, {}, &EngineTensor::offset_bytes);
  std::vector<LayerRange> ranges;
  int layer_before = -1;  // that the tensor before is of
  for (const EngineTensor* tensor : tensors) {
    const auto found = layer_of.find(tensor->name);
    const uint64_t offset = tensor->offset_bytes - table.data_offset;
    const int layer = found == layer_of.end() ? -1 : found->second;
    const bool begins = layer != layer_before;
    layer_before = layer;
    if (layer < 0) continue;
    if (begins) ranges.push_back({.layer = layer, .offset_bytes = offset});
    ranges.back().num_bytes = std::min(artifact::EngineAlignUp(offset + tensor->num_bytes),
                                       table.file_bytes - table.data_offset) -
                              ranges.back().offset_bytes;
  }
  if (ranges.size() != layers.size() || !std::ranges::is_sorted(ranges, {}, &LayerRange::layer))
    return FailedPrecondition(
        fmt::format("{}: gpu_weights_percent needs the tensors of each layer side by side, and the "
                    "layers in their order; {}",
                    path.string(), kRebuild));
  return ranges;
}

Result<DeviceKind> TargetOf(const std::filesystem::path& path, const EngineTable& table) {
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
    if (table.target == TargetName(device)) return device;
  return FailedPrecondition(
      fmt::format("{}: built for target '{}', this program runs cpu and cuda; {}", path.string(),
                  table.target, kRebuild));
}

Result<const std::byte*> MapData(const std::filesystem::path& path, const EngineTable& table,
                                 Device& device, model::Engine& engine) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() != table.file_bytes)
    return Unavailable(path.string() + ": changed while it was opened; try again");
  RETURN_IF_ERROR(
      artifact::VerifyEngineData(file.bytes(), table, path.string(), device.cpu_pool()));
  ASSIGN_OR_RETURN(MemoryShare share,
                   device.ledger().Take("weights", table.file_bytes - table.data_offset));
  const std::byte* data = file.bytes().data() + table.data_offset;
  engine.mapping_shares.push_back(std::move(share));
  engine.mappings.push_back(std::move(file));
  return data;
}

Result<WeightMemory> ReadData(const std::filesystem::path& path, const EngineTable& table,
                              Device& device, std::span<const LayerRange> host,
                              const WeightPlace& place, const Progress& progress) {
  ASSIGN_OR_RETURN(
      WeightMemory memory,
      WeightMemory::Allocate(device, table.file_bytes - table.data_offset, host, place));
  const auto report = [&](double fraction) {
    if (progress) progress(fraction, "loading weights");
  };
  RETURN_IF_ERROR(artifact::LoadEngineData(path, table, memory.parts(), device, report));
  return memory;
}

}  // namespace

std::string_view TargetName(DeviceKind device) {
  return device == DeviceKind::kCpu ? "cpu" : "cuda";
}

Result<std::shared_ptr<const model::Engine>> OpenEngine(const std::filesystem::path& dir,
                                                        Device& device, const OpenOptions& options,
                                                        const Progress& progress) {
  ASSIGN_OR_RETURN(EngineConfig config, ReadEngineConfig(dir));
  RETURN_IF_ERROR(CheckOptions(dir, config.model, options));
  const artifact::RankMapping& ranks = config.sharding.ranks;
  RETURN_IF_ERROR(CheckAreRanks(dir, ranks, options.ranks));
  config.model.fp8_kv_cache = options.fp8_kv_cache.value_or(config.model.fp8_kv_cache);
  const std::filesystem::path path = dir / artifact::EngineFileName(options.rank);
  ASSIGN_OR_RETURN(const EngineTable table, ReadTable(dir, config, options.rank));
  RETURN_IF_ERROR(CheckTarget(path, table.target, device.kind()));
  if (ranks.num_ranks() > 1)
    config.model =
        ConfigOfRank(std::move(config.model), config.sharding, options.rank, device.kind());
  RETURN_IF_ERROR(model::CheckRuns(config.model, device));

  auto engine = std::make_shared<model::Engine>();
  engine->config = config.model;
  engine->limits = config.limits;
  engine->weight_bytes = table.file_bytes - table.data_offset;
  engine->tokenizer_dir = TokenizerDir(dir);
  if (device.kind() == DeviceKind::kCuda && FileExists(dir / artifact::kTuningFile)) {
    ASSIGN_OR_RETURN(engine->kernel_tuning, ReadFile(dir / artifact::kTuningFile, kMaxTuningBytes));
  }
  // The table is compared with the configuration before any data is read.
  if (const Status bound = BindAll(table, device.kind(), {}, *engine); !bound.ok())
    return bound.WithPrefix(path.string());
  if (device.kind() == DeviceKind::kCpu && engine->weight_bytes <= kMaxMappedBytes &&
      !options.can_release) {
    ASSIGN_OR_RETURN(const std::byte* const data, MapData(path, table, device, *engine));
    RETURN_IF_ERROR(BindAll(
        table, device.kind(), [data](uint64_t offset) { return data + offset; }, *engine));
  } else {
    ASSIGN_OR_RETURN(const std::vector<LayerRange> host,
                     RangesInFile(path, table, config.model, options.streamed_layers));
    ASSIGN_OR_RETURN(WeightMemory memory,
                     ReadData(path, table, device, host, WeightPlaceOf(options), progress));
    RETURN_IF_ERROR(BindAll(
        table, device.kind(), [&memory](uint64_t offset) { return memory.At(offset); }, *engine));
    memory.GiveTo(engine.get());
    RETURN_IF_ERROR(OrderForTensorCores(device, engine.get()));
  }
  if (progress) progress(1.0, "ready");
  return std::shared_ptr<const model::Engine>(std::move(engine));
}

Status CheckOpensOn(DeviceKind device, const std::filesystem::path& dir,
                    const Description& description) {
  if (description.kind != SourceKind::kEngine) return Status::Ok();
  return CheckTarget(dir / artifact::EngineFileName(0), TargetName(description.target), device);
}

Result<artifact::RankMapping> EngineRanks(const std::filesystem::path& dir,
                                          const artifact::RankSizes& sizes) {
  ASSIGN_OR_RETURN(const EngineConfig config, ReadEngineConfig(dir));
  return CheckRanks(dir, config.sharding.ranks, sizes);
}

Result<DeviceKind> EngineTarget(const std::filesystem::path& dir, int rank) {
  ASSIGN_OR_RETURN(const EngineConfig config, ReadEngineConfig(dir));
  ASSIGN_OR_RETURN(const EngineTable table, ReadTable(dir, config, rank));
  return TargetOf(dir / artifact::EngineFileName(rank), table);
}

Result<uint64_t> RanksFingerprint(const std::filesystem::path& dir) {
  ASSIGN_OR_RETURN(const SourceKind kind, Detect(dir));
  if (kind == SourceKind::kGguf) return artifact::FileFingerprint(dir);
  if (kind != SourceKind::kEngine) return artifact::Fingerprint(dir);
  return artifact::FileFingerprint(dir / artifact::kConfigFile);
}

Result<Description> DescribeEngine(const std::filesystem::path& dir, const OpenOptions& options) {
  ASSIGN_OR_RETURN(EngineConfig config, ReadEngineConfig(dir));
  RETURN_IF_ERROR(CheckOptions(dir, config.model, options));
  config.model.fp8_kv_cache = options.fp8_kv_cache.value_or(config.model.fp8_kv_cache);
  const artifact::RankMapping& ranks = config.sharding.ranks;
  const bool is_whole = options.ranks.num_ranks() == 1;
  Description description{.kind = SourceKind::kEngine,
                          .target = DeviceKind::kCpu,
                          .config = config.model,
                          .limits = config.limits,
                          .ranks = ranks,
                          .tokenizer_dir = TokenizerDir(dir)};
  if (!is_whole) RETURN_IF_ERROR(CheckAreRanks(dir, ranks, options.ranks));
  const int first = is_whole ? 0 : options.rank;
  const int end = is_whole ? ranks.num_ranks() : options.rank + 1;
  for (int rank = first; rank < end; ++rank) {
    ASSIGN_OR_RETURN(const EngineTable table, ReadTable(dir, config, rank));
    ASSIGN_OR_RETURN(description.target, TargetOf(dir / artifact::EngineFileName(rank), table));
    description.weight_bytes += table.file_bytes - table.data_offset;
  }
  if (!is_whole)
    description.config =
        ConfigOfRank(std::move(config.model), config.sharding, options.rank, description.target);
  description.layer_bytes = LayerBytes(description.config, description.target);
  return description;
}

}  // namespace inflight::builder
