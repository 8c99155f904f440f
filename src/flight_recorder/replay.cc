// SPDX-License-Identifier: Apache-2.0
#include "flight_recorder/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "executor/executor.h"
#include "executor/inbox.h"
#include "executor/step_loop.h"
#include "executor/streams.h"
#include "executor/validation.h"

namespace inflight::flight_recorder {
namespace {

using executor::Ticket;

constexpr int kMostRequests = 1 << 16;          // that wait at a time
constexpr int64_t kLongNs = 7'200'000'000'000;  // more than any delay of the queue

// What is not in the journal cannot happen: a turn reads its times, in order, and the last again.
class RecordedClock : public Clock {
 public:
  void Set(const std::vector<int64_t>& times) {
    times_ = times;
    next_ = 0;
  }
  int64_t NowNs() const override {
    if (times_.empty()) return 0;
    return next_ + 1 < times_.size() ? times_[next_++] : times_.back();
  }

 private:
  std::vector<int64_t> times_;
  mutable size_t next_ = 0;
};

// A backend whose steps are ready when they were.
class RecordedBackend : public executor::Backend {
 public:
  RecordedBackend(executor::Backend& inner, int64_t least_step_ns)
      : inner_(inner), info_(inner.info()) {
    info_.least_step_ns = least_step_ns;
  }

  const executor::BackendInfo& info() const override { return info_; }
  executor::AdapterCache* adapters() override { return inner_.adapters(); }
  Status status() const override { return inner_.status(); }
  Status SetupSlot(const executor::SlotSetup& setup) override { return inner_.SetupSlot(setup); }
  void ReleaseSlot(executor::SlotId slot) override { inner_.ReleaseSlot(slot); }
  Result<Ticket> Launch(const executor::StepPlan& plan) override { return inner_.Launch(plan); }
  Status ProvideLateInputs(Ticket ticket, const executor::LateInputs& inputs) override {
    return inner_.ProvideLateInputs(ticket, inputs);
  }
  Result<std::span<const TokenId>> DraftsOf(Ticket ticket, executor::SlotId slot) override {
    return inner_.DraftsOf(ticket, slot);
  }
  bool Ready(Ticket /*ticket*/) const override { return is_ready; }
  std::vector<Beam> BestBeams(executor::SlotId slot, bool is_last) const override {
    return inner_.BestBeams(slot, is_last);
  }
  Result<const executor::StepResult*> Collect(Ticket ticket) override {
    return inner_.Collect(ticket);
  }

  bool is_ready = false;  // the turn collects a step

