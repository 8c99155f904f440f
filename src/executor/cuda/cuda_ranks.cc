// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "executor/adapter_cache.h"
#include "executor/cuda/gpu_group.h"
#include "executor/cuda/rank_thread.h"
#include "executor/cuda_backend.h"
#include "executor/host_rows.h"
#include "executor/idle_turn.h"
#include "executor/model_drafts.h"
#include "model/supported.h"
#include "ops/backend.h"

namespace inflight::executor {
namespace {

using cuda::GpuGroup;
using cuda::RankThread;

// Late inputs of a step, kept until all ranks have read them.
struct KeptInputs {
  LateInputs inputs;
  std::vector<uint32_t> bits;  // of all masks

  void Keep(const LateInputs& given) {
    inputs = given;
    bits.clear();
    for (const LateInputs::Mask& mask : given.masks)
      bits.insert(bits.end(), mask.allowed_bits.begin(), mask.allowed_bits.end());
    std::span<const uint32_t> left = bits;
    for (LateInputs::Mask& mask : inputs.masks) {
      const size_t num_words = mask.allowed_bits.size();
      mask.allowed_bits = left.first(num_words);
      left = left.subspan(num_words);
    }
  }
};

class CudaRanks : public Backend {
 public:
  CudaRanks(std::unique_ptr<GpuGroup> group, std::unique_ptr<CudaRank> leader)
      : group_(std::move(group)), leader_(std::move(leader)), info_(leader_->info()) {}
  // Followers do what they were told: what the leader has launched ends.
  ~CudaRanks() override { followers_.clear(); }

