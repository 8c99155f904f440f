// SPDX-License-Identifier: Apache-2.0
// A turn of a step loop as a journal has it: what came from outside, and what the loop made of it.
// The format of each is docs/replay.md, "The journal".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "executor/inbox.h"
#include "executor/loop_watcher.h"
#include "inflight/request.h"
#include "inflight/status.h"
#include "scheduler/step_plan.h"

namespace inflight::flight_recorder {

// A row of a step's plan.
struct PlannedRow {
  RequestId request = 0;
  uint32_t num_tokens = 0;
  bool operator==(const PlannedRow&) const = default;
};

struct PlanRecord {
  uint64_t step = 0;  // its id; 0: the turn launched none
  uint32_t num_decode_rows = 0;
  uint32_t num_tokens = 0;
  uint32_t num_paused = 0;  // sequences that waited to resume
  uint64_t hash = 0;        // of the whole plan: slots, blocks and copies too
  std::vector<PlannedRow> rows;
};

// The end of a sequence.
struct EndRecord {
  RequestId request = 0;
  uint32_t sequence = 0;
  FinishReason reason = FinishReason::kNotFinished;  // that: it failed
  uint32_t num_tokens = 0;                           // of its output, of all beams
  uint64_t hash = 0;                                 // of their ids and cum_log_prob
  bool operator==(const EndRecord&) const = default;
};

struct TurnRecord {
  uint64_t number = 0;  // 1, 2, ... of those in which something happened
  bool has_collected = false, is_idle = false, cancels_all = false;
  std::vector<int64_t> times;  // that it read, in order
  uint32_t num_arrivals = 0;
  std::string arrivals;  // as ParseArrivals reads them
  std::vector<RequestId> cancels;
  std::vector<executor::HoldNews> holds;
  PlanRecord plan;
  std::vector<EndRecord> ends;
  std::string fault;  // of the device; empty: none

  bool has_news() const {
    return has_collected || cancels_all || num_arrivals > 0 || !cancels.empty() || !holds.empty() ||
           plan.step != 0 || !ends.empty() || !fault.empty();
  }
  void Clear();  // all but the number; keeps its memory
};

void AppendTurn(const TurnRecord& turn, std::string* out);
// kDataLoss says which part is wrong, and then `turn` is unspecified.
Status ParseTurn(std::string_view text, TurnRecord* turn);

// What of a request no journal holds. It is not repeated.
enum Lack : uint8_t {
  kLacksGuide = 1,
  kLacksPromptTable = 2,
  kLacksBadTexts = 4,
  kLacksBias = 8,
  kLacksDraftLogits = 16,
  kLacksAdapter = 32,
};
const char* LackName(uint8_t lacks);  // of the first of them: "guide"

// A request as the step loop took it.
struct Arrival {
  RequestId id = 0;
  int64_t enqueued_ns = 0;
  uint8_t lacks = 0;  // Lack
  bool has_ids = false;
  // Without ids those of prompt, drafts and words are missing, and these are of the prompt.
  uint32_t num_prompt_ids = 0;
  uint64_t prompt_hash = 0;
  Request request;
};
void AppendArrival(const executor::ActiveRequest& request, bool keeps_ids, std::string* out);
Status ParseArrivals(std::string_view text, uint32_t count, std::vector<Arrival>* arrivals);

PlanRecord& SetPlan(const scheduler::StepPlan& plan,
                    std::span<scheduler::SequenceState* const> rows, int num_paused,
                    PlanRecord* record);
EndRecord EndOf(const executor::Sequence& sequence, const executor::StreamEvent& event);

uint64_t HashOf(std::string_view bytes, uint64_t seed = 0);

// Makes records of turns in which something happened.
class TurnBuilder : public executor::LoopWatcher {
 public:
  explicit TurnBuilder(bool keeps_ids) : keeps_ids_(keeps_ids) {}

  void OnTime(int64_t now_ns) override;
  void OnArrival(const executor::ActiveRequest& request) override;
  void OnCancel(RequestId id) override { turn_.cancels.push_back(id); }
  void OnHold(RequestId id, bool is_held) override { turn_.holds.push_back({id, is_held}); }
  void OnCancelAll() override { turn_.cancels_all = true; }
  void OnLaunch(const scheduler::StepPlan& plan, std::span<scheduler::SequenceState* const> rows,
                int num_paused) override {
    SetPlan(plan, rows, num_paused, &turn_.plan);
  }
  void OnEnd(const executor::Sequence& sequence, const executor::StreamEvent& event) override {
    turn_.ends.push_back(EndOf(sequence, event));
  }
  void OnFault(const Status& status) override { turn_.fault = status.ToString(); }
  void OnTurnEnd(bool has_collected, bool is_idle) override;

 protected:
  virtual void TakeTurn(const TurnRecord& turn) = 0;

 private:
  const bool keeps_ids_;
  TurnRecord turn_;
};

}  // namespace inflight::flight_recorder
