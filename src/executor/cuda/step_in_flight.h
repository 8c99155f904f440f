// SPDX-License-Identifier: Apache-2.0
// What the host keeps of the slots of a model on a GPU, and of steps that were launched and are not
// collected.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "decoding/stop.h"
#include "executor/backend.h"
#include "executor/cuda/logits_to_host.h"
#include "executor/cuda/step_graphs.h"
#include "executor/cuda/step_shape.h"

namespace inflight::executor::cuda {

struct SlotOnHost {
  decoding::StopCriteria stop;
  float cum_log_prob = 0;
  int num_tokens = 0;  // known to the host
  int num_drafts = 0;  // of the client, behind them
  bool is_greedy = true;
  bool device_reads_beams = false;  // of a search: the rule needs each beam's tokens
};

struct RowInFlight {
  SlotId slot = 0;
  int logit = -1;
  bool ends_prompt = false;
  bool is_read = false;  // its logits, by the host
  bool host_draws = false;
  bool is_beam = false;
  // Once the step has ended.
  int num_yielded = 0;
  uint64_t accepted = 0;  // where drafts are a tree: bit i: node i was, and its token counts
  FinishReason finish_reason = FinishReason::kNotFinished;

  // Which row of the step's logits the i-th token that it yielded was drawn from.
  int LogitOf(int i) const {
    if (accepted == 0 || i == 0) return logit + i;
    uint64_t left = accepted;
    for (int skipped = 1; skipped < i; ++skipped) left &= left - 1;
    return logit + 1 + std::countr_zero(left);
  }
  // Of `num_drawn` tokens: how far behind the i-th's place its key and value were computed
  // (DrawnToken). The last one has none yet.
  uint16_t KvShiftOf(int i, int num_drawn) const {
    return i + 1 < num_drawn ? static_cast<uint16_t>(LogitOf(i + 1) - logit - 1 - i) : uint16_t{0};
  }
  // Those behind the last token that counts are no part of the sequence.
  void CutAccepted() {
    uint64_t cut = accepted;
    for (int kept = 1; kept < num_yielded; ++kept) cut &= cut - 1;
    accepted &= ~cut;
  }
};

struct StepInFlight {
  Ticket ticket = 0;
  uint64_t step = 0;  // counted from 0 since the start, those of the warm-up too
  int num_tokens = 0;
  int64_t launch_ns = 0;
  std::vector<RowInFlight> rows;
  LogitsToHost::Step* to_host = nullptr;  // null: the host reads none of its logits
  bool waits = false;                     // it samples once it has late inputs, as follows
  StepShape sampled = {};
  StepVariant variant = StepVariant::kGreedy;
};

}  // namespace inflight::executor::cuda
