// SPDX-License-Identifier: Apache-2.0
#include "orchestration.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "environment.h"
#include "inflight/version.h"

namespace inflight::tool {
namespace {

constexpr char kMode[] = "TRTLLM_ORCHESTRATOR";
constexpr char kStarting[] = "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES";

Result<bool> SwitchOf(const char* variable, bool otherwise) {
  const std::string value = Environment(variable);
  if (value.empty()) return otherwise;
  if (value == "0" || value == "1") return value == "1";
  return InvalidArgument(variable, "got '" + value + "', must be 0 or 1");
}

// Who has not this is no process of such a launch.
constexpr uint64_t kLaunchedHash = 0x6f726368;

}  // namespace

Result<Orchestration> OrchestrationOf(const launch::World& world) {
  ASSIGN_OR_RETURN(const bool is_on, SwitchOf(kMode, false));
  if (!is_on) return Orchestration::kNone;
  ASSIGN_OR_RETURN(const bool starts, SwitchOf(kStarting, true));
  if (!starts) return Orchestration::kGivesOut;
  if (world.size == 1) return Orchestration::kStarts;
  return FailedPrecondition(fmt::format(
      "{}: got 1, so that one server starts the ranks of its models, and {} started {} processes: "
      "start one, or say {}=0 and name those of each model by participant_ids",
      kMode, world.launcher, world.size, kStarting));
}

Result<std::shared_ptr<comm::Group>> JoinLaunched(const launch::World& world) {
  constexpr std::chrono::minutes kPatience{5};
  logging::Info(fmt::format("Process {} of {} meets the others", world.rank, world.size),
                {{"by", world.launcher},
                 {"leader", fmt::format("{}:{}", world.leader_address, world.leader_port)}});
  ASSIGN_OR_RETURN(auto group,
                   comm::Group::Join(world, {.version = kVersion, .hash = kLaunchedHash},
                                     std::chrono::steady_clock::now() + kPatience));
  return std::shared_ptr<comm::Group>(std::move(group));
}

std::shared_ptr<Orchestrator> MakeOrchestrator(Orchestration orchestration,
                                               const ServeOptions& options,
                                               std::shared_ptr<comm::Group> launched,
                                               const launch::World& world) {
  if (orchestration == Orchestration::kNone) return nullptr;
  if (orchestration == Orchestration::kGivesOut)
    return Orchestrator::ThatGivesOut(std::move(launched), world);
  const OpenOptions& open = options.server.open;
  std::string cannot_start;
  if (options.sandbox != SandboxMode::kOff)
    cannot_start = fmt::format(
        "--sandbox: no process is started in it, and ranks of a model are processes: start the "
        "server without, or have a launcher start them, with {}=0 and participant_ids",
        kStarting);
  return Orchestrator::ThatStarts(open.device, open.num_threads, std::move(cannot_start));
}

}  // namespace inflight::tool
