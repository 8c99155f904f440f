// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/engine_loader.h"

#include <utility>

#include "base/log.h"
#include "builder/builder.h"
#include "builder/devices.h"
#include "executor/executor.h"
#include "executor/local_backend.h"

namespace inflight::serving {
namespace {

std::vector<TokenId> EndIdsWithin(const std::vector<TokenId>& ids, int vocab_size) {
  std::vector<TokenId> within;
  for (const TokenId id : ids) {
    if (id >= 0 && id < vocab_size) {
      within.push_back(id);
    } else {
      logging::Warning("end id of the model's files is outside its vocabulary",
                       {{"id", id}, {"vocab_size", vocab_size}});
    }
  }
  return within;
}

void LogShares(const std::string& owner, Device& device) {
  for (const MemoryLedger::Entry& entry : device.ledger().entries()) {
    if (!entry.name.starts_with(owner + ": ")) continue;
    logging::Info("memory taken", {{"share", entry.name}, {"bytes", entry.bytes}});
  }
  logging::Info("memory left", {{"device", device.name()}, {"bytes", device.FreeBytes()}});
}

Result<LoadedEngine> Load(const std::filesystem::path& dir, const std::string& owner,
                          ExecutorOptions options, std::optional<int> gpu,
                          builder::DeviceChoice& devices, const builder::OpenOptions& open) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, DeviceOf(devices, dir, open, gpu));
  const MemoryLedger::OwnerScope scope(device->ledger(), owner);
  ASSIGN_OR_RETURN(const auto engine, builder::Open(dir, *device, open));
  auto steps = std::make_shared<StepRecorder>();
  options.step_observer = steps.get();
  ASSIGN_OR_RETURN(auto backend, executor::CreateLocalBackend(engine, *device, options));
  ASSIGN_OR_RETURN(auto executor, executor::CreateExecutor(std::move(backend), options));
  LoadedEngine loaded;
  loaded.device = device->name();
  loaded.backend.steps = steps;
  // The executor goes before what it runs on.
  loaded.backend.executor =
      std::shared_ptr<Executor>(executor.release(), [device, steps](Executor* e) { delete e; });
  loaded.backend.end_ids = EndIdsWithin(engine->config.end_ids, engine->config.vocab_size);
  loaded.tokenizer_dir = engine->tokenizer_dir.empty() ? dir : engine->tokenizer_dir;
  LogShares(owner, *device);
  return loaded;
}

}  // namespace

Result<std::shared_ptr<Device>> DeviceOf(builder::DeviceChoice& devices,
                                         const std::filesystem::path& dir,
                                         const builder::OpenOptions& open, std::optional<int> gpu) {
  if (!gpu) return devices.For(dir, open);
  auto device = devices.ForGpu(dir, *gpu);
  if (device.ok()) return device;
  return device.status().WithPrefix("gpu_device_ids: got " + std::to_string(*gpu));
}

Result<EngineLoader> LocalEngineLoader(const ServerOptions& options,
                                       std::shared_ptr<Device> device) {
  builder::OpenOptions open = {.quant_algo = options.quant_algo,
                               .fp8_kv_cache = options.fp8_kv_cache,
                               .quantize_lm_head = options.quantize_lm_head};
  if (options.dtype && *options.dtype != "auto") {
    open.dtype = DTypeFromName(*options.dtype);
    if (!open.dtype) {
      return InvalidArgument("--dtype: got '" + *options.dtype +
                             "', must be auto, float32, bfloat16 or float16");
    }
  }
  auto devices = builder::DeviceChoice::Only(device);
  if (device == nullptr) {
    ASSIGN_OR_RETURN(devices, builder::DeviceChoice::ByName(options.device));
  }
  return EngineLoader([devices, open](const std::filesystem::path& dir, const std::string& owner,
                                      const ExecutorOptions& executor_options,
                                      std::optional<int> gpu) {
    return Load(dir, owner, executor_options, gpu, *devices, open);
  });
}

}  // namespace inflight::serving
