// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes, of one host or of several: how the leader has the others load their
// parts of a model, and how these follow it. Rank 0 tells all others, and each answers with a code
// and a message:
//
//   {directory, sizes, dtype, ...}   read your part            {fingerprint} of what all have
//   {shape, fraction}                how many blocks fit?      {num_blocks}
//   {shape, ops}                     make your part            nothing more
//   calls                            executor/rank_leader.h    no answers
//                                    (on GPUs: gpu_ranks.h)
//   an empty message                 give it up, in place of any of these, or at the model's end
//   "goodbye"                        end
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "artifact/checkpoint.h"
#include "comm/rendezvous.h"
#include "executor/local_backend.h"
#include "inflight/open.h"
#include "model/engine.h"
#include "tensor/device.h"

namespace inflight {

// A launcher's group is shared by all models that its leader loads, one at a time; in orchestrator
// mode each model has one of its own.
class RankProcesses : public std::enable_shared_from_this<RankProcesses> {
 public:
  // `group` is whole; rank 0 is the leader. `local_rank` of this host's ranks has the GPU of that
  // place.
  explicit RankProcesses(std::unique_ptr<comm::Group> group, int ranks_of_this_host,
                         int local_rank = 0)
      : group_(std::move(group)),
        ranks_of_this_host_(ranks_of_this_host),
        local_rank_(local_rank) {}

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  // Why the group is over; OK while it is not.
  Status status() const { return group_->status(); }

  // Of ranks above 0: does what the leader says, with models opened as `options` say where the
  // leader does not. Returns OK when the leader has said goodbye, else why the group is over:
  // kUnavailable where it has not 2 minutes after `is_asked_to_stop` was true.
  Status Follow(const OpenOptions& options, const std::function<bool()>& is_asked_to_stop);

  // Of the leader, at its end: the others end without an error. No model is loaded.
  void SayGoodbye();
  // What goes when this does, while the group is still there.
  void Keep(std::shared_ptr<void> with_it) { kept_ = std::move(with_it); }

  // A model that the leader is loading, or has loaded. What has not become a backend is given up
  // when the Load goes.
  class Load;
  // Of the leader: all others begin to read their parts of the model in `dir`.
  // kFailedPrecondition where `ranks`, those of the model, are others than there are processes, or
  // another model keeps them: one that is being unloaded is waited for, some seconds.
  Result<std::unique_ptr<Load>> BeginLoad(const std::filesystem::path& dir,
                                          const OpenOptions& options,
                                          const artifact::RankMapping& ranks);

 private:
  friend class Load;
  class Follower;
  class Followers;

  // The others forget the model that they are loading, or run.
  void GiveUpModel();

  std::unique_ptr<comm::Group> group_;
  const int ranks_of_this_host_;
  const int local_rank_;
  std::mutex mutex_;
  std::condition_variable are_free_;  // the ranks, once no model has them
  std::string loaded_;          // the directory of the model that has the ranks; empty: none has
  std::shared_ptr<void> kept_;  // the first to go
};

class RankProcesses::Load {
 public:
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // When the others have read their parts: the leader's backend, of its own part. Errors as of
  // CreateLocalBackend, and those of other ranks with their numbers.
  Result<executor::LocalBackend> CreateBackend(const std::shared_ptr<const model::Engine>& engine,
                                               Device& device, const ExecutorOptions& options,
                                               const std::string& force_ops,
                                               const executor::DraftWeights& draft);

 private:
  friend class RankProcesses;
  explicit Load(std::shared_ptr<RankProcesses> processes) : processes_(std::move(processes)) {}
  Status Tell(const std::string& message);
  Status CheckFiles();  // of the others, who have read their parts
  Result<std::vector<nlohmann::json>> Answers();
  Result<executor::RankMembership> Start(const model::RankPart& part,
                                         const executor::MemoryPlan& plan, const std::string& ops);

  std::shared_ptr<RankProcesses> processes_;  // null: a backend has it
  std::filesystem::path dir_;
  bool is_awaited_ = false;  // the others have not answered what they were told last
};

}  // namespace inflight
