// SPDX-License-Identifier: Apache-2.0
// Which rank of how many this process is, as the launcher that started it says in the environment.
//
// Sources: open-mpi/ompi/docs/tuning-apps/environment-var.rst; Slurm, srun(1), "OUTPUT ENVIRONMENT
// VARIABLES"; pytorch/pytorch/torch/distributed/run.py, "Environment Variables";
// pmodels/mpich/src/pm/hydra; kubernetes-sigs/lws/api/leaderworkerset/v1/leaderworkerset_types.go.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::launch {

// What PyTorch's launcher takes too where MASTER_PORT does not say.
inline constexpr int kDefaultLeaderPort = 29500;

// rank in [0, size), local_rank in [0, local_size): those of this host.
struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // 0 of 1 where the launcher does not say: one rank for each host or pod
  int local_size = 1;
  // Where rank 0 is found: a name or an address. Of MASTER_ADDR, or of the launcher; 127.0.0.1
  // where all ranks are of this host; empty where nobody says.
  std::string leader_address;
  int leader_port = kDefaultLeaderPort;  // of MASTER_PORT
  std::string_view launcher;             // "Open MPI"; empty where none started this process
};

// The value of a variable, or null: std::getenv outside of tests. An empty value is none.
using Environment = std::function<const char*(const char* name)>;

// A world of one rank where no launcher's variables are set. Where those of several are (mpirun in
// a job of Slurm), the innermost counts, in the order torchrun, Open MPI, PMI, Slurm,
// LeaderWorkerSet; of the others, one that says the same rank and size completes what it leaves
// open.
//
// kInvalidArgument names the variable that is no number, out of its bounds, or lacks its
// companion.
Result<World> FindWorld(const Environment& environment);

}  // namespace inflight::launch
