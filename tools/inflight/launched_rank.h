// SPDX-License-Identifier: Apache-2.0
// Which rank of a job this process is, where MPI or Slurm started several of it. An engine has one
// rank, which rank 0 serves; the others wait, so that command lines of launchers that start a
// server for each GPU work as they are.
#pragma once

#include <signal.h>

#include <optional>
#include <string>

namespace inflight::tool {

struct LaunchedRank {
  int rank = 0;
  int size = 1;
  std::string variable;  // of the environment that says the rank
};

// None where nothing was launched together, or where the environment does not make sense.
std::optional<LaunchedRank> RankOfThisProcess();

// Says so, and returns on one of `signals` or when whoever started the process is gone.
void WaitAsRank(const LaunchedRank& rank, const sigset_t& signals);

}  // namespace inflight::tool
