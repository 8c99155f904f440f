// SPDX-License-Identifier: Apache-2.0
#include "serving/statistics/step_profile_json.h"

#include <thread>

#include "inflight/version.h"
#include "json/json_writer.h"

namespace inflight::serving {
namespace {

constexpr int kProcess = 1;

std::string_view NameOfPhase(TurnPhase phase, bool computes_in_launch) {
  switch (phase) {
    case TurnPhase::kAdmit:
      return "admit";
    case TurnPhase::kPlan:
      return "plan";
    case TurnPhase::kPrepare:
      return "prepare";
    case TurnPhase::kLaunch:
      return computes_in_launch ? "forward" : "launch";
    case TurnPhase::kMasks:
      return "masks";
    case TurnPhase::kWait:
      return "wait";
    case TurnPhase::kCollect:
      return "collect";
    case TurnPhase::kRetire:
      return "retire";
    case TurnPhase::kStatistics:
      return "statistics";
    case TurnPhase::kDeliver:
      return "deliver";
  }
  return "?";
}

double Us(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

// The events of one step loop.
class LoopEvents {
 public:
  LoopEvents(int64_t begin_ns, int thread, bool computes_in_launch, json::Writer& out)
      : begin_ns_(begin_ns), thread_(thread), computes_in_launch_(computes_in_launch), out_(out) {}

  void Write(const TurnProfile& turn) {
    Begin("turn", turn.begin_ns, turn.end_ns());
    out_.Key("args").BeginObject();
    out_.Key("active_requests").Int(turn.num_active_requests);
    out_.Key("queued_requests").Int(turn.num_queued_requests);
    out_.Key("kv_blocks_used").Int(turn.kv_blocks_used);
    out_.EndObject().EndObject();
    int64_t phase_begin_ns = turn.begin_ns;
    for (size_t i = 0; i < static_cast<size_t>(turn.num_phases); ++i) {
      Begin(NameOfPhase(turn.phases[i], computes_in_launch_), phase_begin_ns, turn.ends_ns[i]);
      WriteArgs(turn.phases[i], turn);
      out_.EndObject();
      phase_begin_ns = turn.ends_ns[i];
    }
  }

  // From here on turns are missing.
  void WriteCut(int64_t at_ns, int64_t num_lost_turns) {
    out_.BeginObject();
    out_.Key("name").String("no room for more turns").Key("ph").String("i").Key("s").String("t");
    out_.Key("ts").Double(Us(at_ns - begin_ns_));
    WriteThread();
    out_.Key("args").BeginObject().Key("lost_turns").Int(num_lost_turns).EndObject().EndObject();
  }

 private:
  // A complete event, left open for its arguments.
  void Begin(std::string_view name, int64_t begin_ns, int64_t end_ns) {
    out_.BeginObject();
    out_.Key("name").String(name).Key("cat").String("step").Key("ph").String("X");
    out_.Key("ts").Double(Us(begin_ns - begin_ns_)).Key("dur").Double(Us(end_ns - begin_ns));
    WriteThread();
  }

  void WriteThread() { out_.Key("pid").Int(kProcess).Key("tid").Int(thread_); }

  void WriteArgs(TurnPhase phase, const TurnProfile& turn) {
    const bool is_launch = phase == TurnPhase::kLaunch;
    if (!is_launch && phase != TurnPhase::kCollect) return;
    const TurnProfile::Step& step = is_launch ? turn.launched : turn.collected;
    out_.Key("args").BeginObject();
    out_.Key("step").Int(step.number).Key("rows").Int(step.num_rows);
    out_.Key("tokens").Int(step.num_tokens).Key("prompt_tokens").Int(step.num_prompt_tokens);
    if (!is_launch) out_.Key("tokens_generated").Int(turn.num_tokens_generated);
    if (!is_launch && turn.device_ns != 0) out_.Key("device_us").Double(Us(turn.device_ns));
    out_.EndObject();
  }

  const int64_t begin_ns_;
  const int thread_;
  const bool computes_in_launch_;
  json::Writer& out_;
};

void WriteName(std::string_view of, int thread, std::string_view name, json::Writer& out) {
  out.BeginObject();
  out.Key("name").String(of).Key("ph").String("M").Key("pid").Int(kProcess).Key("tid").Int(thread);
  out.Key("args").BeginObject().Key("name").String(name).EndObject().EndObject();
}

void WriteOtherData(const ProfileTrace& trace, json::Writer& out) {
  bool is_cut = false;
  for (const LoopProfile& loop : trace.loops) is_cut |= loop.steps.num_lost_turns > 0;
  out.BeginObject();
  out.Key("version").String(kVersion);
  out.Key("cores").Uint(std::thread::hardware_concurrency());
  out.Key("captured_at_ms").Int(trace.begin_epoch_ms);
  out.Key("duration_ms").Double(Us(trace.end_ns - trace.begin_ns) / 1000.0);
  out.Key("ended_by").String(trace.is_whole ? "duration" : "exit");
  out.Key("is_cut").Bool(is_cut);
  out.Key("models").BeginArray();
  int thread = 0;
  for (const LoopProfile& loop : trace.loops) {
    out.BeginObject();
    out.Key("tid").Int(++thread).Key("model").String(loop.model);
    out.Key("version").String(loop.version).Key("device").String(loop.device);
    out.Key("kv_blocks_max").Int(loop.kv_blocks_max);
    out.Key("turns").Uint(loop.steps.turns.size());
    out.Key("lost_turns").Int(loop.steps.num_lost_turns);
    out.EndObject();
  }
  out.EndArray().EndObject();
}

size_t NumTurns(const ProfileTrace& trace) {
  size_t num_turns = 0;
  for (const LoopProfile& loop : trace.loops) num_turns += loop.steps.turns.size();
  return num_turns;
}

}  // namespace

size_t MaxFrameJsonBytes(const ProfileTrace& trace) {
  constexpr size_t kFrameBytes = 1024, kLoopBytes = 1024;
  constexpr size_t kNames = 2, kMaxEscape = 6;  // a byte becomes \u001F
  size_t bytes = kFrameBytes;
  for (const LoopProfile& loop : trace.loops)
    bytes += kLoopBytes + kNames * kMaxEscape * (loop.model.size() + loop.version.size());
  return bytes;
}

std::string ProfileJson(const ProfileTrace& trace) {
  std::string text;
  text.reserve(MaxFrameJsonBytes(trace) + NumTurns(trace) * kMaxTurnJsonBytes);
  json::Writer out(text);
  out.BeginObject().Key("displayTimeUnit").String("ms").Key("traceEvents").BeginArray();
  WriteName("process_name", 0, std::string("inflight ") + kVersion, out);
  int thread = 0;
  for (const LoopProfile& loop : trace.loops) {
    WriteName("thread_name", ++thread, loop.model + " " + loop.version, out);
    LoopEvents events(trace.begin_ns, thread, loop.steps.computes_in_launch, out);
    for (const TurnProfile& turn : loop.steps.turns) events.Write(turn);
    if (loop.steps.num_lost_turns > 0 && !loop.steps.turns.empty())
      events.WriteCut(loop.steps.turns.back().end_ns(), loop.steps.num_lost_turns);
  }
  out.EndArray();
  out.Key("otherData");
  WriteOtherData(trace, out);
  out.EndObject();
  return text;
}

}  // namespace inflight::serving