 private:
  executor::Backend& inner_;
  executor::BackendInfo info_;
};

struct NoSink : ResponseSink {
  void OnResponse(Response /*response*/) override {}
};

struct LastTurn : TurnBuilder {
  LastTurn() : TurnBuilder(/*keeps_ids=*/false) {}
  void TakeTurn(const TurnRecord& taken) override { turn = taken; }
  TurnRecord turn;
};

std::string TextOfPlan(const PlanRecord& plan) {
  if (plan.step == 0) return "no step";
  return fmt::format("step {} of {} rows, {} tokens, {} of them decode rows, {} paused", plan.step,
                     plan.rows.size(), plan.num_tokens, plan.num_decode_rows, plan.num_paused);
}

std::string EndText(const EndRecord& end) {
  const char* const reason =
      end.reason == FinishReason::kNotFinished ? "error" : FinishReasonName(end.reason);
  return fmt::format("{} after {} tokens with hash {:016x}", reason, end.num_tokens, end.hash);
}

std::string ComparePlans(const PlanRecord& recorded, const PlanRecord& now) {
  if (recorded.step == now.step && recorded.rows == now.rows && recorded.hash == now.hash &&
      recorded.num_decode_rows == now.num_decode_rows && recorded.num_tokens == now.num_tokens &&
      recorded.num_paused == now.num_paused)
    return "";
  const uint64_t step = recorded.step != 0 ? recorded.step : now.step;
  const auto [was, is] = std::ranges::mismatch(recorded.rows, now.rows);
  const bool has_row = was != recorded.rows.end() || is != now.rows.end();
  std::string text = fmt::format("step {}", step);
  if (has_row) {
    const PlannedRow& row = was != recorded.rows.end() ? *was : *is;
    text += fmt::format(", request {}", row.request);
  }
  text += fmt::format(": the plan was {}, and is {}", TextOfPlan(recorded), TextOfPlan(now));
  if (has_row) {
    const auto row_text = [](const std::vector<PlannedRow>& rows, auto row) {
      return row == rows.end()
                 ? std::string("none")
                 : fmt::format("{} tokens of request {}", row->num_tokens, row->request);
    };
    return text + fmt::format("; row {} was {}, and is {}", was - recorded.rows.begin(),
                              row_text(recorded.rows, was), row_text(now.rows, is));
  }
  return text + "; its rows are the same, in other slots or blocks";
}

std::string CompareEnds(const std::vector<EndRecord>& recorded, const std::vector<EndRecord>& now,
                        uint64_t step) {
  const auto [was, is] = std::ranges::mismatch(recorded, now);
  if (was == recorded.end() && is == now.end()) return "";
  const EndRecord& end = was != recorded.end() ? *was : *is;
  const auto text = [&end](const std::vector<EndRecord>& ends) {
    const auto found = std::ranges::find_if(ends, [&end](const EndRecord& other) {
      return other.request == end.request && other.sequence == end.sequence;
    });
    return found == ends.end() ? std::string("none") : EndText(*found);
  };
  return fmt::format("step {}, request {}, sequence {}: the end was {}, and is {}", step,
                     end.request, end.sequence, text(recorded), text(now));
}

bool EndedOfItself(const EndRecord& end) {
  return end.reason == FinishReason::kEndId || end.reason == FinishReason::kStopWords ||
         end.reason == FinishReason::kLength;
}

executor::StepLoopOptions LoopOptions(const ExecutorOptions& options, const ExecutorLimits& limits,
                                      executor::LoopWatcher* watcher) {
  executor::StepLoopOptions loop = executor::LoopOptionsOf(options, limits);
  loop.iter_stats_max_iterations = 0;
  loop.watcher = watcher;
  return loop;
}

class Replayer {
 public:
  Replayer(executor::Backend& backend, const ExecutorOptions& options, const ExecutorLimits& limits,
           Journal& journal, const ReplayOptions& replay)
      : journal_(journal),
        replay_(replay),
        limits_(limits),
        is_whole_(journal.has_beginning() && !replay.alone),
        backend_(backend, journal.header().least_step_ns),
        inbox_(kMostRequests),
        streams_(/*num_threads=*/0),
        loop_(LoopOptions(options, limits, &watcher_), backend_, inbox_, streams_, clock_) {}

  ~Replayer() {
    inbox_.CancelAllAt(std::numeric_limits<int64_t>::min());
    RunUntilIdle();
  }

  Result<ReplayReport> Run() {
    if (replay_.alone) {
      RETURN_IF_ERROR(RepeatAlone(*replay_.alone));
      return std::move(report_);
    }
    RETURN_IF_ERROR(FindBegin());
    TurnRecord turn;
    while (report_.difference.empty() && report_.stopped.empty()) {
      uint64_t num_lost = 0;
      ASSIGN_OR_RETURN(const Journal::Item item, journal_.Next(&turn, &num_lost));
      if (item == Journal::Item::kEnd) break;
      if (item == Journal::Item::kGap) {
        report_.stopped =
            fmt::format("behind turn {} the journal lacks {} turns, which were not written in time",
                        last_number_, num_lost);
        break;
      }
      if (replay_.on_turn) replay_.on_turn(turn);
      RETURN_IF_ERROR(Repeat(turn));
      if (replay_.until_step && turn.plan.step >= *replay_.until_step) {
        report_.stopped = fmt::format("at step {}, as asked", turn.plan.step);
      }
    }
    report_.num_unfinished = static_cast<uint64_t>(unfinished_.size());
    if (!is_whole_ && report_.difference.empty()) {
      RunUntilIdle();
      CompareEndsById();
    }
    report_.num_pauses = static_cast<uint64_t>(loop_.stats().num_pauses);
    return std::move(report_);
  }

 private:
  Status FindBegin() {
    TurnRecord turn;
    while (!is_whole_) {
      uint64_t num_lost = 0;
      ASSIGN_OR_RETURN(const Journal::Item item, journal_.Next(&turn, &num_lost));
      if (item == Journal::Item::kEnd)
        return FailedPrecondition(
            "the journal's beginning is gone, and requests were under way all the time since: "
            "there is no place where a replay can begin; record with a larger --record-byte-size");
      if (item == Journal::Item::kGap) continue;
      ++report_.num_skipped;
      last_number_ = turn.number;
      if (turn.is_idle) break;
    }
    return Status::Ok();
  }

