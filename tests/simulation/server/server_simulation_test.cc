// SPDX-License-Identifier: Apache-2.0
// The whole server under random clients: requests of all kinds over HTTP and gRPC in pieces of any
// size, cancels, deadlines, disconnects, slow readers, loads and unloads, little memory,
// allocations that fail and devices that fail, on one thread and a clock that the simulation sets.
// Checked for each world, which is a server with its clients:
//
//   an answer is what the request yields alone, or a refusal; every request has exactly one, or its
//   connection closes; where nothing is in the way there is no refusal and nothing closes; no plan
//   holds a request that was cancelled before (simulated_server.h); at the end nothing is held: no
//   byte of the account, no KV block, no request, no connection; the counters of the model and its
//   executor are those of the requests.
//
// INFLIGHT_SERVER_SIMULATION_ARRIVALS sets the number of requests, INFLIGHT_SERVER_SIMULATION_SEED
// the seed of one world that is to be repeated. A world's seed decides all that happens in it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "inflight/log.h"
#include "simulation/heap.h"
#include "simulation/server/asked_request.h"
#include "simulation/server/simulated_client.h"
#include "simulation/server/simulated_server.h"

namespace inflight::testing {
namespace {

namespace fs = std::filesystem;
using Kind = AskedRequest::Kind;

constexpr int64_t kDefaultArrivals = 20'000;
constexpr int64_t kArrivalsOfWorld = 500;
constexpr int kMaxTurnsToEnd = 200'000;  // of a world whose clients ask nothing more
constexpr int64_t kMsInNs = 1'000'000;
constexpr uint64_t kFirstWorlds = 8;
constexpr int64_t kMaxGrowthBytes = 64 * 1024;  // of the heap, however many worlds there were
constexpr int64_t kMaxLostBytes = 512;  // by libraries, in what they fill when an allocation fails

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoll(value) : otherwise;
}

// What may stand in the way of requests.
struct Trouble {
  explicit Trouble(Random& random)
      : cuts(Chance(random, 2)),
        loads(Chance(random, 6)),
        little_memory(Chance(random, 6)),
        short_queue(Chance(random, 6)),
        failing_allocations(Chance(random, 6)),
        failing_device(Chance(random, 12)) {}

  // Every request that is not cut off is answered as alone.
  bool IsNone() const {
    return !loads && !little_memory && !short_queue && !failing_allocations && !failing_device;
  }

  std::string Names() const {
    std::string names;
    const auto add = [&](bool is_there, const char* name) { names += is_there ? name : ""; };
    add(cuts, " cuts");
    add(loads, " loads");
    add(little_memory, " little memory");
    add(short_queue, " short queue");
    add(failing_allocations, " failing allocations");
    add(failing_device, " failing device");
    return names.empty() ? " nothing in the way" : names;
  }

  bool cuts;  // clients that cancel or go
  bool loads, little_memory, short_queue, failing_allocations, failing_device;
};

SimulatedServerOptions OptionsFor(Random& random, const Trouble& trouble) {
  SimulatedServerOptions options;
  const int depth = 1 + Below(random, 3);
  const int rows = 1 + Below(random, 8);
  const int num_blocks = 24 + Below(random, 64);
  options.device.info = {.depth = depth,
                         .max_slots = rows + depth - 1,
                         .max_batch_size = rows,
                         .max_num_tokens = 16 + Below(random, 48),
                         .max_seq_len = 96,
                         .max_input_len = 64,
                         .vocab_size = kVocabSize,
                         .kv_groups = {{.block_size = 4, .num_blocks = num_blocks, .window = 0}}};
  options.device.ready_seed = random() | 1;
  options.device.prefill_token_ns = 20'000;
  if (trouble.failing_device) {
    (Chance(random, 2) ? options.device.fail_launch_of_step : options.device.fail_collect_of_step) =
        1 + Below(random, 2000);
  }
  options.executor.max_queue_size = trouble.short_queue ? 2 : 4096;
  if (Chance(random, 2)) options.executor.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  options.executor.enable_prefix_reuse = Chance(random, 2);
  options.memory = MemoryLimits::Of(trouble.little_memory ? size_t{96} << 10 : size_t{256} << 20);
  return options;
}

struct Tally {
  int64_t asked = 0, ended = 0, right = 0, refused = 0, closed = 0, gone = 0, faults = 0;

