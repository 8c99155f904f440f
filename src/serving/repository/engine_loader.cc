// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/engine_loader.h"

#include <utility>

#include "base/status_macros.h"
#include "loader/loader.h"

namespace inflight::serving {
namespace {

Result<LoadedEngine> Load(const std::filesystem::path& dir, OpenOptions options) {
  auto steps = std::make_shared<StepRecorder>();
  options.executor.step_observer = steps.get();
  ASSIGN_OR_RETURN(loader::Loaded model, loader::Load(dir, options));
  LoadedEngine loaded;
  loaded.device = std::move(model.info.device);
  loaded.backend.steps = steps;
  // The executor goes before who observes it.
  Executor* const executor = model.executor.get();
  loaded.backend.executor = std::shared_ptr<Executor>(
      executor, [held = std::move(model.executor), steps](Executor*) mutable { held.reset(); });
  loaded.backend.end_ids = std::move(model.info.end_ids);
  loaded.tokenizer_dir = model.info.tokenizer_dir.empty() ? dir : model.info.tokenizer_dir;
  return loaded;
}

}  // namespace

Result<OpenOptions> OptionsFor(OpenOptions options, const std::filesystem::path& dir,
                               const std::string& owner, const ExecutorOptions& executor,
                               std::optional<int> gpu) {
  options.owner = owner;
  options.executor = executor;
  options.gpu = gpu;
  if (gpu) {
    const Status found = loader::DeviceFor(dir, options).status();
    if (!found.ok()) {
      return found.WithPrefix("gpu_device_ids: got " + std::to_string(*gpu))
          .WithField("gpu_device_ids");
    }
  }
  return options;
}

Result<EngineLoader> LocalEngineLoader(OpenOptions options) {
  if (options.devices == nullptr) {
    ASSIGN_OR_RETURN(options.devices, FindDevices(options.device, options.num_threads));
  }
  return EngineLoader([options](const std::filesystem::path& dir, const std::string& owner,
                                const ExecutorOptions& executor,
                                std::optional<int> gpu) -> Result<LoadedEngine> {
    ASSIGN_OR_RETURN(OpenOptions open, OptionsFor(options, dir, owner, executor, gpu));
    return Load(dir, std::move(open));
  });
}

}  // namespace inflight::serving
