// SPDX-License-Identifier: Apache-2.0
// Journals of executors over the fake device, whose tokens are a function of seed and text: what
// was recorded repeats, whatever is changed in between is found, and broken files are told by name.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "base/descriptor.h"
#include "base/file.h"
#include "executor/executor.h"
#include "flight_recorder/recorder.h"
#include "flight_recorder/replay.h"
#include "simulation/fake_backend.h"

namespace inflight::flight_recorder {
namespace {

namespace fs = std::filesystem;

using inflight::testing::FakeBackend;
using inflight::testing::SmallInfo;
using ::testing::HasSubstr;

struct Silent : ResponseSink {
  void OnResponse(Response /*response*/) override {}
};

ExecutorOptions PausingOptions() {
  return {.scheduler_policy = SchedulerPolicy::kMaxUtilization, .max_queue_delay_us = 300};
}

Header HeaderOf(const executor::BackendInfo& info) {
  Header header{.owner = "fake/1", .model = "nowhere", .device = "cpu", .shape = ShapeOf(info)};
  header.open.executor = PausingOptions();
  return header;
}

class FlightRecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    file_ = folder_ / "journal";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Requests of random sizes come, some are cancelled or have little time; now and then none is
  // left.
  // With `holds` clients read in fits and starts, too.
  void RecordLoad(int num_requests, RecordOptions options, int depth = 2, bool holds = false) {
    options.file = file_;
    ManualClock clock;
    const executor::BackendInfo info = SmallInfo(depth);
    auto recorder = Record(options, HeaderOf(info));
    ASSERT_TRUE(recorder.ok()) << recorder.status().ToString();
    auto executor = executor::CreateSteppedExecutor(
        std::make_unique<FakeBackend>(
            inflight::testing::FakeBackendOptions{.info = info, .ready_seed = 5, .clock = &clock}),
        PausingOptions(), clock, *std::move(recorder));
    ASSERT_TRUE(executor.ok()) << executor.status().ToString();
    std::mt19937 random(7);
    const auto below = [&random](unsigned n) { return random() % n; };
    std::mt19937 random_holds(8);
    std::vector<RequestId> ids;
    for (int sent = 0; sent < num_requests;) {
      for (unsigned burst = below(4); burst > 0 && sent < num_requests; --burst, ++sent) {
        Request request;
        for (unsigned n = 1 + below(14); n > 0; --n)
          request.input_ids.push_back(static_cast<TokenId>(below(3)));  // alike: blocks are reused
        request.max_tokens = static_cast<int>(1 + below(20));
        request.sampling.seed = below(1000);
        request.streaming = below(2) == 0;
        if (below(8) == 0) request.timeout_ms = 5;
        if (below(8) == 0) request.sampling.num_return_sequences = 2;
        const auto id = (*executor)->Enqueue(request, std::make_shared<Silent>());
        ASSERT_TRUE(id.ok()) << id.status().ToString();
        ids.push_back(*id);
      }
      if (below(6) == 0)
        (*executor)->Cancel(ids[ids.size() - 1 - below(std::min<size_t>(4, ids.size()))]);
      if (holds && !ids.empty()) {
        const RequestId id = ids[ids.size() - 1 - random_holds() % std::min<size_t>(8, ids.size())];
        (*executor)->Hold(id, random_holds() % 2 == 0);
        if (random_holds() % 8 == 0) clock.AdvanceNs(60'000'000);
      }
      for (unsigned turns = below(sent % 50 == 0 ? 500 : 4); turns > 0; --turns) {
        clock.AdvanceNs(100'000);
        (*executor)->Step();
        (*executor)->Deliver();
      }
    }
    for (const RequestId id : ids)
      if (holds) (*executor)->Hold(id, false);
    for (int turn = 0; turn < 3000; ++turn) {
      clock.AdvanceNs(100'000);
      (*executor)->Step();
      (*executor)->Deliver();
    }
    num_pauses_ = (*executor)->stats().num_pauses;
    num_cancelled_ = (*executor)->stats().requests_cancelled;
  }

  Result<ReplayReport> ReplayIt(const ReplayOptions& options = {}, int depth = 2) const {
    auto journal = Journal::Open(file_);
    if (!journal.ok()) return journal.status();
    // Whether its steps are ready is not asked.
    FakeBackend backend({.info = SmallInfo(depth), .ready_seed = 99});
    auto report = Replay(backend, journal->header().open.executor, *journal, options);
    EXPECT_EQ(backend.violation(), "");
    return report;
  }

  std::string Bytes() const { return *ReadFile(file_); }

  // The journal with each turn as `change` leaves it.
  template <typename Change>
  void Rewrite(const Change& change) {
    auto journal = Journal::Open(file_);
    ASSERT_TRUE(journal.ok());
    std::string bytes(kMagic);
    AppendFrame(RecordKind::kHeader, HeaderText(journal->header()), &bytes);
    TurnRecord turn;
    uint64_t num_lost = 0;
    while (*journal->Next(&turn, &num_lost) == Journal::Item::kTurn) {
      change(turn);
      std::string record;
      AppendTurn(turn, &record);
      AppendFrame(RecordKind::kTurn, record, &bytes);
    }
    ASSERT_TRUE(WriteFile(file_, bytes).ok());
  }

  void WriteTurn(const std::string& record) {
    std::string bytes(kMagic);
    Header header = HeaderOf(SmallInfo(2));
    header.has_prompts = true;
    AppendFrame(RecordKind::kHeader, HeaderText(header), &bytes);
    AppendFrame(RecordKind::kTurn, record, &bytes);
    ASSERT_TRUE(WriteFile(file_, bytes).ok());
  }

  fs::path folder_, file_;
  int64_t num_pauses_ = 0, num_cancelled_ = 0;
};

TEST_F(FlightRecorderTest, AThousandRequestsRepeatTwiceAtEachDepth) {
  for (const int depth : {1, 2, 3}) {
    ASSERT_NO_FATAL_FAILURE(RecordLoad(1000, {.keeps_prompts = true}, depth));
    EXPECT_GT(num_pauses_, 20);
    EXPECT_GT(num_cancelled_, 20);
    const auto first = ReplayIt({}, depth);
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    EXPECT_EQ(first->difference, "");
    EXPECT_EQ(first->stopped, "");
    EXPECT_EQ(first->num_requests, 1000U);
    EXPECT_GE(first->num_ends, 1000U);
    EXPECT_EQ(first->num_unfinished, 0U);
    EXPECT_EQ(static_cast<int64_t>(first->num_pauses), num_pauses_);
    const auto second = ReplayIt({}, depth);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second->difference, "");
    EXPECT_EQ(second->digest, first->digest);
  }
}

TEST_F(FlightRecorderTest, HeldRequestsRepeat) {
  for (const int depth : {1, 2, 3}) {
    ASSERT_NO_FATAL_FAILURE(RecordLoad(400, {.keeps_prompts = true}, depth, /*holds=*/true));
    const auto report = ReplayIt({}, depth);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->difference, "");
    EXPECT_EQ(report->stopped, "");
    EXPECT_EQ(report->num_requests, 400U);
    EXPECT_EQ(report->num_unfinished, 0U);
    EXPECT_EQ(static_cast<int64_t>(report->num_pauses), num_pauses_);
  }
  size_t num_holds = 0;
  Rewrite([&num_holds](TurnRecord& turn) {
    num_holds += turn.holds.size();
    if (num_holds == turn.holds.size()) turn.holds.clear();  // of the first turn that has some
  });
  EXPECT_GT(num_holds, 100U);
  EXPECT_NE(ReplayIt({}, /*depth=*/3)->difference, "");
}

TEST_F(FlightRecorderTest, AnotherSeedIsFoundAtItsRequest) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(40, {.keeps_prompts = true}));
  RequestId changed = 0;
  Rewrite([&changed](TurnRecord& turn) {
    std::vector<Arrival> arrivals;
    ASSERT_TRUE(ParseArrivals(turn.arrivals, turn.num_arrivals, &arrivals).ok());
    if (changed != 0 || arrivals.size() != 1) return;
    Arrival& arrival = arrivals.front();
    if (arrival.request.timeout_ms || arrival.request.max_tokens < 4) return;
    changed = arrival.id;
    arrival.request.sampling.seed = *arrival.request.sampling.seed + 1;
    const auto active =
        executor::MakeActiveRequest(arrival.id, arrival.request, nullptr, arrival.enqueued_ns);
    turn.arrivals.clear();
    AppendArrival(*active, /*keeps_ids=*/true, &turn.arrivals);
  });
  ASSERT_NE(changed, 0U);
  const auto report = ReplayIt();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_THAT(report->difference, HasSubstr("request " + std::to_string(changed)));
}

