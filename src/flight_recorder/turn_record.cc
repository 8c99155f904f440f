// SPDX-License-Identifier: Apache-2.0
#include "flight_recorder/turn_record.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "base/byte_fields.h"
#include "executor/request_fields.h"

namespace inflight::flight_recorder {
namespace {

using executor::VisitIds;
using executor::VisitRequest;

enum Flags : uint8_t {
  kCollected = 1,
  kIdle = 2,
  kCancelsAll = 4,
  kFault = 8,
  kPlan = 16,
  kHolds = 32
};

constexpr uint8_t kLastReason = static_cast<uint8_t>(FinishReason::kCancelled);

uint8_t LacksOf(const executor::ActiveRequest& request) {
  const Request& params = request.params;
  unsigned lacks = 0;
  if (params.guide != nullptr) lacks |= kLacksGuide;
  if (params.prompt_table != nullptr) lacks |= kLacksPromptTable;
  if (params.bad_texts != nullptr) lacks |= kLacksBadTexts;
  if (params.embedding_bias != nullptr) lacks |= kLacksBias;
  if (params.draft_logits != nullptr) lacks |= kLacksDraftLogits;
  if (request.adapter != nullptr) lacks |= kLacksAdapter;
  return static_cast<uint8_t>(lacks);
}

uint64_t HashOfIds(const std::vector<TokenId>& ids, size_t first, uint64_t seed) {
  return XXH3_64bits_withSeed(ids.data() + first, (ids.size() - first) * sizeof(TokenId), seed);
}

template <typename T, size_t kSize>
uint64_t HashOfArray(const std::array<T, kSize>& array, int32_t count, uint64_t seed) {
  return XXH3_64bits_withSeed(array.data(), static_cast<size_t>(count) * sizeof(T), seed);
}

constexpr uint64_t kMostNs = uint64_t{1} << 62;  // since the machine's start

Status BadTime(uint64_t ns) {
  return DataLoss("a turn's record has the time " + std::to_string(ns) +
                  " ns, must be in [0, 2^62]");
}

Status BadTurn(const char* what) {
  return DataLoss(std::string("a turn's record ends within its ") + what);
}

void AppendHolds(const std::vector<executor::HoldNews>& holds, ByteWriter& bytes) {
  bytes.Count(holds.size());
  for (const executor::HoldNews& hold : holds) {
    bytes.Count(hold.id);
    bytes.Field(static_cast<uint8_t>(hold.is_held));
  }
}

void ParseHolds(ByteReader& bytes, std::vector<executor::HoldNews>* holds) {
  for (size_t n = bytes.NumThings(2); n > 0 && bytes.ok(); --n) {
    const RequestId id = bytes.Count();
    uint8_t is_held = 0;
    bytes.Field(is_held);
    holds->push_back({.id = id, .is_held = is_held != 0});
  }
}

void AppendPlan(const PlanRecord& plan, ByteWriter& bytes) {
  bytes.Count(plan.step);
  bytes.Count(plan.num_decode_rows);
  bytes.Count(plan.num_tokens);
  bytes.Count(plan.num_paused);
  bytes.Field(plan.hash);
  bytes.Count(plan.rows.size());
  for (const PlannedRow& row : plan.rows) {
    bytes.Count(row.request);
    bytes.Count(row.num_tokens);
  }
}

void ParsePlan(ByteReader& bytes, PlanRecord* plan) {
  plan->step = bytes.Count();
  plan->num_decode_rows = bytes.Count32();
  plan->num_tokens = bytes.Count32();
  plan->num_paused = bytes.Count32();
  bytes.Field(plan->hash);
  for (size_t n = bytes.NumThings(2); n > 0 && bytes.ok(); --n) {
    const RequestId request = bytes.Count();
    plan->rows.push_back({.request = request, .num_tokens = bytes.Count32()});
  }
}

}  // namespace

uint64_t HashOf(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

void TurnRecord::Clear() {
  has_collected = is_idle = cancels_all = false;
  times.clear();
  num_arrivals = 0;
  arrivals.clear();
  cancels.clear();
  holds.clear();
  plan.step = 0;
  plan.rows.clear();
  ends.clear();
  fault.clear();
}

void AppendTurn(const TurnRecord& turn, std::string* out) {
  ByteWriter bytes(out);
  bytes.Count(turn.number);
  unsigned flags = 0;
  if (turn.has_collected) flags |= kCollected;
  if (turn.is_idle) flags |= kIdle;
  if (turn.cancels_all) flags |= kCancelsAll;
  if (!turn.fault.empty()) flags |= kFault;
  if (turn.plan.step != 0) flags |= kPlan;
  if (!turn.holds.empty()) flags |= kHolds;
  bytes.Field(static_cast<uint8_t>(flags));
  bytes.Count(turn.times.size());
  int64_t before_ns = 0;
  for (const int64_t ns : turn.times)
    bytes.Count(static_cast<uint64_t>(ns) - static_cast<uint64_t>(std::exchange(before_ns, ns)));
  bytes.Count(turn.num_arrivals);
  bytes.Count(turn.arrivals.size());
  bytes.Raw(turn.arrivals.data(), turn.arrivals.size());
  bytes.Count(turn.cancels.size());
  for (const RequestId id : turn.cancels) bytes.Count(id);
  if (!turn.holds.empty()) AppendHolds(turn.holds, bytes);
  if (turn.plan.step != 0) AppendPlan(turn.plan, bytes);
  bytes.Count(turn.ends.size());
  for (const EndRecord& end : turn.ends) {
    bytes.Count(end.request);
    bytes.Count(end.sequence);
    bytes.Field(static_cast<uint8_t>(end.reason));
    bytes.Count(end.num_tokens);
    bytes.Field(end.hash);
  }
  if (turn.fault.empty()) return;
  bytes.Count(turn.fault.size());
  bytes.Raw(turn.fault.data(), turn.fault.size());
}

Status ParseTurn(std::string_view text, TurnRecord* turn) {
  turn->Clear();
  ByteReader bytes(text);
  turn->number = bytes.Count();
  uint8_t flags = 0;
  bytes.Field(flags);
  turn->has_collected = (flags & kCollected) != 0;
  turn->is_idle = (flags & kIdle) != 0;
  turn->cancels_all = (flags & kCancelsAll) != 0;
  uint64_t ns = 0;
  for (size_t n = bytes.NumThings(1); n > 0 && bytes.ok(); --n) {
    ns += bytes.Count();
    if (ns > kMostNs) return BadTime(ns);
    turn->times.push_back(static_cast<int64_t>(ns));
  }
  if (!bytes.ok() || turn->times.empty()) return BadTurn("times");
  turn->num_arrivals = bytes.Count32();
  turn->arrivals = bytes.Text(bytes.NumThings(1));
  if (!bytes.ok()) return BadTurn("requests");
  for (size_t n = bytes.NumThings(1); n > 0 && bytes.ok(); --n)
    turn->cancels.push_back(bytes.Count());
  if (!bytes.ok()) return BadTurn("cancels");
  if ((flags & kHolds) != 0) ParseHolds(bytes, &turn->holds);
  if (!bytes.ok()) return BadTurn("holds");
  if ((flags & kPlan) != 0) ParsePlan(bytes, &turn->plan);
  if (!bytes.ok()) return BadTurn("plan");
  constexpr size_t kLeastEndBytes = 12;
  for (size_t n = bytes.NumThings(kLeastEndBytes); n > 0 && bytes.ok(); --n) {
    EndRecord& end = turn->ends.emplace_back();
    end.request = bytes.Count();
    end.sequence = bytes.Count32();
    uint8_t reason = 0;
    bytes.Field(reason);
    if (reason > kLastReason)
      return DataLoss("a turn's record has finish reason " + std::to_string(reason) +
                      ", must be in [0, " + std::to_string(kLastReason) + "]");
    end.reason = static_cast<FinishReason>(reason);
    end.num_tokens = bytes.Count32();
    bytes.Field(end.hash);
  }
  if (!bytes.ok()) return BadTurn("ends");
  if ((flags & kFault) != 0) turn->fault = bytes.Text(bytes.NumThings(1));
  if (!bytes.ok()) return BadTurn("fault");
  if (bytes.left() > 0) return DataLoss("a turn's record has more bytes than it says");
  return Status::Ok();
}

const char* LackName(uint8_t lacks) {
  if ((lacks & kLacksGuide) != 0) return "guide";
  if ((lacks & kLacksPromptTable) != 0) return "prompt table";
  if ((lacks & kLacksBadTexts) != 0) return "list of bad texts";
  if ((lacks & kLacksBias) != 0) return "bias of logits";
  if ((lacks & kLacksDraftLogits) != 0) return "list of draft logits";
  return "adapter (LoRA)";
}

void AppendArrival(const executor::ActiveRequest& request, bool keeps_ids, std::string* out) {
  ByteWriter bytes(out);
  const Request& params = request.params;
  bytes.Count(request.id);
  bytes.Field(request.times.enqueued_ns);
  bytes.Field(LacksOf(request));
  bytes.Field(static_cast<uint8_t>(keeps_ids));
  if (keeps_ids) {
    VisitIds(bytes, params);
  } else {
    bytes.Count(params.input_ids.size());
    bytes.Field(HashOfIds(params.input_ids, 0, 0));
  }
  VisitRequest(bytes, params);
}

Status ParseArrivals(std::string_view text, uint32_t count, std::vector<Arrival>* arrivals) {
  arrivals->clear();
  ByteReader bytes(text);
  for (uint32_t i = 0; i < count; ++i) {
    Arrival& arrival = arrivals->emplace_back();
    arrival.id = bytes.Count();
    bytes.Field(arrival.enqueued_ns);
    bytes.Field(arrival.lacks);
    bytes.Field(arrival.has_ids);
    if (arrival.has_ids) {
      VisitIds(bytes, arrival.request);
      arrival.num_prompt_ids = static_cast<uint32_t>(arrival.request.input_ids.size());
      arrival.prompt_hash = HashOfIds(arrival.request.input_ids, 0, 0);
    } else {
      arrival.num_prompt_ids = bytes.Count32();
      bytes.Field(arrival.prompt_hash);
    }
    VisitRequest(bytes, arrival.request);
    if (const auto ns = static_cast<uint64_t>(arrival.enqueued_ns); ns > kMostNs)
      return BadTime(ns);
    if (!bytes.ok())
      return DataLoss("a turn's record ends within its request " + std::to_string(i + 1) + " of " +
                      std::to_string(count));
  }
  if (bytes.left() > 0) return DataLoss("a turn's record has more bytes of requests than it says");
  return Status::Ok();
}

PlanRecord& SetPlan(const scheduler::StepPlan& plan,
                    std::span<scheduler::SequenceState* const> rows, int num_paused,
                    PlanRecord* record) {
  record->step = static_cast<uint64_t>(plan.step_id);
  record->num_decode_rows = static_cast<uint32_t>(plan.num_decode_rows);
  record->num_tokens = static_cast<uint32_t>(plan.num_tokens);
  record->num_paused = static_cast<uint32_t>(num_paused);
  uint64_t hash = HashOfArray(plan.rows, plan.num_rows, 0);
  hash = HashOfArray(plan.updates, plan.num_updates, hash);
  hash = HashOfArray(plan.block_ids, plan.num_block_ids, hash);
  record->hash = HashOfArray(plan.copies, plan.num_copies, hash);
  record->rows.clear();
  for (int r = 0; r < plan.num_rows; ++r) {
    const auto i = static_cast<size_t>(r);
    const auto& sequence = static_cast<const executor::Sequence&>(*rows[i]);
    record->rows.push_back({.request = sequence.request->id,
                            .num_tokens = static_cast<uint32_t>(plan.rows[i].num_query_tokens)});
  }
  return *record;
}

EndRecord EndOf(const executor::Sequence& sequence, const executor::StreamEvent& event) {
  EndRecord end{.request = sequence.request->id,
                .sequence = static_cast<uint32_t>(sequence.index),
                .reason = event.finish_reason};
  const auto add = [&end](const std::vector<TokenId>& ids, size_t first, float cum_log_prob) {
    first = std::min(first, ids.size());
    end.num_tokens += static_cast<uint32_t>(ids.size() - first);
    end.hash = HashOfIds(ids, first, end.hash);
    end.hash = XXH3_64bits_withSeed(&cum_log_prob, sizeof(cum_log_prob), end.hash);
  };
  if (sequence.num_beams == 1) {
    add(sequence.known, static_cast<size_t>(sequence.num_prompt_tokens), event.cum_log_prob);
  } else if (event.beams != nullptr) {
    for (const Beam& beam : *event.beams) add(beam.output_ids, 0, beam.cum_log_prob);
  }
  return end;
}

void TurnBuilder::OnTime(int64_t now_ns) { turn_.times.push_back(now_ns); }

void TurnBuilder::OnArrival(const executor::ActiveRequest& request) {
  ++turn_.num_arrivals;
  AppendArrival(request, keeps_ids_, &turn_.arrivals);
}

void TurnBuilder::OnTurnEnd(bool has_collected, bool is_idle) {
  turn_.has_collected = has_collected;
  turn_.is_idle = is_idle;
  if (turn_.has_news()) {
    ++turn_.number;
    TakeTurn(turn_);
  }
  turn_.Clear();
}

}  // namespace inflight::flight_recorder