  void AddFollowers(std::vector<std::unique_ptr<CudaRank>> ranks) {
    std::vector<AdapterCache*> adapters;
    for (auto& rank : ranks) {
      info_.gpu_memory_bytes += rank->info().gpu_memory_bytes;
      adapters.push_back(rank->adapters());
      followers_.push_back(std::make_unique<RankThread>(static_cast<int>(1 + followers_.size()),
                                                        std::move(rank), [this](const Status& why) {
                                                          turn_.Fail(why);
                                                          group_->rank(0).Abort(why);
                                                        }));
    }
    leader_->adapters()->Lead(std::move(adapters), [this](const std::function<Status()>& take) {
      return turn_.Do(take);
    });
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

  // Which writes what all ranks have of an adapter.
  AdapterCache* adapters() override { return leader_->adapters(); }

  // Where host memory is pinned or given back for it, no step is in flight (idle_turn.h).
  Status SetupSlot(const SlotSetup& setup) override {
    if (HostRows::AreWanted(*setup.request) || setup.request->prompt_table != nullptr)
      RETURN_IF_ERROR(AwaitSteps());
    Tell([&setup](CudaRank& rank) { return rank.SetupSlot(setup); });
    return Both(leader_->SetupSlot(setup));
  }

  void ReleaseSlot(SlotId slot) override {
    Tell([slot](CudaRank& rank) {
      rank.ReleaseSlot(slot);
      return Status::Ok();
    });
    leader_->ReleaseSlot(slot);
  }

  // A plan is kept until no rank can be reading it: the leader collects a step only when all ranks
  // have launched it.
  Result<Ticket> Launch(const StepPlan& plan) override {
    RETURN_IF_ERROR(turn_.BeginStep([this] { return AwaitSteps(); }));
    StepPlan& kept = plans_[next_plan_++ % plans_.size()];
    kept = plan;
    Tell([&kept](CudaRank& rank) { return rank.Launch(kept).status(); });
    Result<Ticket> ticket = leader_->Launch(plan);
    if (!ticket.ok()) Fail(ticket.status());
    return ticket;
  }

  // Kept as plans are.
  Status ProvideLateInputs(Ticket ticket, const LateInputs& inputs) override {
    KeptInputs& kept = inputs_[next_inputs_++ % inputs_.size()];
    kept.Keep(inputs);
    Tell([&kept, ticket](CudaRank& rank) { return rank.ProvideLateInputs(ticket, kept.inputs); });
    const Status done = leader_->ProvideLateInputs(ticket, inputs);
    if (!done.ok()) Fail(done);
    return done;
  }
  Result<std::span<const TokenId>> DraftsOf(Ticket ticket, SlotId slot) override {
    return leader_->DraftsOf(ticket, slot);
  }
  bool Ready(Ticket ticket) const override { return leader_->Ready(ticket); }
  std::vector<Beam> BestBeams(SlotId slot, bool is_last) const override {
    return leader_->BestBeams(slot, is_last);
  }

  Result<const StepResult*> Collect(Ticket ticket) override {
    Result<const StepResult*> result = leader_->Collect(ticket);
    Tell([ticket](CudaRank& rank) { return rank.Collect(ticket).status(); });
    if (!result.ok()) Fail(result.status());
    turn_.EndStep();
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
    if (!leaders.ok()) Fail(leaders);
    Status first = leaders;
    for (const auto& follower : followers_) {
      const Status done = follower->WaitForAll();
      if (first.ok()) first = done;
    }
    return first;
  }
  Status AwaitSteps() {
    Tell([](CudaRank& rank) { return rank.AwaitSteps(); });
    return Both(leader_->AwaitSteps());
  }
  void Fail(const Status& why) {
    turn_.Fail(why);
    group_->rank(0).Abort(why);
  }

  const std::unique_ptr<GpuGroup> group_;
  IdleTurn turn_;
  const std::unique_ptr<CudaRank> leader_;
  mutable BackendInfo info_;
  std::vector<std::unique_ptr<RankThread>> followers_;
  std::array<StepPlan, kCudaDepth + 2> plans_;
  size_t next_plan_ = 0;
  std::array<KeptInputs, kCudaDepth + 2> inputs_;
  size_t next_inputs_ = 0;
};

Result<std::vector<MemoryPlan>> PlanRanks(const RankEngines& engines,
                                          const std::vector<Device*>& devices,
                                          ExecutorOptions options, const RankEngines& drafts) {
  options.kv_cache_host_bytes /= engines.size();
  std::vector<MemoryPlan> plans;
  for (const bool is_final : {false, true}) {
    plans.clear();
    for (size_t r = 0; r < engines.size(); ++r) {
      const auto num_shares = static_cast<int>(std::ranges::count(devices, devices[r]));
      const DraftWeights draft = {.model = drafts.empty() ? nullptr : drafts[r], .eagle = nullptr};
      ASSIGN_OR_RETURN(plans.emplace_back(),
                       PlanShare(*engines[r], *devices[r], options, draft, num_shares));
      if (is_final) continue;
      const int64_t tokens = plans.back().kv_tokens();
      options.max_kv_tokens = std::min(options.max_kv_tokens.value_or(tokens), tokens);
    }
  }
  // An adapter has one place on all.
  const uint64_t adapter_bytes =
      std::ranges::min(plans, {}, &MemoryPlan::adapter_bytes).adapter_bytes;
  for (MemoryPlan& plan : plans) plan.adapter_bytes = adapter_bytes;
  return plans;
}

}  // namespace

Status CheckCudaRanks(const model::RankPart& part) {
  if (part.pp_size > 1)
    return Unimplemented(fmt::format(
        "pipeline_parallel_size: got {}, GPUs have one stage; use tensor_parallel_size, or "
        "--device cpu",
        part.pp_size));
  return Status::Ok();
}

Result<LocalBackend> CreateCudaRanks(const RankEngines& engines,
                                     const std::vector<Device*>& devices,
                                     const ExecutorOptions& options, const std::string& force_ops,
                                     const RankEngines& drafts) {
  const model::ModelConfig& config = engines.front()->config;
  RETURN_IF_ERROR(CheckCudaRanks(config.part));
  const size_t num_ranks = engines.size();
  CHECK_EQ(num_ranks, devices.size());
  CHECK(drafts.empty() || drafts.size() == num_ranks);
  ASSIGN_OR_RETURN(std::vector<MemoryPlan> plans, PlanRanks(engines, devices, options, drafts));
  const auto choice = options.deterministic ? ops::OpChoice::kFixed : ops::OpChoice::kFastest;
  ASSIGN_OR_RETURN(auto group, GpuGroup::Create(devices, options.deterministic));
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
    if (drafts.empty()) continue;
    RETURN_IF_ERROR(CheckDraftModel(*drafts[r], config.vocab_size, plans[r]));
    // Each rank drafts, and all have to draft the same.
    ASSIGN_OR_RETURN(const ops::OpTable draft_ops,
                     ops::FindOps(*devices[r], model::KernelShape(drafts[r]->config), force_ops,
                                  ops::OpChoice::kFixed));
    RETURN_IF_ERROR(
        ranks.back()->LoadDrafts(drafts[r], draft_ops, ops::OpChoice::kFixed, *devices[r]));
  }
  auto backend = std::make_unique<CudaRanks>(std::move(group), std::move(ranks.front()));
  ranks.erase(ranks.begin());
  backend->AddFollowers(std::move(ranks));
  RETURN_IF_ERROR(backend->WarmUp());
  logging::Info("the model runs on several GPUs", {{"tensor_parallel_size", config.part.tp_size},
                                                   {"kv_tokens", plans.front().kv_tokens()}});
  return LocalBackend{
      .backend = std::move(backend), .plans = std::move(plans), .ops = std::move(ops_name)};
}

}  // namespace inflight::executor
