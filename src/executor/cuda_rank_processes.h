// SPDX-License-Identifier: Apache-2.0
// A model on GPUs of several processes, of one host or of several: a rank and a GPU in each. They
// add up and hand rows from stage to stage by NCCL; the leader tells the others what to do
// (rank_call.h).
//
// In this order: all open their parts, all say what they have room for (PlanCudaRank), the leader
// sets a Meeting, and all create their ranks, which returns when all have come.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/rendezvous.h"
#include "executor/cuda_backend.h"
#include "executor/local_backend.h"
#include "executor/rank_call.h"

namespace inflight::executor {

// What a rank is made of.
struct RankOfProcess {
  std::shared_ptr<const model::Engine> engine;
  Device& device;           // a GPU
  DraftWeights draft = {};  // whole; none of both: no draft model, no head of EAGLE
  ExecutorOptions options = {};
  std::string ops = {};  // as of CreateLocalBackend
};

// Which rank of the model process `process` of their group is. The first one, the leader, draws: it
// is the first of the last stage; behind that stage's are those of the first one, and so on.
inline int CudaRankOf(int process, int tp_size, int pp_size) {
  return (process + tp_size * (pp_size - 1)) % (tp_size * pp_size);
}

// What a rank has room for on its GPU. kFailedPrecondition where NCCL is not there.
Result<MemoryPlan> PlanCudaRank(const RankOfProcess& rank);

// What all ranks agree on, beside options that are the same on all.
struct RankMeeting {
  std::vector<std::string> nccl_ids;  // of all groups (cuda/nccl_stages.h)
  // Of the one with the least room.
  uint64_t adapter_bytes = 0;
  int64_t num_host_blocks = 0;
};
// Of the leader: those of a model of which `part` is one. Errors as of PlanCudaRank.
Result<std::vector<std::string>> MakeNcclIds(const model::RankPart& part);

// The leader's. `options` have the tokens that all have room for. `await_others` returns when the
// others have made their ranks, what these take of their GPUs; `model` goes at the backend's end.
Result<LocalBackend> CreateCudaLeader(const RankOfProcess& rank, const RankMeeting& meeting,
                                      comm::Group& group,
                                      const std::function<Result<int64_t>()>& await_others,
                                      const std::shared_ptr<void>& model);

// Another rank, which does what its leader says.
class CudaFollower {
 public:
  virtual ~CudaFollower() = default;
  // As of CalledRank. Once the group is over its steps end.
  virtual Status Do(std::string_view message, RankCall::Kind* kind) = 0;
  virtual int64_t gpu_memory_bytes() const = 0;
};
Result<std::unique_ptr<CudaFollower>> CreateCudaFollower(const RankOfProcess& rank,
                                                         const RankMeeting& meeting,
                                                         comm::Group& group);

}  // namespace inflight::executor