  Status RepeatAlone(RequestId id) {
    TurnRecord turn;
    std::vector<Arrival> arrivals;
    uint64_t num_lost = 0;
    while (true) {
      ASSIGN_OR_RETURN(const Journal::Item item, journal_.Next(&turn, &num_lost));
      if (item == Journal::Item::kEnd) break;
      if (item == Journal::Item::kGap) continue;
      RETURN_IF_ERROR(ParseArrivals(turn.arrivals, turn.num_arrivals, &arrivals));
      for (Arrival& arrival : arrivals) {
        if (arrival.id != id) continue;
        if (arrival.lacks != 0)
          return FailedPrecondition(fmt::format("request {} has a {}, which no journal holds", id,
                                                LackName(arrival.lacks)));
        clock_.Set({arrival.enqueued_ns});
        RETURN_IF_ERROR(Push(std::move(arrival)));
      }
      for (const EndRecord& end : turn.ends)
        if (end.request == id) NoteRecordedEnd(end);
    }
    if (ids_.empty()) return NotFound(fmt::format("the journal has no request {}", id));
    if (recorded_ends_.empty())
      return FailedPrecondition(
          fmt::format("request {} did not end of itself: there is nothing to compare", id));
    RunUntilIdle();
    CompareEndsById();
    return Status::Ok();
  }

  Status Repeat(const TurnRecord& turn) {
    if (turn.number != last_number_ + 1)
      return DataLoss(
          fmt::format("the journal has turn {} behind turn {}", turn.number, last_number_));
    last_number_ = turn.number;
    std::vector<Arrival> arrivals;
    RETURN_IF_ERROR(ParseArrivals(turn.arrivals, turn.num_arrivals, &arrivals));
    for (const Arrival& arrival : arrivals) {
      if (arrival.lacks == 0) continue;
      report_.stopped = fmt::format("before turn {}: request {} has a {}, which no journal holds",
                                    turn.number, arrival.id, LackName(arrival.lacks));
      return Status::Ok();
    }
    for (Arrival& arrival : arrivals) RETURN_IF_ERROR(Push(std::move(arrival)));
    for (const RequestId id : turn.cancels) inbox_.Cancel(id);
    if (is_whole_) {
      for (const executor::HoldNews& hold : turn.holds) inbox_.Hold(hold.id, hold.is_held);
    } else {
      CancelTimedOut(turn);
    }
    if (turn.cancels_all) inbox_.CancelAllAt(turn.times.front());
    report_.num_cancels += turn.cancels.size();
    ++report_.num_turns;
    clock_.Set(turn.times);
    backend_.is_ready = turn.has_collected;
    TakeTurn();
    Note(watcher_.turn);
    if (turn.plan.step != 0) ++report_.num_steps;
    step_ = std::max(step_, turn.plan.step);
    for (const EndRecord& end : turn.ends) {
      NoteRecordedEnd(end);
    }
    if (is_whole_) report_.difference = Compare(turn, watcher_.turn);
    return Status::Ok();
  }

  void TakeTurn() {
    watcher_.turn.Clear();
    loop_.Step();
    streams_.Pump();
  }

  Status Push(Arrival arrival) {
    if (!arrival.has_ids)
      return FailedPrecondition(fmt::format(
          "the journal has hashes of prompts alone, that of request {} is {:016x} of {} tokens: "
          "only what was recorded with --record-prompts can be repeated; --print shows the rest",
          arrival.id, arrival.prompt_hash, arrival.num_prompt_ids));
    const auto bad = [&arrival](const std::string& what) {
      return DataLoss(fmt::format("the journal's request {}: {}", arrival.id, what));
    };
    if (!is_whole_) {
      arrival.request.timeout_ms.reset();
      arrival.request.queue_timeout_us.reset();
    }
    bool was_shortened = false;
    if (const Status valid = executor::ValidateRequest(limits_, &arrival.request, &was_shortened);
        !valid.ok())
      return bad(valid.message());
    if (!ids_.emplace(arrival.id).second) return bad("there is another of this id");
    const auto num_sequences = executor::NumSequences(arrival.request);
    streams_.Open();
    if (!inbox_.Push(executor::MakeActiveRequest(arrival.id, std::move(arrival.request), sink_,
                                                 arrival.enqueued_ns))) {
      streams_.Close();
      return bad(fmt::format("more than {} requests wait", kMostRequests));
    }
    ++report_.num_requests;
    unfinished_[arrival.id] = num_sequences;
    return Status::Ok();
  }

