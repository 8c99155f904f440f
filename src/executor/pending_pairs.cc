// SPDX-License-Identifier: Apache-2.0
#include "executor/pending_pairs.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace inflight::executor {

using scheduler::PlanRow;
using scheduler::SlotId;
using scheduler::StepPlan;

PendingPairs::PendingPairs(int num_slots, decoding::DraftTree tree, int ring, int max_rows,
                           bool has_window)
    : tree_(std::move(tree)), ring_(ring), max_rows_(max_rows), has_window_(has_window) {
  CHECK_LT(tree_.Depth(tree_.size()), ring);
  slots_.resize(static_cast<size_t>(num_slots));
  due_.reserve(slots_.size());
}

int PendingPairs::SetUp(SlotId slot, bool is_followed) {
  return std::exchange(slots_[static_cast<size_t>(slot)], {.is_followed = is_followed}).num_pairs;
}

std::span<const PendingPairs::OfSlot> PendingPairs::Plan(const StepPlan& plan) {
  ++num_steps_;
  const auto rows = std::span(plan.rows).first(static_cast<size_t>(plan.num_rows));
  const auto drafts = [](const PlanRow& row) {
    return row.is_prefill == 0 && row.num_draft_tokens > 0;
  };
  auto room = max_rows_ - static_cast<int>(std::ranges::count_if(rows, drafts));
  CHECK_GE(room, 0);
  bool are_due = false;
  int num_in_all = 0;
  for (const PlanRow& row : rows) {
    Slot& slot = slots_[static_cast<size_t>(row.slot)];
    slot.step = num_steps_;
    slot.is_in_pass = false;
    are_due |= has_window_ && row.is_prefill != 0 && row.first_position > 0;
    if (row.is_prefill != 0 || !slot.is_followed) continue;
    const int num_before = Before(row.slot);
    if (drafts(row)) {
      slot.is_in_pass = num_before <= std::min(kFew, room);
      if (slot.is_in_pass) room -= num_before;
      are_due |= !slot.is_in_pass;
      continue;
    }
    const int num_pairs = slot.num_pairs + MostOf(row);
    num_in_all += num_pairs;
    are_due |= num_pairs > ring_;
  }
  are_due |= num_in_all > kMostInAll;
  due_.clear();
  const auto has_left = [this](const Slot& slot) {
    return slot.num_pairs > 0 && slot.step != num_steps_;
  };
  if (!are_due && std::ranges::none_of(slots_, has_left)) return due_;
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    if (slot.num_pairs == 0 || (slot.step == num_steps_ && slot.is_in_pass)) continue;
    due_.push_back({static_cast<SlotId>(s), std::exchange(slot.num_pairs, 0)});
  }
  return due_;
}

void PendingPairs::Settle(const StepPlan& plan) {
  for (int r = 0; r < plan.num_rows; ++r) {
    const PlanRow& row = plan.rows[static_cast<size_t>(r)];
    Slot& slot = slots_[static_cast<size_t>(row.slot)];
    if (!slot.is_followed) continue;
    if (row.is_prefill != 0 || row.num_draft_tokens > 0) slot.num_pairs = 0;
    if (row.is_prefill == 0) slot.num_pairs += MostOf(row);
  }
}

}  // namespace inflight::executor