TEST_F(FlightRecorderTest, AForgedEndAndAForgedPlanAreFound) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(40, {.keeps_prompts = true}));
  const std::string original = Bytes();
  RequestId ended = 0;
  Rewrite([&ended](TurnRecord& turn) {
    if (ended != 0 || turn.ends.empty() || turn.number < 30) return;
    ended = turn.ends.front().request;
    turn.ends.front().hash ^= 1;
  });
  EXPECT_THAT(ReplayIt()->difference, HasSubstr("request " + std::to_string(ended)));

  ASSERT_TRUE(WriteFile(file_, original).ok());
  uint64_t step = 0;
  Rewrite([&step](TurnRecord& turn) {
    if (step != 0 || turn.plan.step < 9) return;
    step = turn.plan.step;
    ++turn.plan.rows.back().num_tokens;
  });
  EXPECT_THAT(ReplayIt()->difference, HasSubstr("step " + std::to_string(step) + ", request "));
}

TEST_F(FlightRecorderTest, UntilStepEndsThere) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(40, {.keeps_prompts = true}));
  uint64_t last = 0;
  const auto report = ReplayIt({.until_step = 10, .on_turn = [&last](const TurnRecord& turn) {
                                  last = std::max(last, turn.plan.step);
                                }});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(last, 10U);
  EXPECT_EQ(report->num_steps, 10U);
  EXPECT_EQ(report->difference, "");
}