  void Add(const Tally& other) {
    asked += other.asked;
    ended += other.ended;
    right += other.right;
    refused += other.refused;
    closed += other.closed;
    gone += other.gone;
    faults += other.faults;
  }
};

class World {
 public:
  World(uint64_t seed, const fs::path& repository, const Judge& judge)
      : random_(seed),
        trouble_(random_),
        judge_(judge),
        server_(OptionsFor(random_, trouble_), repository, clock_) {}

  void Run(int64_t num_arrivals) {
    while (tally_.asked < num_arrivals && !HasFailed()) Turn(/*asks=*/true);
    for (int turn = 0; tally_.ended < tally_.asked && !HasFailed(); ++turn) {
      if (turn > kMaxTurnsToEnd) return Fail("requests have no end:" + Pending());
      Turn(/*asks=*/false);
    }
    Leave();
    tally_.faults = server_.num_faults();
  }

  const std::string& failure() const { return failure_; }
  const Tally& tally() const { return tally_; }
  // Of all that happened and its order: the same for the same seed.
  uint64_t trace() const { return trace_; }

 private:
  bool HasFailed() {
    if (!server_.violation().empty()) Fail(server_.violation());
    return !failure_.empty();
  }
  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = what + " (" + trouble_.Names() + " )";
  }

  std::string Pending() const {
    static constexpr std::array kNames = {"HTTP", "gRPC call", "gRPC stream"};
    std::string pending;
    for (const Connected& connected : clients_) {
      for (const uint64_t seed : connected.client->Pending()) {
        pending.append(" ").append(std::to_string(seed)).append(" by ");
        pending.append(kNames[static_cast<size_t>(connected.by)]);
      }
    }
    return pending;
  }

