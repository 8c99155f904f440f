// SPDX-License-Identifier: Apache-2.0
// A model on one GPU of this process, or a rank of one on several. Depth 2, of stages their number:
// Launch enqueues, and the host plans the next step while this one is computed. Builds without CUDA
// link cuda_backend_absent.cc, which has none.
//
// Steps of decode rows alone and those of a few short prompts are CUDA graphs, one per size and
// kind of sampling (docs/cuda.md, "Steps"); others are launched kernel by kernel. Nothing is
// allocated and nothing waits between the first step and the last: tokens come back through mapped
// memory.
//
// For debugging, read when the backend is made:
//   INFLIGHT_CUDA_GRAPHS=0           every step kernel by kernel; `all` records every graph of
//                                    loading, however long it takes
//   INFLIGHT_CUDA_TIMES=1            logs, at the end, where the time of steps went
//   INFLIGHT_CUDA_ACCEPT_DRAFTS=70   accepts so many of 100 drafts, whatever they are, and has some
//                                    in each step that may have them: for measuring
//   INFLIGHT_CUDA_COLLECTIVES=nccl   ranks add up by NCCL also where they reach each other's memory
//                                    (`told`: stages are told what is drawn, as with NCCL)
//   INFLIGHT_CUDA_SHARED_GPU=1       several ranks may have one GPU (ops/cuda/peers.h)
//   INFLIGHT_CUDA_WATCHDOG_MS=1000   how long a step may take; default 30000
//   INFLIGHT_CUDA_FAULT=launch@7     step 7 fails: `launch` refused by the runtime, `trap` a kernel
//                                    that traps, `stuck` one that keeps the GPU busy for a minute
#pragma once

#include <memory>
#include <span>

#include "comm/communicator.h"
#include "executor/backend.h"
#include "executor/beam_move.h"
#include "executor/drawn_token.h"
#include "executor/memory_plan.h"
#include "executor/text_guesses.h"
#include "model/eagle_head.h"
#include "model/engine.h"
#include "ops/backend.h"
#include "tensor/device.h"

namespace inflight::executor {

namespace cuda {
struct StageMail;
}

inline constexpr int kCudaDepth = 2;      // at least
inline constexpr int kMaxCudaStages = 8;  // of a model on GPUs

// What proposes drafts beside the model, one or none.
struct DraftWeights {
  std::shared_ptr<const model::Engine> model = nullptr;     // of DraftSource::kModel
  std::shared_ptr<const model::EagleHead> eagle = nullptr;  // of DraftSource::kEagle
};

// Takes what `plan` lists from the device's ledger, runs each kind of step once and records the
// graphs. `choice` is of the kernels (ops/backend.h). `draft_ops` fit what `draft` has, if
// anything. kUnimplemented in builds without CUDA.
Result<std::unique_ptr<Backend>> CreateCudaBackend(std::shared_ptr<const model::Engine> engine,
                                                   Device& device, const MemoryPlan& plan,
                                                   const ops::OpTable& ops, ops::OpChoice choice,
                                                   DraftWeights draft,
                                                   const ops::OpTable& draft_ops);

// A rank of a model on several GPUs: a backend like others, whose steps wait for those of the other
// ranks. All take the same slots and plans in the same order and hold the same tokens. Ranks of a
// stage before the last draw none and get those that the last one drew: their Collect returns no
// results.
class CudaRank : public Backend {
 public:
  // Before WarmUp, of the first or only stage: the draft model, whole, which drafts on this rank as
  // on all of the stage.
  virtual Status LoadDrafts(std::shared_ptr<const model::Engine> engine, const ops::OpTable& ops,
                            ops::OpChoice choice, Device& device) = 0;
  // Before WarmUp, of a plan that has a tree, of the last or only stage: Medusa's heads of its
  // engine, or `eagle`. All ranks of the stage draft with `ops` alike.
  virtual Status LoadTrees(std::shared_ptr<const model::EagleHead> eagle, const ops::OpTable& ops,
                           Device& device) = 0;
  // After all ranks are loaded and before the first step, for each on a thread of its own.
  virtual Status WarmUp() = 0;
  // Returns when the steps that it launched have ended; the other ranks have to launch them too.
  virtual Status AwaitSteps() = 0;
  // Of several stages: behind the WarmUp of all ranks, in which none waited for another stage, when
  // they hand rows over. For each on a thread of its own.
  virtual Status JoinStages() { return Status::Ok(); }
  // Of searches in the step that was collected last; valid until the next Collect.
  virtual std::span<const BeamMove> moves() const { return {}; }
  // Of the last of several stages whose drafts are trees, before the step of `plan` is launched:
  // enqueues its trees, which those before it have to be told.
  virtual Status Draft(const StepPlan& /*plan*/) { return Status::Ok(); }
  // Of the last of several stages: what its texts guess of the step that is launched next, or the
  // trees that Draft has enqueued, for which it waits; valid until as many steps are launched as
  // there may be in flight. Nulls where there are neither.
  virtual Result<Guesses> Guess(const StepPlan& /*plan*/) { return Guesses(); }
  // Of a stage before it: the same, before that step is launched.
  virtual Status HearGuesses(const Guesses& /*guesses*/) { return Status::Ok(); }
  // Of the last of several stages, where nothing else tells the others (cuda/stage_mail.h): what
  // the step that was collected last drew on the device; valid until the next Collect.
  virtual std::span<const DrawnToken> drawn() const { return {}; }
  // Of a stage before it, there: what the step drew that is collected next.
  virtual Status Hear(std::span<const DrawnToken> /*drawn*/) { return Status::Ok(); }
  // Of a stage before the last: what the last one's search did; behind the Collect of its step.
  virtual Status Follow(const BeamMove& /*move*/) { return Status::Ok(); }
};
// `mail` is the rank's where there are several stages and GPUs hand over what is drawn; it outlives
// the rank.
Result<std::unique_ptr<CudaRank>> LoadCudaRank(std::shared_ptr<const model::Engine> engine,
                                               Device& device, const MemoryPlan& plan,
                                               const ops::OpTable& ops, ops::OpChoice choice,
                                               comm::RankGroups groups,
                                               const cuda::StageMail* mail = nullptr);

// Bytes of device memory that steps' inputs and the slots' tokens and block tables take. 0 in
// builds without CUDA.
uint64_t CudaStepBytes(const MemoryPlan& plan);

// What a rank takes of its GPU for the others to write to, in steps of `max_num_tokens`.
uint64_t CudaRankBytes(const model::ModelConfig& config, int max_num_tokens);

// What a stage hands to the next one of such a step.
size_t CudaStageBytes(const model::ModelConfig& config, int max_num_tokens);

// What a draft model takes of a GPU beside weights, keys and values, for a model of `limits`.
uint64_t CudaDraftBytes(const model::ModelConfig& draft, const model::EngineLimits& limits);

// What Medusa's heads, or a head of EAGLE, work in. `plan` has its tree and its slots.
uint64_t CudaMedusaBytes(const model::ModelConfig& config, const MemoryPlan& plan);
uint64_t CudaEagleBytes(const model::EagleConfig& config, const MemoryPlan& plan);

}  // namespace inflight::executor
