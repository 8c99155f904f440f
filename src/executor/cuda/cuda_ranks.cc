// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "executor/cuda/peer_group.h"
#include "executor/cuda/rank_thread.h"
#include "executor/cuda_backend.h"
#include "executor/host_rows.h"
#include "model/supported.h"
#include "ops/backend.h"

namespace inflight::executor {
namespace {

using cuda::PeerGroup;
using cuda::RankThread;

class CudaRanks : public Backend {
 public:
  CudaRanks(std::unique_ptr<PeerGroup> group, std::unique_ptr<CudaRank> leader)
      : group_(std::move(group)), leader_(std::move(leader)), info_(leader_->info()) {}
  ~CudaRanks() override {
    group_->rank(0).Abort(Unavailable("the model is unloaded"));
    followers_.clear();
  }

  void AddFollower(int number, std::unique_ptr<CudaRank> rank) {
    info_.gpu_memory_bytes += rank->info().gpu_memory_bytes;
    followers_.push_back(std::make_unique<RankThread>(
        number, std::move(rank), [this](const Status& why) { group_->rank(0).Abort(why); }));
  }

  Status WarmUp() {
    Tell([](CudaRank& rank) { return rank.WarmUp(); });
    return Both(leader_->WarmUp());
  }

  // The leader's, with the memory of all. Pinned memory grows, on all alike.
  const BackendInfo& info() const override {
    info_.pinned_memory_bytes = leader_->info().pinned_memory_bytes * (1 + std::ssize(followers_));
    return info_;
  }

  // Where host memory is pinned or given back for it, no step is in flight: CUDA waits with that
  // until GPUs are idle and lets no thread launch meanwhile, and a step whose kernels wait for one
  // that another rank cannot launch would never end.
  Status SetupSlot(const SlotSetup& setup) override {
    if (HostRows::AreWanted(*setup.request) || setup.request->prompt_table != nullptr) {
      Tell([](CudaRank& rank) { return rank.AwaitSteps(); });
      RETURN_IF_ERROR(Both(leader_->AwaitSteps()));
    }
    Tell([&setup](CudaRank& rank) { return rank.SetupSlot(setup); });
    return Both(leader_->SetupSlot(setup));
  }

  // A plan is kept until no rank can be reading it: the leader collects a step only when all ranks
  // have launched it.
  Result<Ticket> Launch(const StepPlan& plan) override {
    StepPlan& kept = plans_[next_plan_++ % plans_.size()];
    kept = plan;
    Tell([&kept](CudaRank& rank) { return rank.Launch(kept).status(); });
    Result<Ticket> ticket = leader_->Launch(plan);
    if (!ticket.ok()) group_->rank(0).Abort(ticket.status());
    return ticket;
  }

  Status ProvideLateInputs(Ticket ticket, const LateInputs& inputs) override {
    return leader_->ProvideLateInputs(ticket, inputs);
  }
  bool Ready(Ticket ticket) const override { return leader_->Ready(ticket); }
  std::vector<Beam> BestBeams(SlotId slot, bool is_last) const override {
    return leader_->BestBeams(slot, is_last);
  }

  Result<const StepResult*> Collect(Ticket ticket) override {
    Result<const StepResult*> result = leader_->Collect(ticket);
    Tell([ticket](CudaRank& rank) { return rank.Collect(ticket).status(); });
    if (!result.ok()) group_->rank(0).Abort(result.status());
    RETURN_IF_ERROR(FirstError());  // an abort ends steps with results of no value
    return result;
  }

 private:
  void Tell(const RankThread::Task& task) {
    for (const auto& follower : followers_) follower->Tell(task);
  }
  Status FirstError() const {
    for (const auto& follower : followers_) RETURN_IF_ERROR(follower->status());
    return Status::Ok();
  }
  // What all ranks do at once: waits for it.
  Status Both(const Status& leaders) {
    if (!leaders.ok()) group_->rank(0).Abort(leaders);
    Status first = leaders;
    for (const auto& follower : followers_) {
      const Status done = follower->WaitForAll();
      if (first.ok()) first = done;
    }
    return first;
  }

