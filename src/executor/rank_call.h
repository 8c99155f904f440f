// SPDX-License-Identifier: Apache-2.0
// What the leader of ranks on GPUs has each of the others do. Ranks of its process are handed what
// a call points to; to those of other processes it goes as bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "executor/adapter_cache.h"
#include "executor/cuda_backend.h"
#include "executor/drawn_token.h"
#include "executor/text_guesses.h"

namespace inflight::executor {

struct RankCall {
  enum class Kind : uint8_t {
    kWarmUp,
    kSetupSlot,
    kReleaseSlot,
    kLaunch,
    kLateInputs,
    kCollect,
    kAwaitSteps,
    kTakeAdapterMemory,
    kWriteAdapter,
    kJoinStages,
    kFollowBeams,
    kDraft,
  };
  Kind kind = Kind::kAwaitSteps;
  const SlotSetup* setup = nullptr;      // of kSetupSlot
  const StepPlan* plan = nullptr;        // of kLaunch and kDraft
  const LateInputs* inputs = nullptr;    // of kLateInputs
  const AdapterCopy* adapter = nullptr;  // of kWriteAdapter
  Ticket ticket = 0;                     // of kLateInputs and kCollect
  SlotId slot = 0;                       // of kReleaseSlot
  const BeamMove* move = nullptr;        // of kFollowBeams
  Guesses guesses = {};                  // of kLaunch, where the leader knows drafts
  // Of kCollect, where nothing else brings it to the stages before the last: what the step drew.
  std::span<const DrawnToken> drawn = {};
};

// Whether the leader waits for what becomes of it.
bool IsAnswered(RankCall::Kind kind);

// A rank that is not the leader's, or several. The first error ends them: nothing is done any more.
class FollowerRanks {
 public:
  virtual ~FollowerRanks() = default;
  virtual void Tell(const RankCall& call) = 0;  // done in that order
  virtual Status WaitForAll() = 0;              // that is answered; the first error
  virtual Status status() = 0;
  virtual int64_t gpu_memory_bytes() const = 0;  // of all of them
  virtual int size() const = 0;
  // As Backend's, of ranks that are threads.
  virtual Result<ReleasableParts> releasable() const {
    return Status(StatusCode::kUnimplemented,
                  "sleep: ranks that are processes do not sleep; run them as threads of one "
                  "process, on GPUs of one host");
  }
  // Beside what the steps' thread tells, from any thread; returns when it is done.
  virtual Status DoNow(const RankCall& call) = 0;
};

Status Do(const RankCall& call, CudaRank& rank);

// Calls as bytes, each with a hash over all so far. `setup` and its request are sent without what
// they point to but bias, prompt table and draft logits.
class RankCallWriter {
 public:
  std::string_view Write(const RankCall& call);  // valid until the next

 private:
  std::string message_;
  uint64_t told_hash_ = 0;
};
// kUnimplemented names what of a request is sent to no other process.
Status CheckIsSent(const Request& request);

// A rank of a leader of another process.
// Threads: one at a time.
class CalledRank {
 public:
  explicit CalledRank(std::unique_ptr<CudaRank> rank) : rank_(std::move(rank)) {}

  // Does what a message says. kDataLoss where it is no call, or not what the leader told behind all
  // that came before.
  Status Do(std::string_view message, RankCall::Kind* kind);
  int64_t gpu_memory_bytes() const { return rank_->info().gpu_memory_bytes; }

 private:
  std::unique_ptr<CudaRank> rank_;
  uint64_t heard_hash_ = 0;
  StepPlan plan_;
};

}  // namespace inflight::executor
