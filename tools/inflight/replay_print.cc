// SPDX-License-Identifier: Apache-2.0
#include "replay_print.h"

#include <fmt/format.h>

#include <vector>

#include "base/status_macros.h"
#include "json/json_writer.h"

namespace inflight::tool {
namespace {

using flight_recorder::Journal;
using flight_recorder::TurnRecord;

std::string Hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

void WritePlan(const flight_recorder::PlanRecord& plan, inflight::json::Writer& writer) {
  writer.Key("step").Uint(plan.step).Key("tokens").Uint(plan.num_tokens);
  writer.Key("decode_rows").Uint(plan.num_decode_rows).Key("paused").Uint(plan.num_paused);
  writer.Key("plan_hash").String(Hex(plan.hash)).Key("rows").BeginArray();
  for (const flight_recorder::PlannedRow& row : plan.rows)
    writer.BeginArray().Uint(row.request).Uint(row.num_tokens).EndArray();
  writer.EndArray();
}

void WriteArrival(const flight_recorder::Arrival& arrival, inflight::json::Writer& writer) {
  const Request& request = arrival.request;
  writer.BeginObject().Key("request").Uint(arrival.id);
  writer.Key("enqueued_ns").Int(arrival.enqueued_ns);
  writer.Key("prompt_tokens").Uint(arrival.num_prompt_ids);
  writer.Key("prompt_hash").String(Hex(arrival.prompt_hash));
  writer.Key("max_tokens").Int(request.max_tokens).Key("streaming").Bool(request.streaming);
  writer.Key("seed").Uint(request.sampling.seed.value_or(0));
  if (arrival.lacks != 0) writer.Key("lacks").String(flight_recorder::LackName(arrival.lacks));
  if (arrival.has_ids) {
    writer.Key("prompt").BeginArray();
    for (const TokenId id : request.input_ids) writer.Int(id);
    writer.EndArray();
  }
  writer.EndObject();
}

void WriteEnd(const flight_recorder::EndRecord& end, inflight::json::Writer& writer) {
  writer.BeginObject().Key("request").Uint(end.request).Key("sequence").Uint(end.sequence);
  writer.Key("reason").String(
      end.reason == FinishReason::kNotFinished ? "error" : FinishReasonName(end.reason));
  writer.Key("tokens").Uint(end.num_tokens).Key("hash").String(Hex(end.hash)).EndObject();
}

Result<std::string> TurnLine(const TurnRecord& turn) {
  std::vector<flight_recorder::Arrival> arrivals;
  RETURN_IF_ERROR(flight_recorder::ParseArrivals(turn.arrivals, turn.num_arrivals, &arrivals));
  std::string line;
  inflight::json::Writer writer(line);
  writer.BeginObject().Key("turn").Uint(turn.number).Key("time_ns").Int(turn.times.front());
  if (!arrivals.empty()) {
    writer.Key("arrivals").BeginArray();
    for (const flight_recorder::Arrival& arrival : arrivals) WriteArrival(arrival, writer);
    writer.EndArray();
  }
  if (!turn.cancels.empty()) {
    writer.Key("cancels").BeginArray();
    for (const RequestId id : turn.cancels) writer.Uint(id);
    writer.EndArray();
  }
  if (!turn.holds.empty()) {
    writer.Key("holds").BeginArray();
    for (const executor::HoldNews& hold : turn.holds) {
      writer.BeginObject();
      writer.Key("id").Uint(hold.id);
      writer.Key("held").Bool(hold.is_held);
      writer.EndObject();
    }
    writer.EndArray();
  }
  if (turn.cancels_all) writer.Key("cancels_all").Bool(true);
  if (turn.plan.step != 0) WritePlan(turn.plan, writer);
  if (turn.has_collected) writer.Key("collected").Bool(true);
  if (!turn.ends.empty()) {
    writer.Key("ends").BeginArray();
    for (const flight_recorder::EndRecord& end : turn.ends) WriteEnd(end, writer);
    writer.EndArray();
  }
  if (!turn.fault.empty()) writer.Key("fault").String(turn.fault);
  if (turn.is_idle) writer.Key("idle").Bool(true);
  writer.EndObject();
  return line;
}

}  // namespace

std::string PlanLine(const TurnRecord& turn) {
  std::string line;
  inflight::json::Writer writer(line);
  writer.BeginObject().Key("turn").Uint(turn.number);
  WritePlan(turn.plan, writer);
  writer.EndObject();
  return line;
}

Status PrintJournal(Journal& journal) {
  fmt::print("{}\n", flight_recorder::HeaderText(journal.header()));
  TurnRecord turn;
  while (true) {
    uint64_t num_lost = 0;
    ASSIGN_OR_RETURN(const Journal::Item item, journal.Next(&turn, &num_lost));
    if (item == Journal::Item::kEnd) return Status::Ok();
    if (item == Journal::Item::kGap) {
      fmt::print("{{\"lost_turns\":{}}}\n", num_lost);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string line, TurnLine(turn));
    fmt::print("{}\n", line);
  }
}

}  // namespace inflight::tool
