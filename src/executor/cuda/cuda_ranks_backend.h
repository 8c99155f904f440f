// SPDX-License-Identifier: Apache-2.0
// The leader of a model on several GPUs, on the GPU of this thread: what it does itself, it tells
// the others. They are threads of this process (cuda_ranks.h) or other processes
// (cuda_rank_processes.h).
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "executor/adapter_cache.h"
#include "executor/cuda/gpu_group.h"
#include "executor/cuda_backend.h"
#include "executor/drawn_token.h"
#include "executor/host_rows.h"
#include "executor/idle_turn.h"
#include "executor/rank_call.h"

namespace inflight::executor::cuda {

// A rank to be loaded on its GPU.
struct RankToLoad {
  std::shared_ptr<const model::Engine> engine;
  Device& device;
  const MemoryPlan& plan;
  DraftWeights draft;  // whole; none of both: no draft model, no head of EAGLE
  comm::RankGroups groups;
  const StageMail* mail = nullptr;  // of several stages; null: hosts tell what is drawn
};
struct LoadedRank {
  std::unique_ptr<CudaRank> rank;
  std::string ops;  // the name of its operators' table
};
Result<LoadedRank> LoadRank(RankToLoad to_load, const ExecutorOptions& options,
                            const std::string& force_ops);

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

// What a search did, the same way.
struct KeptMove {
  std::vector<SlotId> slots;
  std::vector<int32_t> parents;
  std::vector<TokenId> tokens;
  BeamMove move;  // of these

  explicit KeptMove(const BeamMove& given)
      : slots(given.slots.begin(), given.slots.end()),
        parents(given.parents.begin(), given.parents.end()),
        tokens(given.tokens.begin(), given.tokens.end()),
        move{slots, parents, tokens, given.num_kv_tokens} {}
};

class CudaRanksBackend : public Backend, public AdapterFollowers {
 public:
  // `is_remote`: the followers are other processes.
  CudaRanksBackend(std::unique_ptr<GpuGroup> group, std::unique_ptr<CudaRank> leader,
                   bool is_remote)
      : group_(std::move(group)),
        leader_(std::move(leader)),
        info_(leader_->info()),
        is_remote_(is_remote),
        plans_(static_cast<size_t>(info_.depth) + 2),
        inputs_(plans_.size()),
        drawn_(plans_.size()),
        moves_(plans_.size()) {}
  // Followers do what they were told: what the leader has launched ends.
  ~CudaRanksBackend() override { followers_.clear(); }

  void AddFollowers(std::unique_ptr<FollowerRanks> followers) {
    info_.gpu_memory_bytes += followers->gpu_memory_bytes();
    num_ranks_ += followers->size();
    followers_.push_back(std::move(followers));
  }
  // Once all followers are there.
  void LeadAdapters() {
    leader_->adapters()->Lead(
        this, [this](const std::function<Status()>& take) { return turn_.Do(take); });
  }
  // Ends what ranks wait for. For any thread.
  void Fail(const Status& why) {
    turn_.Fail(why);
    group_->Abort(why);
  }

  Status WarmUp() {
    const auto num_stages = static_cast<size_t>(group_->num_stages());
    const size_t stage_size = (followers_.size() + 1) / num_stages;
    const size_t num_before = num_stages > 1 ? followers_.size() + 1 - stage_size : 0;
    for (size_t r = 0; r < followers_.size(); ++r) {
      followers_[r]->Tell({.kind = Kind::kWarmUp});
      if (!group_->warms_up_in_turn() || r >= num_before || (r + 1) % stage_size != 0) continue;
      for (const auto& follower : followers_) RETURN_IF_ERROR(follower->WaitForAll());
    }
    RETURN_IF_ERROR(Both(leader_->WarmUp()));
    if (num_stages == 1) return Status::Ok();
    group_->JoinStages();
    Tell({.kind = Kind::kJoinStages});
    return Both(leader_->JoinStages());
  }

  // The leader's, with the memory of all. Pinned memory grows, on all alike.
  const BackendInfo& info() const override {
    info_.pinned_memory_bytes = leader_->info().pinned_memory_bytes * num_ranks_;
    return info_;
  }

  Status status() const override { return FirstError(); }

  // Which writes what all ranks have of an adapter.
  AdapterCache* adapters() override { return leader_->adapters(); }

  Result<ReleasableParts> releasable() const override {
    ASSIGN_OR_RETURN(ReleasableParts all, leader_->releasable());
    for (const auto& follower : followers_) {
      ASSIGN_OR_RETURN(const ReleasableParts parts, follower->releasable());
      const auto add = [](const ReleasableParts::Memories& of, ReleasableParts::Memories* to) {
        to->insert(to->end(), of.begin(), of.end());
      };
      add(parts.weights, &all.weights);
      add(parts.draft_weights, &all.draft_weights);
      add(parts.kv_cache, &all.kv_cache);
    }
    return all;
  }