TEST_F(FlightRecorderTest, ARequestAloneHasTheOutputsThatItHadAmongOthers) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(60, {.keeps_prompts = true}));
  auto journal = Journal::Open(file_);
  TurnRecord turn;
  uint64_t num_lost = 0;
  int num_alone = 0;
  while (*journal->Next(&turn, &num_lost) == Journal::Item::kTurn) {
    for (const EndRecord& end : turn.ends) {
      if (end.reason != FinishReason::kLength || end.sequence != 0) continue;
      const auto report = ReplayIt({.alone = end.request});
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_EQ(report->difference, "");
      EXPECT_EQ(report->num_requests, 1U);
      EXPECT_GE(report->num_ends, 1U);
      ++num_alone;
    }
  }
  EXPECT_GT(num_alone, 10);
  EXPECT_EQ(ReplayIt({.alone = ~0ULL}).status().code(), StatusCode::kNotFound);
}

TEST_F(FlightRecorderTest, HashesOfPromptsCannotBeRepeated) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(20, {.keeps_prompts = false}));
  const auto report = ReplayIt();
  EXPECT_EQ(report.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(report.status().message(), HasSubstr("--record-prompts"));
}

TEST_F(FlightRecorderTest, AnotherShapeIsRefused) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(20, {.keeps_prompts = true}));
  const auto report = ReplayIt({}, /*depth=*/1);
  EXPECT_EQ(report.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(report.status().message(), HasSubstr("2 steps at a time"));
}

TEST_F(FlightRecorderTest, TheFileIsItsOwnersAloneAndBounded) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(600, {.file_bytes = 1 << 16, .keeps_prompts = true}));
  for (const fs::path& path : {file_, EarlierPart(file_)}) {
    struct stat about = {};
    ASSERT_EQ(stat(path.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600U);
    EXPECT_LE(about.st_size, 1 << 16);
  }
}

TEST_F(FlightRecorderTest, WithoutItsBeginningOutputsAreComparedFromAnIdleTurnOn) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(600, {.file_bytes = 1 << 16, .keeps_prompts = true}));
  const auto report = ReplayIt();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_GT(report->num_skipped, 0U);
  EXPECT_GT(report->num_ends, 50U);
  EXPECT_EQ(report->difference, "");
  EndRecord last;
  Rewrite([&last](const TurnRecord& turn) {
    for (const EndRecord& end : turn.ends)
      if (end.reason == FinishReason::kLength) last = end;
  });
  Rewrite([&last](TurnRecord& turn) {
    for (EndRecord& end : turn.ends)
      if (end == last) end.hash ^= 1;
  });
  const auto forged = ReplayIt();
  ASSERT_TRUE(forged.ok()) << forged.status().ToString();
  EXPECT_THAT(forged->difference, HasSubstr("request " + std::to_string(last.request)));
}

