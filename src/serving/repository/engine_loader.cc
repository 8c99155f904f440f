// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/engine_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "loader/loader.h"

namespace inflight::serving {
namespace {

constexpr char kGpuKey[] = "gpu_device_ids";

Result<std::shared_ptr<receipts::Issuer>> MakeIssuer(const loader::Loaded& model,
                                                     const OpenOptions& options,
                                                     const receipts::IssueOptions& issuing) {
  const int64_t began_ns = Clock::System().NowNs();
  ASSIGN_OR_RETURN(
      receipts::EngineRecord engine,
      receipts::RecordEngine(model.info, options, model.kernels.table, model.kernels.device));
  logging::Info("answers carry receipts",
                {{"model", options.owner},
                 {"weights", engine.weights},
                 {"kernels", engine.kernels.ToString()},
                 {"hashed_ms", (Clock::System().NowNs() - began_ns) / 1'000'000}});
  return std::make_shared<receipts::Issuer>(std::move(engine), issuing);
}

Result<LoadedEngine> LoadEngine(const std::filesystem::path& dir, OpenOptions options,
                                const loader::Recording& recording,
                                const receipts::IssueOptions& issuing) {
  if (issuing.issues && options.executor.enable_sleep)
    return Unimplemented("enable_sleep_mode",
                         "not beside --receipts, which vouch for the weights of the start; leave "
                         "one of both out");
  auto steps = std::make_shared<StepRecorder>();
  options.executor.step_observer = steps.get();
  ASSIGN_OR_RETURN(loader::Loaded model, loader::Load(dir, options, recording));
  LoadedEngine loaded;
  if (issuing.issues) {
    ASSIGN_OR_RETURN(loaded.backend.issuer, MakeIssuer(model, options, issuing));
  }
  loaded.device = std::move(model.info.device);
  loaded.backend.steps = steps;
  // The executor goes before who observes it.
  Executor* const executor = model.executor.get();
  loaded.backend.executor = std::shared_ptr<Executor>(
      executor, [held = std::move(model.executor), steps](Executor*) mutable { held.reset(); });
  loaded.has_medusa = model.info.drafts == DraftSource::kMedusa;
  loaded.backend.end_ids = std::move(model.info.end_ids);
  loaded.tokenizer_dir = model.info.tokenizer_dir.empty() ? dir : model.info.tokenizer_dir;
  return loaded;
}

}  // namespace

Result<OpenOptions> OptionsFor(OpenOptions options, const std::filesystem::path& dir,
                               const std::string& owner, const ExecutorOptions& executor,
                               const AskedPlace& place) {
  options.owner = owner;
  options.executor = executor;
  if (place.gpus.empty()) return options;
  options.gpus = place.gpus;
  ASSIGN_OR_RETURN(const builder::OpenOptions open, loader::BuilderOptions(dir, options));
  const int num_ranks = open.ranks.num_ranks();
  if (num_ranks == 1 && place.gpus.size() > 1)
    return Unimplemented(kGpuKey, fmt::format("got {}, and a model of one rank runs on one GPU: "
                                              "name that one",
                                              fmt::join(place.gpus, ",")));
  const auto devices = loader::DevicesFor(dir, options, num_ranks);
  if (!devices.ok())
    return devices.status()
        .WithPrefix(fmt::format("{}: got {}", kGpuKey, fmt::join(place.gpus, ",")))
        .WithField(kGpuKey);
  return options;
}

Result<EngineLoader> LocalEngineLoader(OpenOptions options,
                                       std::shared_ptr<Orchestrator> orchestrator,
                                       loader::Recording recording,
                                       receipts::IssueOptions issuing) {
  if (options.devices == nullptr) {
    ASSIGN_OR_RETURN(options.devices, FindDevices(options.device, options.num_threads));
  }
  return EngineLoader([options, orchestrator, recording = std::move(recording), issuing](
                          const std::filesystem::path& dir, const std::string& owner,
                          const ExecutorOptions& executor,
                          const AskedPlace& place) -> Result<LoadedEngine> {
    ASSIGN_OR_RETURN(OpenOptions open, OptionsFor(options, dir, owner, executor, place));
    if (!place.participants.empty() && (orchestrator == nullptr || orchestrator->starts()))
      return InvalidArgument("participant_ids",
                             fmt::format("got {}, and no processes of a launcher are given out: "
                                         "leave it out, or start the server with "
                                         "TRTLLM_ORCHESTRATOR=1 and "
                                         "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0",
                                         fmt::join(place.participants, ",")));
    bool has_processes = false;
    if (orchestrator != nullptr) {
      open.rank_processes = [&](int num_ranks) {
        has_processes = true;
        return orchestrator->StartRanks({.model = owner,
                                         .num_ranks = num_ranks,
                                         .participants = place.participants,
                                         .program = place.worker_program});
      };
    }
    ASSIGN_OR_RETURN(LoadedEngine loaded, LoadEngine(dir, std::move(open), recording, issuing));
    loaded.backend.has_processes = has_processes;
    return loaded;
  });
}

}  // namespace inflight::serving
