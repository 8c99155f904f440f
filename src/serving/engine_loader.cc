// SPDX-License-Identifier: Apache-2.0
#include "serving/engine_loader.h"

#include <utility>

#include "base/log.h"
#include "builder/builder.h"
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

void LogShares(const std::string& owner, const MemoryLedger& ledger) {
  for (const MemoryLedger::Entry& entry : ledger.entries()) {
    if (!entry.name.starts_with(owner + ": ")) continue;
    logging::Info("memory taken", {{"share", entry.name}, {"bytes", entry.bytes}});
  }
  logging::Info("memory left", {{"bytes", ledger.free_bytes()}});
}

Result<LoadedEngine> Load(const std::filesystem::path& dir, const std::string& owner,
                          ExecutorOptions options, const std::shared_ptr<Device>& device,
                          std::optional<DType> dtype) {
  const MemoryLedger::OwnerScope scope(device->ledger(), owner);
  ASSIGN_OR_RETURN(const auto engine, builder::Open(dir, *device, {.dtype = dtype, .limits = {}}));
  auto steps = std::make_shared<StepRecorder>();
  options.step_observer = steps.get();
  ASSIGN_OR_RETURN(auto backend, executor::CreateLocalBackend(engine, *device, options));
  ASSIGN_OR_RETURN(auto executor, executor::CreateExecutor(std::move(backend), options));
  LoadedEngine loaded;
  loaded.backend.steps = steps;
  // The executor goes before what it runs on.
  loaded.backend.executor =
      std::shared_ptr<Executor>(executor.release(), [device, steps](Executor* e) { delete e; });
  loaded.backend.end_ids = EndIdsWithin(engine->config.end_ids, engine->config.vocab_size);
  loaded.tokenizer_dir = engine->tokenizer_dir.empty() ? dir : engine->tokenizer_dir;
  LogShares(owner, device->ledger());
  return loaded;
}

}  // namespace

Result<EngineLoader> LocalEngineLoader(const ServerOptions& options,
                                       std::shared_ptr<Device> device) {
  if (options.device != "auto" && options.device != "cpu") {
    return Unimplemented("--device '" + options.device +
                         "' is not supported by this build (use auto or cpu)");
  }
  std::optional<DType> dtype;
  if (options.dtype && *options.dtype != "auto") {
    dtype = DTypeFromName(*options.dtype);
    if (!dtype) {
      return InvalidArgument("--dtype: got '" + *options.dtype +
                             "', must be auto, float32, bfloat16 or float16");
    }
  }
  if (device == nullptr) device = Device::Cpu();
  return EngineLoader([device, dtype](const std::filesystem::path& dir, const std::string& owner,
                                      const ExecutorOptions& executor_options) {
    return Load(dir, owner, executor_options, device, dtype);
  });
}

Result<std::unique_ptr<Server>> CreateServer(const ServerOptions& options) {
  ASSIGN_OR_RETURN(EngineLoader load, LocalEngineLoader(options));
  return CreateServerWith(options, std::move(load));
}

}  // namespace inflight::serving