TEST_F(FlightRecorderTest, TurnsThatFoundNoRoomAreCountedAtTheEndToo) {
  auto recorder = Record({.file = file_, .keeps_prompts = true}, HeaderOf(SmallInfo(2)));
  ASSERT_TRUE(recorder.ok()) << recorder.status().ToString();
  Request request;
  request.input_ids.resize((size_t{16} << 20) / sizeof(TokenId));  // more than may wait
  const auto active = executor::MakeActiveRequest(1, request, nullptr, 0);
  (*recorder)->OnTime(5);
  (*recorder)->OnArrival(*active);
  (*recorder)->OnTurnEnd(/*has_collected=*/false, /*is_idle=*/false);
  recorder->reset();
  auto journal = Journal::Open(file_);
  ASSERT_TRUE(journal.ok()) << journal.status().ToString();
  TurnRecord turn;
  uint64_t num_lost = 0;
  EXPECT_EQ(*journal->Next(&turn, &num_lost), Journal::Item::kGap);
  EXPECT_EQ(num_lost, 1U);
  EXPECT_EQ(*journal->Next(&turn, &num_lost), Journal::Item::kEnd);
}

TEST_F(FlightRecorderTest, AnEarlierRunsJournalIsKeptAndAnotherWritersIsLeftAlone) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(5, {.keeps_prompts = true}));
  const std::string first = Bytes();
  Header header = HeaderOf(SmallInfo(2));
  const auto writer = Record({.file = file_}, header);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  EXPECT_EQ(*ReadFile(EarlierPart(file_)), first);
  header.owner = "other/1";
  EXPECT_EQ(Record({.file = file_}, header).status().code(), StatusCode::kAlreadyExists);
  header.owner = "fake/1";  // the model is loaded once more
  EXPECT_TRUE(Record({.file = file_}, header).ok());
}

