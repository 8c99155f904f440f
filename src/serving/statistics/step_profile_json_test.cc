// SPDX-License-Identifier: Apache-2.0
// Members and phases ("M", "X", "i") are those of Chromium's "Trace Event Format".
#include "serving/statistics/step_profile_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace inflight::serving {
namespace {

using Json = nlohmann::json;

// 1 ms into the capture: admit to 1.5 us, launch to 3.25 us, collect to 4 us.
TurnProfile SmallTurn() {
  TurnProfile turn = {
      .begin_ns = 1'001'000,
      .launched = {.number = 7, .num_rows = 2, .num_tokens = 9, .num_prompt_tokens = 8},
      .collected = {.number = 6, .num_rows = 1, .num_tokens = 1, .num_prompt_tokens = 0},
      .num_tokens_generated = 1,
      .num_active_requests = 2,
      .num_queued_requests = 3,
      .kv_blocks_used = 4,
      .num_phases = 3};
  turn.phases = {TurnPhase::kAdmit, TurnPhase::kLaunch, TurnPhase::kCollect};
  turn.ends_ns = {1'002'500, 1'004'250, 1'005'000};
  return turn;
}

ProfileTrace Small() {
  return {.begin_ns = 1000,
          .end_ns = 2'001'000,
          .begin_epoch_ms = 1'700'000'000'123,
          .loops = {{.model = "m",
                     .version = "1",
                     .device = "cuda:0",
                     .kv_blocks_max = 99,
                     .steps = {.turns = {SmallTurn()}}}}};
}

TEST(StepProfileJson, ATurnIsAnEventThatItsPhasesFill) {
  const Json trace = Json::parse(ProfileJson(Small()));
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  const Json& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0].at("ph"), "M");
  EXPECT_EQ(events[0].at("name"), "process_name");
  EXPECT_TRUE(events[0].at("args").at("name").get<std::string>().starts_with("inflight "));
  EXPECT_EQ(events[1], Json::parse(R"({"name":"thread_name","ph":"M","pid":1,"tid":1,)"
                                   R"("args":{"name":"m 1"}})"));
  EXPECT_EQ(events[2],
            Json::parse(R"({"name":"turn","cat":"step","ph":"X","ts":1000.0,"dur":4.0,"pid":1,)"
                        R"("tid":1,"args":{"active_requests":2,"queued_requests":3,)"
                        R"("kv_blocks_used":4}})"));
  EXPECT_EQ(events[3], Json::parse(R"({"name":"admit","cat":"step","ph":"X","ts":1000.0,)"
                                   R"("dur":1.5,"pid":1,"tid":1})"));
  EXPECT_EQ(events[4], Json::parse(R"({"name":"launch","cat":"step","ph":"X","ts":1001.5,)"
                                   R"("dur":1.75,"pid":1,"tid":1,"args":{"step":7,"rows":2,)"
                                   R"("tokens":9,"prompt_tokens":8}})"));
  EXPECT_EQ(events[5], Json::parse(R"({"name":"collect","cat":"step","ph":"X","ts":1003.25,)"
                                   R"("dur":0.75,"pid":1,"tid":1,"args":{"step":6,"rows":1,)"
                                   R"("tokens":1,"prompt_tokens":0,"tokens_generated":1}})"));
}

TEST(StepProfileJson, SaysWhatTheCaptureWasTakenOn) {
  const Json other = Json::parse(ProfileJson(Small())).at("otherData");
  EXPECT_FALSE(other.at("version").get<std::string>().empty());
  EXPECT_GT(other.at("cores").get<int>(), 0);
  EXPECT_EQ(other.at("captured_at_ms"), 1'700'000'000'123);
  EXPECT_EQ(other.at("duration_ms"), 2.0);
  EXPECT_EQ(other.at("ended_by"), "duration");
  EXPECT_EQ(other.at("is_cut"), false);
  EXPECT_EQ(other.at("models"),
            Json::parse(R"([{"tid":1,"model":"m","version":"1","device":"cuda:0",)"
                        R"("kv_blocks_max":99,"turns":1,"lost_turns":0}])"));
}

TEST(StepProfileJson, ACutIsAnEventBehindTheLastTurn) {
  ProfileTrace trace = Small();
  trace.is_whole = false;
  trace.loops[0].steps.num_lost_turns = 12;
  trace.loops[0].steps.computes_in_launch = true;
  trace.loops.push_back({.model = "idle", .version = "2", .device = "cpu"});
  const Json json = Json::parse(ProfileJson(trace));
  const Json& events = json.at("traceEvents");
  ASSERT_EQ(events.size(), 8U);
  EXPECT_EQ(events[4].at("name"), "forward");
  EXPECT_EQ(events[6], Json::parse(R"({"name":"no room for more turns","ph":"i","s":"t",)"
                                   R"("ts":1004.0,"pid":1,"tid":1,"args":{"lost_turns":12}})"));
  EXPECT_EQ(events[7].at("args").at("name"), "idle 2");
  EXPECT_EQ(json.at("otherData").at("is_cut"), true);
  EXPECT_EQ(json.at("otherData").at("ended_by"), "exit");
}

// With numbers and names that take as many characters as any.
TEST(StepProfileJson, ItIsNoLongerThanWhatIsChargedForIt) {
  constexpr int64_t kLong = std::numeric_limits<int64_t>::min() / 2 + 1;
  constexpr int kLongInt = std::numeric_limits<int>::min();
  const TurnProfile::Step step = {
      .number = kLong, .num_rows = kLongInt, .num_tokens = kLongInt, .num_prompt_tokens = kLongInt};
  TurnProfile turn = {.begin_ns = kLong,
                      .launched = step,
                      .collected = step,
                      .num_tokens_generated = kLong,
                      .device_ns = kLong,
                      .num_active_requests = kLongInt,
                      .num_queued_requests = kLongInt,
                      .kv_blocks_used = kLong,
                      .num_phases = TurnProfile::kMaxPhases};
  turn.phases.fill(TurnPhase::kStatistics);
  turn.phases[0] = TurnPhase::kLaunch;
  turn.phases[1] = TurnPhase::kCollect;
  turn.ends_ns.fill(kLong + 12'345'678'901'234'567);
  ProfileTrace trace = {.begin_ns = 1, .end_ns = kLong, .begin_epoch_ms = kLong};
  const std::string name(300, '\x01');
  for (int i = 0; i < 3; ++i) {
    trace.loops.push_back({.model = name, .version = name, .device = "cuda:2147483647"});
    trace.loops.back().kv_blocks_max = kLong;
    trace.loops.back().steps = {.turns = {turn, turn}, .num_lost_turns = kLong * -1};
  }
  const std::string text = ProfileJson(trace);
  EXPECT_LE(text.size(), MaxFrameJsonBytes(trace) + 6 * kMaxTurnJsonBytes);
  trace.loops.pop_back();
  const std::string less = ProfileJson(trace);
  for (LoopProfile& loop : trace.loops) loop.steps.turns.pop_back();
  EXPECT_LE(less.size() - ProfileJson(trace).size(), 2 * kMaxTurnJsonBytes);
  for (LoopProfile& loop : trace.loops) loop.steps.turns.clear();
  EXPECT_LE(ProfileJson(trace).size(), MaxFrameJsonBytes(trace));
}

}  // namespace
}  // namespace inflight::serving
