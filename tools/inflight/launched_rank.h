// SPDX-License-Identifier: Apache-2.0
// What a process does that a launcher started as one rank of several. Where models run on as many
// ranks, rank 0 serves and the others compute their parts. Where models run on one rank, rank 0
// computes all and the others wait, so that command lines of launchers that start a server for each
// GPU work as they are.
#pragma once

#include <signal.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "artifact/checkpoint.h"
#include "inflight/open.h"
#include "inflight/status.h"
#include "launch/world.h"
#include "loader/rank_processes.h"

namespace inflight::tool {

// By the process's environment (launch/world.h). Errors say how a process serves all the same.
Result<launch::World> WorldOfThisProcess();

// SIGINT and SIGTERM, which are blocked from then on in this thread and those that it starts: they
// are taken where somebody waits for them.
sigset_t BlockStopSignals();

// Whether one of `signals` has come since it was made.
std::function<bool()> AskedToStop(const sigset_t& signals);

// Of a rank above 0, whose host may lack what rank 0's has: kNotFound names the directory.
Status CheckPlacesOfRank(const launch::World& world, const std::vector<std::string>& places);

// The ranks that models are split over at the start, which are the processes of `world`: those of
// the first of `engines`, directories, that was built for so many, else what `options` ask for. One
// rank where neither is. kFailedPrecondition where they are others than `world` has, which each
// process finds by itself.
Result<artifact::RankMapping> RanksAtStart(const launch::World& world,
                                           const std::vector<std::filesystem::path>& engines,
                                           const OpenOptions& options);

// The group of `world`'s processes, once all have come, for models of `ranks`.
Result<std::shared_ptr<RankProcesses>> JoinRanks(const launch::World& world,
                                                 const artifact::RankMapping& ranks);

// Whether ranks on GPUs are these processes: where they are of several hosts, whose GPUs no one
// process drives, or INFLIGHT_CUDA_RANKS=processes says so.
bool GpuRanksAreProcesses(const launch::World& world);

// Says so, and returns on one of `signals` or when whoever started the process is gone.
void WaitAsRank(const launch::World& world, const sigset_t& signals);

}  // namespace inflight::tool