  // Where plans are others, times say nothing: who ran out of time goes when it went.
  void CancelTimedOut(const TurnRecord& turn) {
    for (const EndRecord& end : turn.ends)
      if (end.reason == FinishReason::kTimedOut) inbox_.Cancel(end.request);
  }

  void NoteRecordedEnd(const EndRecord& end) {
    const auto found = unfinished_.find(end.request);
    if (found != unfinished_.end() && --found->second == 0) unfinished_.erase(found);
    if (is_whole_) {
      ++report_.num_ends;
    } else if (EndedOfItself(end)) {
      recorded_ends_[{end.request, end.sequence}] = end;
    }
  }

  // Of the replay.
  void Note(const TurnRecord& turn) {
    std::string bytes;
    TurnRecord outcome;
    outcome.plan = turn.plan;
    outcome.ends = turn.ends;
    AppendTurn(outcome, &bytes);
    report_.digest = HashOf(bytes, report_.digest);
    if (is_whole_) return;
    for (const EndRecord& end : turn.ends) ends_[{end.request, end.sequence}] = end;
  }

  std::string Compare(const TurnRecord& recorded, const TurnRecord& now) const {
    if (std::string plans = ComparePlans(recorded.plan, now.plan); !plans.empty()) return plans;
    if (std::string ends = CompareEnds(recorded.ends, now.ends, step_); !ends.empty()) return ends;
    if (recorded.fault != now.fault)
      return fmt::format("step {}: the device's fault was '{}', and is '{}'", step_, recorded.fault,
                         now.fault);
    if (recorded.has_collected != now.has_collected || recorded.cancels != now.cancels ||
        recorded.holds != now.holds)
      return fmt::format("step {}: turn {} collected, cancelled or held something else", step_,
                         recorded.number);
    return "";
  }

  void CompareEndsById() {
    for (const auto& [id, recorded] : recorded_ends_) {
      const auto now = ends_.find(id);
      if (now == ends_.end() || !EndedOfItself(now->second)) continue;
      ++report_.num_ends;
      if (now->second == recorded || !report_.difference.empty()) continue;
      report_.difference =
          fmt::format("request {}, sequence {}: the end was {}, and is {}", recorded.request,
                      recorded.sequence, EndText(recorded), EndText(now->second));
    }
  }

  // What the journal does not have: much later, so that nobody waits for others to come.
  void RunUntilIdle() {
    backend_.is_ready = true;
    clock_.Set({clock_.NowNs() + kLongNs});
    while (true) {
      watcher_.turn.Clear();
      const bool progressed = loop_.Step();
      streams_.Pump();
      if (!progressed) return;
      if (watcher_.turn.plan.step != 0) ++report_.num_steps;
      Note(watcher_.turn);
    }
  }

  Journal& journal_;
  const ReplayOptions& replay_;
  const ExecutorLimits limits_;
  const bool is_whole_;
  RecordedBackend backend_;
  RecordedClock clock_;
  LastTurn watcher_;
  executor::Inbox inbox_;
  executor::StreamHub streams_;
  executor::StepLoop loop_;
  const std::shared_ptr<NoSink> sink_ = std::make_shared<NoSink>();

  ReplayReport report_;
  uint64_t last_number_ = 0;
  uint64_t step_ = 0;
  std::unordered_set<RequestId> ids_;
  std::unordered_map<RequestId, int> unfinished_;  // sequences of a request
  using EndId = std::pair<RequestId, uint32_t>;
  std::map<EndId, EndRecord> recorded_ends_, ends_;  // where plans are not compared
};

}  // namespace

Result<ReplayReport> Replay(executor::Backend& backend, const ExecutorOptions& options,
                            Journal& journal, const ReplayOptions& replay) {
  const Header& header = journal.header();
  if (const std::string shape = ShapeOf(backend.info()); shape != header.shape)
    return FailedPrecondition(fmt::format(
        "the model was recorded with {}, and runs here with {}: replay it on the same kind of "
        "device with as much memory",
        header.shape, shape));
  if (!header.has_prompts)
    return FailedPrecondition(
        "the journal has hashes of prompts alone: only what was recorded with --record-prompts can "
        "be repeated; --print shows what it has");
  ASSIGN_OR_RETURN(const ExecutorLimits limits, executor::MakeLimits(backend.info(), options));
  return Replayer(backend, options, limits, journal, replay).Run();
}

}  // namespace inflight::flight_recorder