  const std::unique_ptr<PeerGroup> group_;
  const std::unique_ptr<CudaRank> leader_;
  mutable BackendInfo info_;
  std::vector<std::unique_ptr<RankThread>> followers_;
  std::array<StepPlan, kCudaDepth + 2> plans_;
  size_t next_plan_ = 0;
};

}  // namespace

Status CheckCudaRanks(const model::RankPart& part, const ExecutorOptions& options) {
  if (part.pp_size > 1)
    return Unimplemented(fmt::format(
        "pipeline_parallel_size: got {}, GPUs have one stage; use tensor_parallel_size, or "
        "--device cpu",
        part.pp_size));
  if (options.drafts == DraftSource::kModel || options.drafts == DraftSource::kEagle ||
      options.drafts == DraftSource::kMedusa)
    return Unimplemented(
        "speculation: ranks on GPUs take drafts out of texts; use ngram, suffix or none, or one "
        "rank");
  if (options.gpu_weights.fraction != 1 || options.gpu_weights.as_many_as_fit)
    return Unimplemented(
        "gpu_weights_percent: ranks on GPUs hold all their weights; leave it out, or use more "
        "ranks");
  return Status::Ok();
}

Result<LocalBackend> CreateCudaRanks(
    const std::vector<std::shared_ptr<const model::Engine>>& engines,
    const std::vector<Device*>& devices, const ExecutorOptions& options,
    const std::string& force_ops) {
  const model::RankPart& part = engines.front()->config.part;
  RETURN_IF_ERROR(CheckCudaRanks(part, options));
  const size_t num_ranks = engines.size();
  CHECK_EQ(num_ranks, devices.size());
  ExecutorOptions for_each = options;
  for_each.kv_cache_host_bytes /= num_ranks;
  for_each.adapter_memory_fraction = 0;
  std::vector<MemoryPlan> plans;
  for (const bool is_final : {false, true}) {
    plans.clear();
    for (size_t r = 0; r < num_ranks; ++r) {
      const auto num_shares = static_cast<int>(std::ranges::count(devices, devices[r]));
      ASSIGN_OR_RETURN(plans.emplace_back(),
                       PlanShare(*engines[r], *devices[r], for_each, {}, num_shares));
      if (is_final) continue;
      const int64_t tokens = plans.back().kv_tokens();
      for_each.max_kv_tokens = std::min(for_each.max_kv_tokens.value_or(tokens), tokens);
    }
  }
  const auto choice = options.deterministic ? ops::OpChoice::kFixed : ops::OpChoice::kFastest;
  ASSIGN_OR_RETURN(auto group, PeerGroup::Create(devices));
  std::vector<std::unique_ptr<CudaRank>> ranks;
  std::string ops_name;
  for (size_t r = 0; r < num_ranks; ++r) {
    ASSIGN_OR_RETURN(
        const ops::OpTable ops,
        ops::FindOps(*devices[r], model::KernelShape(engines[r]->config), force_ops, choice));
    ops_name = ops.name;
    ASSIGN_OR_RETURN(ranks.emplace_back(),
                     LoadCudaRank(engines[r], *devices[r], plans[r], ops, choice,
                                  {.tensor = &group->rank(static_cast<int>(r))}));
  }
  auto backend = std::make_unique<CudaRanks>(std::move(group), std::move(ranks.front()));
  for (size_t r = 1; r < num_ranks; ++r)
    backend->AddFollower(static_cast<int>(r), std::move(ranks[r]));
  RETURN_IF_ERROR(backend->WarmUp());
  logging::Info("the model runs on several GPUs",
                {{"tensor_parallel_size", part.tp_size}, {"kv_tokens", plans.front().kv_tokens()}});
  return LocalBackend{
      .backend = std::move(backend), .plans = std::move(plans), .ops = std::move(ops_name)};
}

}  // namespace inflight::executor