  void Turn(bool asks) {
    if (asks && Chance(random_, 3)) {
      for (int n = Below(random_, 5); n > 0; --n) Arrive();
    }
    if (asks && trouble_.cuts && Chance(random_, 24)) CutOne();
    MoveClients(asks);
    server_.RunIo(NextFault());
    for (int n = Below(random_, 4); n > 0; --n) server_.RunTask(random_(), NextFault());
    for (int n = Below(random_, 4); n > 0; --n) {
      // It ends the executor, as a fault of the device does.
      server_.Step(trouble_.failing_device && Chance(random_, 64) ? NextFault() : 0);
    }
    if (Chance(random_, 2)) server_.Deliver(NextFault());
    if (Chance(random_, 8)) server_.LookAtTime();
    clock_.AdvanceNs(Below(random_, 2) * kMsInNs);
    if (Chance(random_, 4000)) clock_.AdvanceNs(2'000 * kMsInNs);
  }

  // Which allocation of the next work fails.
  uint64_t NextFault() {
    if (!trouble_.failing_allocations || !Chance(random_, 16)) return 0;
    return 1 + static_cast<uint64_t>(Below(random_, 400));
  }

  void Arrive() {
    SimulatedClient& client = *ClientThatMayAsk();
    AskedRequest asked = RandomRequest(random_, ++last_seed_);
    Adapt(clients_[asking_], asked);
    ++tally_.asked;
    client.Ask(std::move(asked));
  }

  struct Connected {
    enum class By : uint8_t { kHttp, kCalls, kStream } by;
    std::unique_ptr<SimulatedClient> client;
    bool is_slow = false;  // reads a little now and then
  };

  // To what this kind of client asks.
  void Adapt(const Connected& connected, AskedRequest& asked) {
    if (connected.by == Connected::By::kHttp) {
      if (trouble_.loads && Chance(random_, 40)) {
        asked.kind = Chance(random_, 3) ? Kind::kUnload : Kind::kLoad;
      }
      return;
    }
    const bool may_stream = connected.by == Connected::By::kStream;
    if (asked.kind == Kind::kNoModel) return;
    asked.kind = may_stream && asked.is_stream() ? Kind::kStreamOfIds : Kind::kIds;
  }

  SimulatedClient* ClientThatMayAsk() {
    if (!clients_.empty() && !Chance(random_, 6)) {
      asking_ = static_cast<size_t>(Below(random_, static_cast<int>(clients_.size())));
      if (clients_[asking_].client->MayAsk()) return clients_[asking_].client.get();
    }
    const auto by = static_cast<Connected::By>(Below(random_, 3));
    const auto on_end = [this](const AskedRequest& asked, End end) { OnEnd(asked, end); };
    auto client = by == Connected::By::kHttp
                      ? MakeHttpClient(judge_, on_end)
                      : MakeGrpcClient(judge_, on_end, by == Connected::By::kStream);
    const std::string address = "10.0.0." + std::to_string(1 + Below(random_, 4));
    by == Connected::By::kHttp ? server_.AcceptHttp(client->wire().TakeServerEnd(), address)
                               : server_.AcceptGrpc(client->wire().TakeServerEnd(), address);
    clients_.push_back({.by = by, .client = std::move(client), .is_slow = Chance(random_, 16)});
    asking_ = clients_.size() - 1;
    return clients_.back().client.get();
  }

  void CutOne() {
    if (clients_.empty()) return;
    SimulatedClient& client =
        *clients_[static_cast<size_t>(Below(random_, static_cast<int>(clients_.size())))].client;
    if (Chance(random_, 2)) {
      client.CancelOne();
      return;
    }
    const std::vector<uint64_t> pending = client.Pending();
    client.wire().Cut();
    client.GiveUp();
    server_.RunIo();  // it sees the end
    for (const uint64_t seed : pending) server_.NoteGone(seed);
  }

  void MoveClients(bool asks) {
    static constexpr std::array<size_t, 4> kAmounts = {1, 100, 1 << 20, 1 << 20};
    for (Connected& connected : clients_) {
      if (!Chance(random_, connected.client->IsWaiting() ? 2 : 16)) continue;
      const size_t out = kAmounts[static_cast<size_t>(Below(random_, 4))];
      size_t in = kAmounts[static_cast<size_t>(Below(random_, 4))];
      if (connected.is_slow && asks && !Chance(random_, 32)) in = 0;
      connected.client->wire().Carry(out, in);
      connected.client->PollOnce();
    }
    const bool may_leave = Chance(random_, 16);
    std::erase_if(clients_, [&](const Connected& connected) {
      const SimulatedClient& client = *connected.client;
      return !client.IsWaiting() && (client.IsOver() || may_leave);
    });
  }

  void OnEnd(const AskedRequest& asked, End end) {
    if (asked.seed == 0) return Fail("an answer that nobody asked for " + asked.text);
    ++tally_.ended;
    trace_ = (trace_ ^ (asked.seed * 8 + static_cast<uint64_t>(end))) * 0x100000001B3ull;
    const std::string name = "request " + std::to_string(asked.seed) + " of kind " +
                             std::to_string(static_cast<int>(asked.kind));
    switch (end) {
      case End::kRight:
        ++tally_.right;
        return;
      case End::kGone:
        ++tally_.gone;
        return;
      case End::kRefused:
        ++tally_.refused;
        if (trouble_.IsNone() && !MayBeRefused(asked)) Fail(name + " was refused");
        return;
      case End::kClosed:
        ++tally_.closed;
        if (trouble_.IsNone()) Fail(name + " has no answer, and its connection closed");
        return;
      case End::kWrong:
        return Fail(name + " has a wrong answer");
    }
  }

  static bool MayBeRefused(const AskedRequest& asked) {
    return asked.timeout_us != 0 || asked.kind == Kind::kTooLong || asked.kind == Kind::kNoModel ||
           asked.kind == Kind::kNoRequest;
  }

  // All clients go, and the server comes to rest.
  void Leave() {
    clients_.clear();
    for (int turn = 0; !server_.WhatIsLeft().empty(); ++turn) {
      if (turn > kMaxTurnsToEnd) return Fail("at the end there are " + server_.WhatIsLeft());
      Turn(/*asks=*/false);
      if (HasFailed()) return;
    }
    while (server_.RunTask(0) || server_.Step() || server_.Deliver()) server_.RunIo();
    if (!trouble_.loads && !trouble_.failing_device) CheckCounters();
    if (!server_.ShutDown()) Fail("the server waits for a request that has ended");
  }

  // Of the LLM and its executor, which count the same requests.
  void CheckCounters() {
    for (const auto& gauges : server_.server().executor_gauges()) {
      const auto model = server_.server().FindModel(gauges.model, gauges.version);
      if (!model.ok()) return Fail("the model is not there: " + model.status().message());
      const serving::StatisticsSnapshot counts = (*model)->statistics().Snapshot();
      const ExecutorStats& stats = gauges.stats;
      const int64_t executed = stats.requests_completed + stats.requests_cancelled +
                               stats.requests_timed_out + stats.requests_failed;
      const auto succeeded = static_cast<int64_t>(counts.success.count);
      const auto failed = static_cast<int64_t>(counts.fail.count);
      if (counts.pending_requests != 0) Fail("requests are pending");
      if (trouble_.IsNone() && succeeded + failed < executed) Fail("requests are not counted");
      if (succeeded > stats.requests_completed) Fail("more requests succeeded than completed");
      if (succeeded < tally_.right) Fail("fewer requests succeeded than were answered");
    }
  }

  Random random_;
  const Trouble trouble_;
  const Judge& judge_;
  ManualClock clock_;
  SimulatedServer server_;
  std::vector<Connected> clients_;
  size_t asking_ = 0;
  uint64_t last_seed_ = 0;
  Tally tally_;
  uint64_t trace_ = 0xCBF29CE484222325ull;
  std::string failure_;
};

class ServerSimulationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    root_ = fs::temp_directory_path() / ("inflight_simulation_" + std::to_string(getpid()));
    SimulatedServer::WriteRepository(root_);
    auto tokenizer = Tokenizer::Load(root_ / "tensorrt_llm" / "1");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    judge_ = std::make_unique<Judge>(*tokenizer);
  }
  void TearDown() override { fs::remove_all(root_); }

  // The trace of a world.
  uint64_t Run(uint64_t seed, int64_t num_arrivals, Tally* tally = nullptr) {
    World world(seed, root_, *judge_);
    world.Run(num_arrivals);
    EXPECT_EQ(world.failure(), "") << "INFLIGHT_SERVER_SIMULATION_SEED=" << seed << " repeats it";
    if (tally != nullptr) tally->Add(world.tally());
    return world.trace();
  }

  fs::path root_;
  std::unique_ptr<Judge> judge_;
};

