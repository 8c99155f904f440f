// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda/cuda_rank_processes.cc in builds without CUDA, where no device is a GPU.
#include "executor/cuda_rank_processes.h"

namespace inflight::executor {
namespace {

Status NoCuda() { return Unimplemented("device: got cuda, this program was built without CUDA"); }

}  // namespace

Result<MemoryPlan> PlanCudaRank(const RankOfProcess&) { return NoCuda(); }

Result<std::vector<std::string>> MakeNcclIds(const model::RankPart&) { return NoCuda(); }

Result<LocalBackend> CreateCudaLeader(const RankOfProcess&, const RankMeeting&, comm::Group&,
                                      const std::function<Result<int64_t>()>&,
                                      const std::shared_ptr<void>&) {
  return NoCuda();
}

Result<std::unique_ptr<CudaFollower>> CreateCudaFollower(const RankOfProcess&, const RankMeeting&,
                                                         comm::Group&) {
  return NoCuda();
}

}  // namespace inflight::executor
