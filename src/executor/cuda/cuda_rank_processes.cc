// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda_rank_processes.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "executor/cuda/cuda_ranks_backend.h"
#include "executor/cuda/nccl_library.h"
#include "executor/cuda/nccl_stages.h"
#include "executor/remote_ranks.h"

namespace inflight::executor {
namespace {

using cuda::NcclStages;

Result<MemoryPlan> PlanOf(const RankOfProcess& rank) {
  return PlanShare(*rank.engine, rank.device, rank.options, rank.draft, /*num_shares=*/1);
}

// The rank on its GPU, once all have joined `joined`.
struct Joined {
  std::unique_ptr<cuda::GpuGroup> group;
  cuda::LoadedRank loaded;
  MemoryPlan plan;
};
Result<Joined> Join(const RankOfProcess& rank, const RankMeeting& meeting,
                    const comm::Group& group) {
  const model::RankPart& part = rank.engine->config.part;
  if (rank.options.deterministic && part.tp_size > 2)
    return Unimplemented(
        fmt::format("tensor_parallel_size: got {} beside deterministic; ranks that are processes "
                    "add up by NCCL, in an order that depends on what else is computed: use at "
                    "most 2, or leave deterministic out",
                    part.tp_size));
  const int of_model = part.pp_rank * part.tp_size + part.tp_rank;
  // First of all: the others wait for it.
  Joined joined;
  ASSIGN_OR_RETURN(joined.group, NcclStages::Join(rank.device, meeting.nccl_ids, part,
                                                  [&group] { return group.status(); }));
  ASSIGN_OR_RETURN(joined.plan, PlanOf(rank));
  joined.plan.adapter_bytes = meeting.adapter_bytes;
  joined.plan.num_host_blocks = meeting.num_host_blocks;
  ASSIGN_OR_RETURN(joined.loaded, cuda::LoadRank({.engine = rank.engine,
                                                  .device = rank.device,
                                                  .plan = joined.plan,
                                                  .draft = rank.draft,
                                                  .groups = joined.group->groups(of_model)},
                                                 rank.options, rank.ops));
  return joined;
}

class Follower : public CudaFollower {
 public:
  Follower(Joined joined, const comm::Group& group)
      : group_(std::move(joined.group)),
        rank_(std::move(joined.loaded.rank)),
        watch_(group, [this](const Status& why) { group_->Abort(why); }) {}

  Status Do(std::string_view message, RankCall::Kind* kind) override {
    Status done = rank_.Do(message, kind);
    // What the leader tells behind that hands rows over.
    if (*kind == RankCall::Kind::kWarmUp && done.ok()) group_->JoinStages();
    return done;
  }
  int64_t gpu_memory_bytes() const override { return rank_.gpu_memory_bytes(); }

 private:
  const std::unique_ptr<cuda::GpuGroup> group_;
  CalledRank rank_;
  GroupWatch watch_;  // ends first
};

}  // namespace

Result<MemoryPlan> PlanCudaRank(const RankOfProcess& rank) {
  RETURN_IF_ERROR(cuda::LoadNccl().status());
  return PlanOf(rank);
}

Result<std::vector<std::string>> MakeNcclIds(const model::RankPart& part) {
  ASSIGN_OR_RETURN(const cuda::NcclCalls* const calls, cuda::LoadNccl());
  std::vector<std::string> ids(NcclStages::NumGroups(part));
  for (std::string& made : ids) {
    cuda::NcclId id;
    RETURN_IF_ERROR(calls->ToStatus(calls->get_unique_id(&id), "a group"));
    made.assign(id.bytes, sizeof(id.bytes));
  }
  return ids;
}

Result<LocalBackend> CreateCudaLeader(const RankOfProcess& rank, const RankMeeting& meeting,
                                      comm::Group& group,
                                      const std::function<Result<int64_t>()>& await_others,
                                      const std::shared_ptr<void>& model) {
  Result<Joined> made = Join(rank, meeting, group);
  const Result<int64_t> others_bytes = await_others();
  RETURN_IF_ERROR(made.status());
  RETURN_IF_ERROR(others_bytes.status());
  Joined joined = *std::move(made);
  auto backend = std::make_unique<cuda::CudaRanksBackend>(
      std::move(joined.group), std::move(joined.loaded.rank), /*is_remote=*/true);
  backend->AddFollowers(std::make_unique<RemoteRanks>(
      group, *others_bytes, [leader = backend.get()](const Status& why) { leader->Fail(why); },
      model));
  backend->LeadAdapters();
  RETURN_IF_ERROR(backend->WarmUp());
  logging::Info("the model runs on GPUs of several processes",
                {{"tensor_parallel_size", rank.engine->config.part.tp_size},
                 {"pipeline_parallel_size", rank.engine->config.part.pp_size},
                 {"kv_tokens", joined.plan.kv_tokens()}});
  return LocalBackend{.backend = std::move(backend),
                      .plans = std::vector(static_cast<size_t>(group.size()), joined.plan),
                      .ops = std::move(joined.loaded.ops)};
}

Result<std::unique_ptr<CudaFollower>> CreateCudaFollower(const RankOfProcess& rank,
                                                         const RankMeeting& meeting,
                                                         comm::Group& group) {
  ASSIGN_OR_RETURN(Joined joined, Join(rank, meeting, group));
  return std::unique_ptr<CudaFollower>(std::make_unique<Follower>(std::move(joined), group));
}

}  // namespace inflight::executor