TEST_F(ServerSimulationTest, EveryRequestEndsOnceAndAsIfAlone) {
  if (const int64_t seed = FromEnvironment("INFLIGHT_SERVER_SIMULATION_SEED", 0); seed != 0) {
    Run(static_cast<uint64_t>(seed), kArrivalsOfWorld);
    return;
  }
  const int64_t num_arrivals =
      FromEnvironment("INFLIGHT_SERVER_SIMULATION_ARRIVALS", kDefaultArrivals);
  Tally tally;
  int64_t live_bytes = 0;
  uint64_t seed = 0;
  while (tally.asked < num_arrivals && !HasFailure()) {
    Run(++seed, kArrivalsOfWorld, &tally);
    if (seed == kFirstWorlds) live_bytes = NumLiveBytes();  // what is made once has been made
  }
  const int64_t growth = seed > kFirstWorlds ? NumLiveBytes() - live_bytes : 0;
  std::cout << seed << " worlds: " << tally.asked << " requests, " << tally.right << " answered, "
            << tally.refused << " refused, " << tally.closed << " closed, " << tally.gone
            << " gone, " << tally.faults << " allocations failed, " << growth
            << " bytes more than after the first worlds\n";
  EXPECT_LT(growth, kMaxGrowthBytes + kMaxLostBytes * tally.faults);
  EXPECT_GT(tally.right, tally.asked / 2);
  EXPECT_EQ(tally.ended, tally.asked);
}

TEST_F(ServerSimulationTest, ASeedRepeatsItsWorld) {
  for (uint64_t seed = 1; seed <= 6; ++seed) EXPECT_EQ(Run(seed, 200), Run(seed, 200));
}

}  // namespace
}  // namespace inflight::testing
