// SPDX-License-Identifier: Apache-2.0
// Threads that serve everybody, while what they ask of the heap fails: the turn is lost or told to
// those who wait for it, and the process and the thread go on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/no_memory_left.h"
#include "base/thread_boundary.h"
#include "builder/builder.h"
#include "comm/rendezvous_fixture.h"
#include "executor/executor.h"
#include "executor/ranked_backend.h"
#include "executor/sleeper.h"
#include "flight_recorder/recorder.h"
#include "flight_recorder/replay.h"
#include "inflight/adapter.h"
#include "protocol/metrics/machine.h"
#include "protocol/otlp/otlp_exporter.h"
#include "run_requests.h"
#include "serving/statistics/iteration_reporter.h"
#include "serving/testing/fake_executor.h"
#include "simulation/fake_backend.h"
#include "simulation/heap.h"

namespace inflight::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kOften{2};

// Whether `is_so` comes to be; `meanwhile` is done again and again.
bool Comes(const std::function<bool()>& is_so, const std::function<void()>& meanwhile = nullptr) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (meanwhile != nullptr) meanwhile();
    std::this_thread::sleep_for(kOften);
  }
  return true;
}

// Whether `count` allocations of that thread fail, and another one later: it is still there.
bool Survives(const char* thread, int64_t count, const std::function<void()>& meanwhile = nullptr) {
  for (const int64_t faults : {count, int64_t{1}}) {
    const ThreadHeapFault fault(thread, faults);
    if (!Comes([&] { return fault.num_struck() == faults; }, meanwhile)) return false;
  }
  return true;
}

TEST(ThreadFaultsTest, WhatIsSaidOfNoMemoryWaitsForItsWords) {
  Status said;
  bool has_struck = false;
  {
    const HeapFault fault(1);
    said = StatusOf([]() -> Status { throw std::bad_alloc(); });
    has_struck = fault.has_struck();
  }
  EXPECT_TRUE(has_struck);
  EXPECT_EQ(said, NoMemoryLeft());
  bool is_done = true;
  {
    const HeapFault fault(1);
    is_done = RunTurn("test", [] { throw std::bad_alloc(); });
    has_struck = fault.has_struck();
  }
  EXPECT_TRUE(has_struck) << "the line of the log is lost";
  EXPECT_FALSE(is_done);
}

TEST(ThreadFaultsTest, TheMachineIsReadLater) {
  const metrics::MachineMonitor monitor({.with_gpus = false, .interval = kOften});
  EXPECT_TRUE(Survives("machine", 6));
  EXPECT_TRUE(monitor.readings().cpu_memory) << "the reading before stays";
}

TEST(ThreadFaultsTest, IterationsAreTakenLater) {
  const auto executor = std::make_shared<serving::FakeExecutor>();
  executor->iterations = {{.num_steps = 7}};
  std::unique_ptr<serving::IterationReporter> reporter;
  {
    const ThreadHeapFault fault("inflight-stats", 5);
    reporter = std::make_unique<serving::IterationReporter>(
        executor, serving::IterationProfile{}, serving::IterationReporterOptions{.period_ms = 1},
        Clock::System());
    ASSERT_TRUE(Comes([&] { return fault.num_struck() == 5; }));
  }
  ASSERT_TRUE(Comes([&] { return reporter->Check().iteration.stats.num_steps == 7; }));
}

TEST(ThreadFaultsTest, SpansThatFindNoMemoryAreDroppedAndLaterOnesSent) {
  const comm::FreePort nobody;
  const auto exporter = otlp::OtlpExporter::Create(
      {.url = "http://127.0.0.1:" + std::to_string(nobody.number()) + "/v1/traces",
       .resource = {},
       .schedule_delay_ms = 1});
  ASSERT_TRUE(exporter.ok()) << exporter.status().ToString();
  const auto send = [&] {
    serving::FinishedTrace trace;
    trace.records.push_back(
        {.id = 1, .model_name = "m", .events = {{"REQUEST_START", 1}, {"REQUEST_END", 2}}});
    (*exporter)->Export(std::move(trace));
  };
  EXPECT_TRUE(Survives("otlp", 5, send));
}

