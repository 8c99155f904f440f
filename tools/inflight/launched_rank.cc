// SPDX-License-Identifier: Apache-2.0
#include "launched_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <system_error>

#include "base/log.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "inflight/version.h"
#include "loader/loader.h"
#include "object_store/address.h"

namespace inflight::tool {

Result<launch::World> WorldOfThisProcess() {
  auto world = launch::FindWorld([](const char* name) { return std::getenv(name); });
  if (world.ok()) return world;
  return world.status().WithMessage(world.status().message() +
                                    "; --ranks=serve serves whatever the launcher says");
}

sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

std::function<bool()> AskedToStop(const sigset_t& signals) {
  return [signals, is_asked = false]() mutable {
    constexpr timespec kNow = {};
    const int signal = is_asked ? 0 : sigtimedwait(&signals, nullptr, &kNow);
    if (signal > 0) {
      logging::Info(fmt::format("Signal ({}) received; rank 0 says when to stop.", signal));
      is_asked = true;
    }
    return is_asked;
  };
}

Status CheckPlacesOfRank(const launch::World& world, const std::vector<std::string>& places) {
  for (const std::string& place : places) {
    std::error_code error;
    if (world.rank == 0 || object_store::IsAddress(place) || std::filesystem::exists(place, error))
      continue;
    return NotFound(
        fmt::format("{} is not there for rank {}: copy the model to its host", place, world.rank));
  }
  return Status::Ok();
}

Result<artifact::RankMapping> RanksAtStart(const launch::World& world,
                                           const std::vector<std::filesystem::path>& engines,
                                           const OpenOptions& options) {
  const artifact::RankMapping asked = {.tp_size = options.tensor_parallel_size.value_or(1),
                                       .pp_size = options.pipeline_parallel_size.value_or(1)};
  Status other;  // of an engine that another number of processes computes
  for (const std::filesystem::path& dir : engines) {
    const auto kind = builder::Detect(dir);
    if (!kind.ok() || *kind != builder::SourceKind::kEngine) continue;
    // What is wrong with an engine, or with the sizes for it, is said by whoever loads it.
    const auto ranks = builder::RanksOf(dir, loader::RankSizesOf(options));
    if (!ranks.ok() || ranks->num_ranks() == 1) continue;
    if (ranks->num_ranks() == world.size) return *ranks;
    other = FailedPrecondition(fmt::format(
        "{}: is an engine for {} ranks (tensor parallel {}, pipeline parallel {}), {} started {} "
        "processes: start as many; or one alone, or --ranks=serve, where threads are the ranks",
        dir.string(), ranks->num_ranks(), ranks->tp_size, ranks->pp_size, world.launcher,
        world.size));
  }
  if (!other.ok()) return other;
  if (asked.num_ranks() == 1 || asked.num_ranks() == world.size) return asked;
  return FailedPrecondition(fmt::format(
      "--tensor-parallel-size {} and --pipeline-parallel-size {} are {} ranks, {} started {} "
      "processes: start as many, or --ranks=serve, so that each is a server of its own",
      asked.tp_size, asked.pp_size, asked.num_ranks(), world.launcher, world.size));
}

Result<std::shared_ptr<RankProcesses>> JoinRanks(const launch::World& world,
                                                 const artifact::RankMapping& ranks) {
  constexpr std::chrono::minutes kPatience{5};
  logging::Info(fmt::format("Rank {} of {} meets the others", world.rank, world.size),
                {{"by", world.launcher},
                 {"leader", fmt::format("{}:{}", world.leader_address, world.leader_port)}});
  const comm::Agreement agreement = {
      .version = kVersion,
      .hash = static_cast<uint64_t>(ranks.tp_size) << 32 | static_cast<uint64_t>(ranks.pp_size)};
  ASSIGN_OR_RETURN(auto group, comm::Group::Join(world, agreement,
                                                 std::chrono::steady_clock::now() + kPatience));
  return std::make_shared<RankProcesses>(std::move(group), world.local_size, world.local_rank);
}

bool GpuRanksAreProcesses(const launch::World& world) {
  const char* const asked = std::getenv("INFLIGHT_CUDA_RANKS");
  return world.local_size < world.size ||
         (asked != nullptr && std::string_view(asked) == "processes");
}

void WaitAsRank(const launch::World& world, const sigset_t& signals) {
  logging::Info(
      fmt::format("Rank {} of {} waits: rank 0 serves models of one rank", world.rank, world.size),
      {{"by", world.launcher}, {"to_serve_too", "--ranks=serve"}});
  const pid_t parent = getppid();
  while (getppid() == parent) {
    const timespec second{.tv_sec = 1, .tv_nsec = 0};
    const int signal = sigtimedwait(&signals, nullptr, &second);
    if (signal > 0) return logging::Info(fmt::format("Signal ({}) received.", signal));
  }
  logging::Info("Whoever started this rank is gone.");
}

}  // namespace inflight::tool
