// SPDX-License-Identifier: Apache-2.0
#include "executor/ranked_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"
#include "comm/shared_group.h"
#include "executor/rank_leader.h"

namespace inflight::executor {
namespace {

// The groups that the ranks of a model talk in.
class Groups {
 public:
  explicit Groups(const model::RankPart& part) : tp_size_(part.tp_size) {
    for (int stage = 0; stage < part.pp_size && part.tp_size > 1; ++stage)
      tensor_.push_back(std::make_unique<comm::ThreadGroup>(part.tp_size));
    for (int t = 0; t < part.tp_size && part.pp_size > 1; ++t)
      pipeline_.push_back(std::make_unique<comm::ThreadGroup>(part.pp_size));
  }

  comm::RankGroups Of(int rank) const {
    const int stage = rank / tp_size_;
    const int t = rank % tp_size_;
    comm::RankGroups groups;
    if (!tensor_.empty()) groups.tensor = &tensor_[static_cast<size_t>(stage)]->rank(t);
    if (!pipeline_.empty()) groups.pipeline = &pipeline_[static_cast<size_t>(t)]->rank(stage);
    return groups;
  }

  void Abort(const Status& reason) const {
    for (const auto* groups : {&tensor_, &pipeline_})
      for (const auto& group : *groups) group->rank(0).Abort(reason);
  }

 private:
  const int tp_size_;
  std::vector<std::unique_ptr<comm::ThreadGroup>> tensor_;    // of each stage
  std::vector<std::unique_ptr<comm::ThreadGroup>> pipeline_;  // of each tp_rank
};

// A follower and the thread that it computes on. Calls wait for it in a queue, whose buffers are
// used again.
class FollowerThread {
 public:
  FollowerThread(int rank, std::unique_ptr<RankFollower> follower, const Groups& groups)
      : follower_(std::move(follower)), groups_(groups) {
    unused_.reserve(kMostUnused);
    thread_ = std::thread([this, rank] { Run(rank); });
  }
  ~FollowerThread() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  FollowerThread(const FollowerThread&) = delete;
  FollowerThread& operator=(const FollowerThread&) = delete;

  Status Tell(std::span<const std::byte> bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (!failed_.ok()) return failed_;
      Call call;
      if (!unused_.empty()) {
        call = std::move(unused_.back());
        unused_.pop_back();
      }
      call.assign(bytes.begin(), bytes.end());
      waiting_.push_back(std::move(call));
    }
    wake_.notify_one();
    return Status::Ok();
  }

 private:
  using Call = std::vector<std::byte>;
  static constexpr size_t kMostUnused = 64;

  // Threads that find no memory end the group: the others would wait for what they had computed.
  void Run(int rank) {
    NameThisThread(fmt::format("rank {}", rank));
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return is_ending_ || !waiting_.empty(); });
      if (is_ending_) return;
      Call call = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      Status done =
          StatusOf([&] { return follower_->Do(call).WithPrefix(fmt::format("rank {}", rank)); });
      // The others wait for what this rank would have computed.
      if (!done.ok()) groups_.Abort(done);
      lock.lock();
      if (unused_.size() < unused_.capacity()) unused_.push_back(std::move(call));
      if (!done.ok()) failed_ = std::move(done);
    }
  }

  const std::unique_ptr<RankFollower> follower_;
  const Groups& groups_;
  std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  std::deque<Call> waiting_;
  std::vector<Call> unused_;
  Status failed_;
  bool is_ending_ = false;
  std::thread thread_;
};

class FollowerThreads : public RankFollowers {
 public:
  explicit FollowerThreads(std::unique_ptr<Groups> groups) : groups_(std::move(groups)) {}
  ~FollowerThreads() override { Abort(Unavailable("the model is unloaded")); }

  void Add(int rank, std::unique_ptr<RankFollower> follower) {
    threads_.push_back(std::make_unique<FollowerThread>(rank, std::move(follower), *groups_));
  }

  Status Tell(std::span<const std::byte> call) override {
    for (const auto& thread : threads_) RETURN_IF_ERROR(thread->Tell(call));
    return Status::Ok();
  }
  void Abort(const Status& reason) override { groups_->Abort(reason); }
  const Groups& groups() const { return *groups_; }

 private:
  const std::unique_ptr<Groups> groups_;
  std::vector<std::unique_ptr<FollowerThread>> threads_;
};

}  // namespace

Result<LocalBackend> CreateRankedBackend(
    const std::vector<std::shared_ptr<const model::Engine>>& engines, Device& device,
    const ExecutorOptions& options, const std::string& force_ops, const DraftWeights& draft) {
  const model::RankPart& part = engines.front()->config.part;
  const auto num_ranks = static_cast<int>(engines.size());
  CHECK_EQ(num_ranks, part.tp_size * part.pp_size);
  ExecutorOptions for_each = options;
  for_each.kv_cache_host_bytes /= engines.size();
  const auto sizing = device.ledger().LockSizing();
  std::vector<MemoryPlan> plans;
  for (const auto& engine : engines) {
    const bool is_leader = plans.empty();
    ASSIGN_OR_RETURN(
        plans.emplace_back(),
        PlanShare(*engine, device, is_leader ? for_each : FollowerOptions(for_each, plans.front()),
                  is_leader ? draft : DraftWeights(), num_ranks));
    const int64_t tokens = plans.back().kv_tokens();
    for_each.max_kv_tokens = std::min(for_each.max_kv_tokens.value_or(tokens), tokens);
  }
  const auto make_followers = [&](const MemoryPlan& leaders,
                                  const ops::OpTable& ops) -> Result<RankMembership> {
    for (size_t r = 1; r < plans.size(); ++r) plans[r].TakeBlocks(leaders, engines[r]->config);
    plans.front() = leaders;
    auto groups = std::make_unique<Groups>(part);
    RankMembership membership = {.groups = groups->Of(0)};
    auto followers = std::make_unique<FollowerThreads>(std::move(groups));
    for (int rank = 1; rank < num_ranks; ++rank) {
      ASSIGN_OR_RETURN(auto follower, RankFollower::Create(engines[static_cast<size_t>(rank)],
                                                           device, FollowerShapeOf(leaders), ops,
                                                           followers->groups().Of(rank)));
      followers->Add(rank, std::move(follower));
      membership.others_bytes += plans[static_cast<size_t>(rank)].total_bytes();
    }
    membership.leader = std::make_unique<RankLeader>(std::move(followers), leaders.block_size);
    return membership;
  };
  ASSIGN_OR_RETURN(LocalBackend local, CreateLocalBackend(engines.front(), device, for_each,
                                                          force_ops, draft, make_followers));
  logging::Info("the model runs on several ranks", {{"tensor_parallel_size", part.tp_size},
                                                    {"pipeline_parallel_size", part.pp_size},
                                                    {"moe_ep_size", part.moe_ep_size}});
  local.plans = std::move(plans);
  return local;
}

}  // namespace inflight::executor