struct SilentSink : ResponseSink {
  void OnResponse(Response /*response*/) override {}
};

TEST(ThreadFaultsTest, AJournalHasTheTurnsThatWaitedForMemory) {
  const fs::path file = fs::path(::testing::TempDir()) / "thread_faults_journal";
  fs::remove(file);
  const executor::BackendInfo info = SmallInfo(2);
  ManualClock clock;
  {
    auto recorder = flight_recorder::Record({.file = file, .keeps_prompts = true},
                                            {.owner = "fake/1",
                                             .model = "nowhere",
                                             .device = "cpu",
                                             .shape = flight_recorder::ShapeOf(info)});
    ASSERT_TRUE(recorder.ok()) << recorder.status().ToString();
    auto executor =
        executor::CreateSteppedExecutor(std::make_unique<FakeBackend>(FakeBackendOptions{
                                            .info = info, .ready_seed = 5, .clock = &clock}),
                                        {}, clock, *std::move(recorder));
    ASSERT_TRUE(executor.ok()) << executor.status().ToString();
    const auto run = [&] {
      Request request;
      request.input_ids = {1, 2, 3};
      request.max_tokens = 3;
      EXPECT_TRUE((*executor)->Enqueue(request, std::make_shared<SilentSink>()).ok());
      for (int turn = 0; turn < 30; ++turn) {
        clock.AdvanceNs(100'000);
        (*executor)->Step();
        (*executor)->Deliver();
      }
    };
    // What the writer appends to grows with what waits for it.
    const ThreadHeapFault fault("inflight-record", 3);
    EXPECT_TRUE(Comes([&] { return fault.num_struck() == 3; }, run));
  }
  auto journal = flight_recorder::Journal::Open(file);
  ASSERT_TRUE(journal.ok()) << journal.status().ToString();
  FakeBackend backend({.info = info, .ready_seed = 99});
  const auto report =
      flight_recorder::Replay(backend, journal->header().open.executor, *journal, {});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  fs::remove(file);
}

TEST(ThreadFaultsTest, ADeviceThatFindsNoMemoryIsToldToWhoWakesTheModel) {
  const auto first = Device::CpuWithCapacity(1, 16 << 20);
  const auto second = Device::CpuWithCapacity(1, 16 << 20);
  const auto take = [](Device& device) {
    auto memory = ReleasableMemory::Allocate(device, "weights", 1 << 20);
    EXPECT_TRUE(memory.ok());
    return *memory;
  };
  const auto reload = [] { return Status::Ok(); };
  executor::Sleeper sleeper(
      {.weights = {take(*first), take(*second)}, .draft_weights = {}, .kv_cache = {}},
      {.owner = "a model whose name is longer than what strings keep in themselves",
       .reload = reload,
       .no_sleep = Status::Ok(),
       .no_reload = Status::Ok()});
  ASSERT_TRUE(sleeper.Sleep(2).ok());
  {
    const ThreadHeapFault fault("sleep", 1);
    EXPECT_EQ(sleeper.Wake({}), NoMemoryLeft());
    EXPECT_EQ(fault.num_struck(), 1);
  }
  EXPECT_EQ(sleeper.state().level, 2);
  EXPECT_TRUE(sleeper.Wake({}).ok());
  EXPECT_EQ(sleeper.state().level, 0);
}

// Of rank 2 on the queries of layer 0, which change nothing.
std::shared_ptr<const LoraTensors> AnAdapter(const model::ModelConfig& config) {
  constexpr int kRank = 2;
  LoraTensors tensors;
  tensors.rows = {{.module = 1, .layer = 0, .rank = kRank}};
  tensors.dtype = LoraDType::kFloat32;
  tensors.width = int64_t{kRank} * (config.hidden_size + config.num_heads * config.head_dim);
  tensors.weights.resize(static_cast<size_t>(tensors.width) * sizeof(float));
  return std::make_shared<const LoraTensors>(std::move(tensors));
}

TEST(ThreadFaultsTest, ARankThatFindsNoMemoryEndsItsGroup) {
  const auto device = Device::Cpu(1);
  const fs::path dir = fs::path(INFLIGHT_GOLDEN_DATA) / "llama_gqa2";
  builder::OpenOptions open = {.dtype = DType::kF32, .limits = std::nullopt};
  const auto whole = builder::Describe(dir, open);
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  open.ranks = {.tp_size = 2, .pp_size = 1};
  std::vector<std::shared_ptr<const model::Engine>> engines;
  for (open.rank = 0; open.rank < 2; ++open.rank) {
    auto engine = builder::Open(dir, *device, open);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engines.push_back(*std::move(engine));
  }
  ExecutorOptions options;
  options.max_batch_size = 2;
  auto backend = executor::CreateRankedBackend(engines, *device, options, {}, {});
  ASSERT_TRUE(backend.ok()) << backend.status().ToString();
  auto executor = executor::CreateExecutor(std::move(backend->backend), options);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  Request request;
  request.input_ids = {1, 2, 3};
  request.max_tokens = 4;
  request.lora = LoraUse{.id = 1, .tensors = AnAdapter(whole->config)};
  const Status before = RunAll(**executor, {request})[0]->last.status;
  ASSERT_TRUE(before.ok()) << before.ToString();
  request.lora->id = 2;  // of an adapter that it has not yet a rank keeps its part
  const ThreadHeapFault fault("rank 1", 1);
  const Status ended = RunAll(**executor, {request})[0]->last.status;
  EXPECT_EQ(fault.num_struck(), 1);
  EXPECT_EQ(ended.code(), StatusCode::kResourceExhausted) << ended.ToString();
  EXPECT_EQ(ended.reason(), Reason::kOutOfMemory);
}

TEST(ThreadFaultsTest, HowAProcessEndedIsToldAllTheSame) {
  const ThreadHeapFault fault("child-wait", 2);
  const auto child =
      ChildProcess::Start("/bin/sh", {"/bin/sh", "-c", "kill -KILL $$"}, /*on_end=*/nullptr);
  ASSERT_TRUE(child.ok()) << child.status().ToString();
  ASSERT_TRUE((*child)->WaitUntilEnded(std::chrono::minutes(1)));
  EXPECT_EQ((*child)->how_it_ended(), "signal 9 (Killed)");
  EXPECT_EQ(fault.num_struck(), 2);
}

TEST(ThreadFaultsTest, ARankWatchReadsLaterAndStillHearsOfAnEnd) {
  const comm::FreePort port;
  std::vector<std::unique_ptr<comm::Group>> groups(2);
  {
    std::vector<std::thread> joining;
    for (int rank = 0; rank < 2; ++rank)
      joining.emplace_back([&, rank] {
        auto group = comm::JoinTest(port, rank, 2, std::chrono::seconds(8));
        ASSERT_TRUE(group.ok()) << group.status().ToString();
        groups[static_cast<size_t>(rank)] = *std::move(group);
      });
    for (std::thread& thread : joining) thread.join();
  }
  ASSERT_TRUE(groups[0] != nullptr && groups[1] != nullptr);
  EXPECT_TRUE(Survives("rank-watch", 8));
  for (const auto& group : groups) EXPECT_TRUE(group->status().ok()) << "nothing was lost";
  {
    const ThreadHeapFault fault("rank-watch", 1'000'000);
    groups[0]->Abort(Unavailable("enough"));
    ASSERT_TRUE(Comes([&] { return fault.num_struck() > 100; }));
  }
  ASSERT_TRUE(Comes([&] { return !groups[1]->status().ok(); }));
  // Without words where it came to heed the end meanwhile, else with them.
  const Status ended = groups[1]->status();
  EXPECT_TRUE(ended == NoMemoryLeft() || ended.code() == StatusCode::kUnavailable)
      << ended.ToString();
}

}  // namespace
}  // namespace inflight::testing