TEST_F(FlightRecorderTest, AJournalOfAnotherContainersProcessIsLeftAlone) {
  Header header = HeaderOf(SmallInfo(2));
  header.process = getpid();  // which may be this one's, too
  std::string bytes(kMagic);
  AppendFrame(RecordKind::kHeader, HeaderText(header), &bytes);
  ASSERT_TRUE(WriteFile(file_, bytes).ok());
  const Descriptor other(open(file_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(other.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(Record({.file = file_}, header).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Bytes(), bytes);
}

TEST_F(FlightRecorderTest, AnotherFileIsNotOverwritten) {
  ASSERT_TRUE(WriteFile(file_, "precious").ok());
  const auto writer = Record({.file = file_}, HeaderOf(SmallInfo(2)));
  EXPECT_EQ(writer.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Bytes(), "precious");
  fs::rename(file_, EarlierPart(file_));
  EXPECT_EQ(Record({.file = file_}, HeaderOf(SmallInfo(2))).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(*ReadFile(EarlierPart(file_)), "precious");
}

TEST_F(FlightRecorderTest, AJournalThatIsCutAnywhereRepeatsUpToThere) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(12, {.keeps_prompts = true}));
  const std::string whole = Bytes();
  for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
    ASSERT_TRUE(WriteFile(file_, whole.substr(0, size)).ok());
    const auto report = ReplayIt();
    if (report.ok()) {
      EXPECT_EQ(report->difference, "") << size;
    } else {
      EXPECT_THAT(report.status().message(), HasSubstr(file_.string())) << size;
    }
  }
}

TEST_F(FlightRecorderTest, AChangedByteIsToldWithItsRecord) {
  ASSERT_NO_FATAL_FAILURE(RecordLoad(12, {.keeps_prompts = true}));
  const std::string whole = Bytes();
  std::string changed = whole;
  changed.back() = static_cast<char>(changed.back() ^ 4);
  ASSERT_TRUE(WriteFile(file_, changed).ok());
  const auto report = ReplayIt();
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(report.status().message(), HasSubstr("is not what was written"));
}

TEST_F(FlightRecorderTest, AnotherFormatIsRefusedByItsNumber) {
  std::string text = HeaderText(HeaderOf(SmallInfo(2)));
  text.replace(text.find(":1,"), 3, ":2,");
  EXPECT_EQ(ParseHeader(text).status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(ParseHeader(text).status().message(), HasSubstr("format 2"));
}

TEST_F(FlightRecorderTest, AHeaderIsReadAsItWasWritten) {
  Header header = HeaderOf(SmallInfo(2));
  header.open.executor.max_seq_len = 77;
  header.open.executor.medusa_choices = {{0}, {0, 1}};
  header.open.fp8_kv_cache = true;
  header.open.draft_model = "draft";
  header.open.moe_ep_size = 2;
  const auto read = ParseHeader(HeaderText(header));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(HeaderText(*read), HeaderText(header));
  EXPECT_EQ(read->open.moe_ep_size, 2);
  EXPECT_EQ(read->open.moe_tp_size, std::nullopt);
  EXPECT_EQ(read->open.executor.max_seq_len, 77);
  EXPECT_EQ(read->open.executor.scheduler_policy, SchedulerPolicy::kMaxUtilization);
}

TEST_F(FlightRecorderTest, WrongMembersOfAHeaderAreNamed) {
  const std::string text = HeaderText(HeaderOf(SmallInfo(2)));
  const auto with = [&text](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return ParseHeader(changed).status().message();
  };
  EXPECT_THAT(with("\"scheduler_policy\":0", "\"scheduler_policy\":3"),
              HasSubstr("'scheduler_policy': got 3, must be in [0, 2]"));
  EXPECT_THAT(with("\"shape\"", "\"shop\""), HasSubstr("lacks 'shape'"));
  EXPECT_THAT(with("\"part\":0", "\"part\":-1"), HasSubstr("'part'"));
  EXPECT_THAT(with("\"least_step_ns\":0", "\"least_step_ns\":-9223372036854775808"),
              HasSubstr("'least_step_ns'"));
  EXPECT_THAT(with("\"max_queue_delay_us\":300", "\"max_queue_delay_us\":9223372036854775807"),
              HasSubstr("'max_queue_delay_us'"));
  EXPECT_THAT(with("\"step_time_goal_ms\":", "\"step_time_goal_ms\":1e300,\"was\":"),
              HasSubstr("'step_time_goal_ms'"));
  EXPECT_THAT(with("{", "["), HasSubstr("header"));
}

TEST_F(FlightRecorderTest, HugeCountsTakeNoMemory) {
  TurnRecord turn;
  turn.number = 1;
  turn.times = {5};
  std::string record;
  AppendTurn(turn, &record);  // number, flags, 1 time, its value, then counts
  for (size_t at = 2; at < record.size(); ++at) {
    if (at == 3) continue;  // the time
    std::string huge =
        record.substr(0, at) + std::string(9, '\xFF') + '\x01' + record.substr(at + 1);
    EXPECT_EQ(ParseTurn(huge, &turn).code(), StatusCode::kDataLoss) << at;
  }
  EXPECT_EQ(ParseTurn(record + "x", &turn).code(), StatusCode::kDataLoss);
  std::vector<Arrival> arrivals;
  EXPECT_EQ(ParseArrivals("", 4'000'000'000U, &arrivals).code(), StatusCode::kDataLoss);
  EXPECT_LE(arrivals.size(), 1U);
}

// The record of a journal's first turn, in which `request` arrives as number 12.
std::string FirstTurnWith(const Request& request) {
  const auto active = executor::MakeActiveRequest(12, request, nullptr, 0);
  TurnRecord turn;
  turn.number = 1;
  turn.times = {5};
  turn.num_arrivals = 1;
  AppendArrival(*active, /*keeps_ids=*/true, &turn.arrivals);
  std::string record;
  AppendTurn(turn, &record);
  return record;
}

TEST_F(FlightRecorderTest, ARequestThatIsNotValidIsRefusedByName) {
  Request request;
  request.input_ids = {5000};
  request.max_tokens = 3;
  ASSERT_NO_FATAL_FAILURE(WriteTurn(FirstTurnWith(request)));
  const auto report = ReplayIt();
  EXPECT_EQ(report.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(report.status().message(), HasSubstr("request 12"));
}

TEST_F(FlightRecorderTest, WhatNoJournalHoldsEndsTheReplayBeforeIt) {
  Request request;
  request.input_ids = {5};
  request.max_tokens = 3;
  request.embedding_bias = std::make_shared<std::vector<float>>(97);
  ASSERT_NO_FATAL_FAILURE(WriteTurn(FirstTurnWith(request)));
  const auto report = ReplayIt();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_THAT(report->stopped, HasSubstr("request 12 has a bias of logits"));
}

}  // namespace
}  // namespace inflight::flight_recorder
