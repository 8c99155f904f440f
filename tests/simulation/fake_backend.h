// SPDX-License-Identifier: Apache-2.0
// A device without a model, for tests and benches of the executor.
//
// A row with drafts yields between one token and one more than it has drafts, as the sequence's
// hash says, and leaves garbage behind those that it does not; a row with late inputs as many as
// its masks make of its drafts.
//
// It finishes steps as late as it may: a step is executed when it is collected. Each token is a
// function of the sequence's seed and of all tokens before it, so a sequence's output does not
// depend on what ran beside it; ExpectedOutput computes it alone.
//
// Of a beam search, who goes on from whom and whether it is over is a function of its seed and step
// too: beams fork and die at random.
//
// Blocks that a sliding window hides are not looked at, and may be anybody's. Copies between blocks
// and the host pool are made when the step is.
//
// It distrusts every plan: its KV blocks hold, for each position, a hash of all tokens up to there,
// and a row that would read another sequence's block, a block not written yet or one that was given
// away too early finds a wrong hash. The first violation ends in a failed Launch or Collect.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "decoding/stop.h"
#include "executor/backend.h"
#include "simulation/fake_tokens.h"

namespace inflight::testing {

struct FakeBackendOptions {
  executor::BackendInfo info;
  bool checks_plans = true;         // false: for benches, which time the executor alone
  uint64_t ready_seed = 0;          // 0: Ready is always false; else it is random
  int64_t fail_launch_of_step = 0;  // step ids; 0: never
  int64_t fail_collect_of_step = 0;
  uint64_t fail_setup_of_seed = ~0ull;  // SetupSlot refuses sequences of this seed
  ManualClock* clock = nullptr;         // advanced by each step's cost
  int64_t step_ns = 1'000'000;
  int64_t prefill_token_ns = 0;
  int64_t idle_ns = 0;  // that the device does nothing between two steps, by its own clock
  std::function<void(const executor::SlotSetup&)> on_setup;
  std::function<void(const executor::StepPlan&)> on_launch;
  // The drafts of a row with late inputs behind a sequence of `tokens`, as many or less; null: the
  // tokens that the sequence draws without masks.
  std::function<std::vector<TokenId>(std::span<const TokenId> tokens, int most)> guess;
  std::function<Status()> status;  // null: it is well
};

// A small device: 4 rows, 32 tokens a step, 16 blocks of 4 tokens, vocabulary 97.
executor::BackendInfo SmallInfo(int depth);

class FakeBackend : public executor::Backend {
 public:
  explicit FakeBackend(FakeBackendOptions options);

  const executor::BackendInfo& info() const override { return options_.info; }
  Status SetupSlot(const executor::SlotSetup& setup) override;
  Result<executor::Ticket> Launch(const executor::StepPlan& plan) override;
  Status ProvideLateInputs(executor::Ticket ticket, const executor::LateInputs& inputs) override;
  Result<std::span<const TokenId>> DraftsOf(executor::Ticket ticket,
                                            scheduler::SlotId slot) override;
  bool Ready(executor::Ticket ticket) const override;
  Status status() const override { return options_.status ? options_.status() : Status::Ok(); }
  Result<const executor::StepResult*> Collect(executor::Ticket ticket) override;
  std::vector<Beam> BestBeams(scheduler::SlotId slot, bool is_last) const override;

  int64_t num_launched() const { return last_step_id_; }
  int num_outstanding() const { return static_cast<int>(outstanding_.size()); }
  const std::string& violation() const { return violation_; }   // empty: every plan was sound
  int64_t num_wasted_rows() const { return num_wasted_rows_; }  // rows of sequences that had ended

 private:
  struct Slot {
    bool is_set_up = false;
    FinishReason ended = FinishReason::kNotFinished;
    uint64_t seed = 0;
    float cum_log_prob = 0;
    int num_kv_tokens = -1;  // -1: nothing computed yet; the first row says what was reused
    int64_t last_step_id = 0;
    decoding::StopCriteria stop;
    int num_prompt_drafts = 0;
    std::vector<TokenId> tokens;
    std::vector<uint64_t> hashes;                         // [tokens + 1]; of the first i tokens
    std::vector<std::vector<scheduler::BlockId>> tables;  // [groups][blocks]
    // Beam search.
    std::vector<scheduler::BlockId> spares;     // [groups]
    std::vector<scheduler::SlotId> beam_slots;  // of the slot of beam 0; empty without
    scheduler::SlotId first_beam_slot = -1;     // of each beam; -1 without
    int num_beam_steps = 0;
    int num_returned = 0;
  };
  struct BlockUse {
    scheduler::SlotId writer = -1, user = -1, other_user = -1;
    int64_t written = 0, used = 0, used_by_other = 0;  // step ids
  };
  struct Group {
    std::vector<uint64_t> contents;  // [(num_blocks + num_host_blocks) * block_size]
    std::vector<BlockUse> uses;      // [num_blocks]
  };
  struct Outstanding {
    int64_t step_id = 0;
    int num_prefill_tokens = 0;
    bool needs_late_inputs = false;
    std::vector<scheduler::PlanRow> rows;
    std::vector<scheduler::HostBlockCopy> copies;
    std::vector<executor::LateInputs::Mask> masks;
    std::vector<std::vector<uint32_t>> mask_bits;
    std::map<scheduler::SlotId, std::vector<TokenId>> drafts;  // that somebody asked for
  };

  bool AwaitsInputs() const {
    return !outstanding_.empty() && outstanding_.back().needs_late_inputs;
  }
  bool Violated(const std::string& what);  // false, after noting the first one
  Status Broken() const { return Internal("fake device: " + violation_); }
  bool CheckPlan(const executor::StepPlan& plan);
  bool CheckBeams(const executor::StepPlan& plan, int row_idx);
  void SetUpOne(const executor::SlotSetup& setup, scheduler::SlotId slot_id);
  void AdvanceBeams(Slot* first, int row_idx, bool is_prefill);
  bool ApplyUpdates(const executor::StepPlan& plan);
  bool CheckCopies(const executor::StepPlan& plan);
  void MakeCopies(const Outstanding& step);
  bool IsSeen(const Slot& slot, size_t group, int position, int from) const;
  int NumUncertain(const scheduler::PlanRow& row) const;
  bool CheckUse(const executor::StepPlan& plan, const scheduler::PlanRow& row);
  bool NoteUse(BlockUse* use, scheduler::SlotId slot, int64_t step_id, bool writes);
  bool CheckContents(const Slot& slot, int num_tokens, bool every_position);
  void WriteContents(const Slot& slot, int begin, int end, bool garbage);
  bool Execute(const Outstanding& step);
  bool ExecuteRow(const Outstanding& step, int row_idx);
  int Yield(const Outstanding& step, const scheduler::PlanRow& row, Slot* slot, int row_idx);
  int YieldByMasks(const Outstanding& step, const scheduler::PlanRow& row, Slot* slot, int row_idx);
  void Append(const Draw& draw, Slot* slot);
  void EndYield(const Slot& slot, int num_drafted, int row_idx);

  FakeBackendOptions options_;
  std::vector<Slot> slots_;
  std::vector<Group> groups_;
  std::vector<Outstanding> outstanding_;  // the oldest first
  std::vector<Outstanding> spare_;
  executor::StepResult result_;
  int64_t last_step_id_ = 0;
  int64_t collected_step_id_ = 0;
  int64_t num_wasted_rows_ = 0;
  mutable uint64_t ready_state_;
  std::string violation_;
};

}  // namespace inflight::testing
