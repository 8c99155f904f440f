// SPDX-License-Identifier: Apache-2.0
// Reading engine directories.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "artifact/checkpoint.h"
#include "artifact/engine_load.h"
#include "artifact/json_file.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "builder/engine_memory.h"
#include "builder/model_files.h"
#include "builder/tensorrt_engine.h"
#include "model/config_json.h"
#include "model/limits.h"
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

constexpr char kRebuild[] =
    "rebuild it with `inflight build --checkpoint-dir CHECKPOINT --output-dir ENGINE`";

struct EngineConfig {
  model::ModelConfig model;
  model::EngineLimits limits;
};

Result<EngineConfig> ReadConfig(const std::filesystem::path& dir) {
  RETURN_IF_ERROR(RefuseTensorRtEngine(dir));
  const std::filesystem::path path = dir / artifact::kConfigFile;
  ASSIGN_OR_RETURN(const nlohmann::json json, artifact::ReadJsonFile(path));
  artifact::JsonFields fields(path.string(), json);
  for (const char* name : {"version", "pretrained_config", "build_config"})
    if (!fields.Has(name)) fields.Fail(name, fmt::format("is missing; {}", kRebuild));
  RETURN_IF_ERROR(fields.status());
  EngineConfig config;
  ASSIGN_OR_RETURN(config.model,
                   model::ConfigFromCheckpoint(*fields.Find("pretrained_config"),
                                               path.string() + ": pretrained_config"));
  ASSIGN_OR_RETURN(config.limits, model::LimitsFromJson(*fields.Find("build_config"),
                                                        path.string() + ": build_config"));
  // What can be asked of an engine is what was built; a hand-edited limit meets the same bounds.
  Result<model::EngineLimits> limits = model::ResolveLimits(config.model, config.limits);
  if (!limits.ok()) return limits.status().WithPrefix(path.string());
  config.limits = *limits;
  return config;
}

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
  if (options.quant_algo && *options.quant_algo != config.quant_algo)
    return FailedPrecondition(fmt::format("{}: the engine's quantisation is {}, not {}; {}",
                                          dir.string(), NameOf(config.quant_algo),
                                          NameOf(*options.quant_algo), kRebuild));
  if (options.quantize_lm_head && *options.quantize_lm_head != config.quantize_lm_head)
    return FailedPrecondition(
        fmt::format("{}: the engine's lm_head is {}, not {}; {}", dir.string(),
                    DTypeName(config.quantize_lm_head ? LinearDType(config) : config.dtype),
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

// Compares each slot with its tensor and binds them. `data` is where the file's first tensor lies;
// null compares only.
Status BindAll(const EngineTable& table, DeviceKind device, const std::byte* data,
               model::Engine& engine) {
  std::map<std::string_view, const EngineTensor*> by_name;
  for (const EngineTensor& tensor : table.tensors) by_name.emplace(tensor.name, &tensor);
  std::set<std::string> missing;
  for (const WeightSlot& slot : model::WeightSlots(engine.config, engine.weights)) {
    const auto found = by_name.find(slot.name);
    if (found == by_name.end()) {
      missing.insert(slot.name);
      continue;
    }
    RETURN_IF_ERROR(CheckTensor(*found->second, engine.config, slot, device));
    if (data != nullptr)
      model::Bind(engine.config, slot, device,
                  data + (found->second->offset_bytes - table.data_offset));
  }
  if (!missing.empty())
    return InvalidArgument(fmt::format("Required but not provided tensors:{}", missing));
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

Result<EngineTable> ReadTable(const std::filesystem::path& path, DeviceKind device) {
  ASSIGN_OR_RETURN(EngineTable table, artifact::ReadEngineTable(path));
  RETURN_IF_ERROR(CheckTarget(path, table.target, device));
  return table;
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

Result<const std::byte*> ReadData(const std::filesystem::path& path, const EngineTable& table,
                                  Device& device, const Progress& progress, model::Engine& engine) {
  ASSIGN_OR_RETURN(Buffer buffer, AllocateWeights(device, table.file_bytes - table.data_offset));
  const auto report = [&](double fraction) {
    if (progress) progress(fraction, "loading weights");
  };
  RETURN_IF_ERROR(artifact::LoadEngineData(path, table, buffer.data(), device, report));
  const std::byte* data = buffer.data();
  engine.buffers.push_back(std::move(buffer));
  return data;
}

}  // namespace

std::string_view TargetName(DeviceKind device) {
  return device == DeviceKind::kCpu ? "cpu" : "cuda";
}

Result<std::shared_ptr<const model::Engine>> OpenEngine(const std::filesystem::path& dir,
                                                        Device& device, const OpenOptions& options,
                                                        const Progress& progress) {
  ASSIGN_OR_RETURN(EngineConfig config, ReadConfig(dir));
  RETURN_IF_ERROR(CheckOptions(dir, config.model, options));
  config.model.fp8_kv_cache = options.fp8_kv_cache.value_or(config.model.fp8_kv_cache);
  const std::filesystem::path path = dir / artifact::kEngineFile;
  ASSIGN_OR_RETURN(const EngineTable table, ReadTable(path, device.kind()));
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
  if (const Status bound = BindAll(table, device.kind(), nullptr, *engine); !bound.ok())
    return bound.WithPrefix(path.string());
  const bool is_mapped =
      device.kind() == DeviceKind::kCpu && engine->weight_bytes <= kMaxMappedBytes;
  ASSIGN_OR_RETURN(const std::byte* data, is_mapped
                                              ? MapData(path, table, device, *engine)
                                              : ReadData(path, table, device, progress, *engine));
  RETURN_IF_ERROR(BindAll(table, device.kind(), data, *engine));
  if (progress) progress(1.0, "ready");
  return std::shared_ptr<const model::Engine>(std::move(engine));
}

Status CheckOpensOn(DeviceKind device, const std::filesystem::path& dir,
                    const Description& description) {
  if (description.kind != SourceKind::kEngine) return Status::Ok();
  return CheckTarget(dir / artifact::kEngineFile, TargetName(description.target), device);
}

Result<DeviceKind> EngineTarget(const std::filesystem::path& dir) {
  RETURN_IF_ERROR(RefuseTensorRtEngine(dir));
  const std::filesystem::path path = dir / artifact::kEngineFile;
  ASSIGN_OR_RETURN(const EngineTable table, artifact::ReadEngineTable(path));
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
    if (table.target == TargetName(device)) return device;
  return FailedPrecondition(
      fmt::format("{}: built for target '{}', this program runs cpu and cuda; {}", path.string(),
                  table.target, kRebuild));
}

Result<Description> DescribeEngine(const std::filesystem::path& dir, const OpenOptions& options) {
  ASSIGN_OR_RETURN(EngineConfig config, ReadConfig(dir));
  RETURN_IF_ERROR(CheckOptions(dir, config.model, options));
  config.model.fp8_kv_cache = options.fp8_kv_cache.value_or(config.model.fp8_kv_cache);
  ASSIGN_OR_RETURN(const DeviceKind target, EngineTarget(dir));
  ASSIGN_OR_RETURN(const EngineTable table, artifact::ReadEngineTable(dir / artifact::kEngineFile));
  return Description{.kind = SourceKind::kEngine,
                     .target = target,
                     .config = std::move(config.model),
                     .limits = config.limits,
                     .weight_bytes = table.file_bytes - table.data_offset,
                     .tokenizer_dir = TokenizerDir(dir)};
}

}  // namespace inflight::builder