  // Where host memory is pinned or given back for it, no step is in flight (idle_turn.h).
  Status SetupSlot(const SlotSetup& setup) override {
    if (is_remote_) RETURN_IF_ERROR(CheckIsSent(*setup.request));
    if (HostRows::AreWanted(*setup.request) || setup.request->prompt_table != nullptr)
      RETURN_IF_ERROR(AwaitSteps());
    Tell({.kind = Kind::kSetupSlot, .setup = &setup});
    return Both(leader_->SetupSlot(setup));
  }

  void ReleaseSlot(SlotId slot) override {
    Tell({.kind = Kind::kReleaseSlot, .slot = slot});
    leader_->ReleaseSlot(slot);
  }

  // A plan is kept until no rank can be reading it: the leader collects a step only when all ranks
  // have launched it.
  Result<Ticket> Launch(const StepPlan& plan) override {
    RETURN_IF_ERROR(turn_.BeginStep([this] { return AwaitSteps(); }));
    StepPlan& kept = plans_[next_plan_++ % plans_.size()];
    kept = plan;
    Result<Ticket> ticket = LaunchKept(kept);
    if (!ticket.ok()) Fail(ticket.status());
    return ticket;
  }

  // Kept as plans are.
  Status ProvideLateInputs(Ticket ticket, const LateInputs& inputs) override {
    KeptInputs& kept = inputs_[next_inputs_++ % inputs_.size()];
    kept.Keep(inputs);
    Tell({.kind = Kind::kLateInputs, .inputs = &kept.inputs, .ticket = ticket});
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
    std::vector<DrawnToken>& drawn = drawn_[next_drawn_++ % drawn_.size()];
    drawn.clear();
    if (result.ok()) drawn.assign(leader_->drawn().begin(), leader_->drawn().end());
    Tell({.kind = Kind::kCollect, .ticket = ticket, .drawn = drawn});
    if (result.ok() && group_->num_stages() > 1) TellMoves();
    if (!result.ok()) Fail(result.status());
    turn_.EndStep();
    RETURN_IF_ERROR(FirstError());  // an abort ends steps with results of no value
    return result;
  }

  Status TakeAdapterMemory() override { return OnOthers({.kind = Kind::kTakeAdapterMemory}); }
  Status WriteAdapter(const AdapterCopy& copy) override {
    return OnOthers({.kind = Kind::kWriteAdapter, .adapter = &copy});
  }

 private:
  using Kind = RankCall::Kind;

  // Trees are drafted by all ranks of the last stage at once, before those of other stages can
  // begin the step.
  Result<Ticket> LaunchKept(const StepPlan& plan) {
    if (group_->num_stages() > 1 && !info_.draft_parents.empty() && HasDrafts(plan)) {
      Tell({.kind = Kind::kDraft, .plan = &plan});
      RETURN_IF_ERROR(leader_->Draft(plan));
    }
    ASSIGN_OR_RETURN(const Guesses guesses, leader_->Guess(plan));
    Tell({.kind = Kind::kLaunch, .plan = &plan, .guesses = guesses});
    return leader_->Launch(plan);
  }
  static bool HasDrafts(const StepPlan& plan) {
    const auto rows = std::span(plan.rows).first(static_cast<size_t>(plan.num_decode_rows));
    return std::ranges::any_of(rows, [](const auto& row) { return row.num_draft_tokens > 0; });
  }

  void Tell(const RankCall& call) {
    for (const auto& follower : followers_) follower->Tell(call);
  }
  Status OnOthers(const RankCall& call) {
    for (const auto& follower : followers_) RETURN_IF_ERROR(follower->DoNow(call));
    return Status::Ok();
  }
  Status FirstError() const {
    for (const auto& follower : followers_) RETURN_IF_ERROR(follower->status());
    return Status::Ok();
  }
  // What searches of the collected step did, kept as plans are.
  void TellMoves() {
    if (leader_->moves().empty()) return;
    std::vector<KeptMove>& kept = moves_[next_moves_++ % moves_.size()];
    kept.clear();
    for (const BeamMove& move : leader_->moves()) kept.emplace_back(move);
    for (const KeptMove& each : kept) Tell({.kind = Kind::kFollowBeams, .move = &each.move});
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
    Tell({.kind = Kind::kAwaitSteps});
    return Both(leader_->AwaitSteps());
  }

  const std::unique_ptr<GpuGroup> group_;
  IdleTurn turn_;
  const std::unique_ptr<CudaRank> leader_;
  mutable BackendInfo info_;
  int num_ranks_ = 1;
  const bool is_remote_;
  std::vector<std::unique_ptr<FollowerRanks>> followers_;
  std::vector<StepPlan> plans_;
  size_t next_plan_ = 0;
  std::vector<KeptInputs> inputs_;  // as many as plans
  size_t next_inputs_ = 0;
  std::vector<std::vector<DrawnToken>> drawn_;  // the same
  size_t next_drawn_ = 0;
  std::vector<std::vector<KeptMove>> moves_;  // the same
  size_t next_moves_ = 0;
};

}  // namespace inflight::executor::cuda
