// SPDX-License-Identifier: Apache-2.0
// Random arrivals, cancels and deadlines against the step loop, the scheduler and the KV cache over
// a fake device, on one thread and a clock that the steps advance. Checked, for each of the worlds
// of worlds.h:
//
//   every plan is sound (fake_backend.h); every accepted request gets exactly one final response;
//   its output is what it yields alone, however often it was paused; nobody is admitted past one
//   that came first, and whoever runs comes before whoever is paused; without priorities a request
//   ends within a number of turns that those before it bound; after the last one no block is in
//   use. With a window a sequence of any length fits into a pool of a few windows.
//
// INFLIGHT_SIMULATION_ARRIVALS sets the number of arrivals of each scheduler policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "simulation/loop_harness.h"
#include "simulation/worlds.h"

namespace inflight::testing {
namespace {

using enum SchedulerPolicy;

constexpr int64_t kDefaultArrivals = 1'000'000;

// For each scheduler policy, whose worlds share them.
int64_t NumArrivals() {
  const char* value = std::getenv("INFLIGHT_SIMULATION_ARRIVALS");  // scripts/sanitize.sh: fewer
  return value != nullptr ? std::atoll(value) : kDefaultArrivals;
}

class Simulation {
 public:
  Simulation(const World& world, uint64_t seed)
      : world_(world), random_(seed), harness_(Options(seed)) {
    for (auto& prefix : prefixes_) prefix = RandomTokens(48);
  }

  void Run(int64_t num_arrivals) {
    int64_t arrivals = 0;
    while (arrivals < num_arrivals || !live_.empty()) {
      const int num_new = Chance(4) ? Below(8) : 0;  // bursts
      for (int i = 0; i < num_new && arrivals < num_arrivals; ++i) {
        if (!Arrive()) break;
        ++arrivals;
      }
      if (Chance(6)) CancelSomebody();
      if (!harness_.Step()) harness_.clock.AdvanceNs(1'000'000);
      ASSERT_EQ(harness_.backend.violation(), "") << world_.name;
      ASSERT_EQ(num_bad_, 0) << world_.name << ": " << first_bad_;
      ASSERT_LT(++num_turns_, num_arrivals * 200 + 1000) << "no end";
    }
    CheckEnd(arrivals);
  }

 private:
  // What the test remembers of a request; also its sink.
  struct Client : ResponseSink {
    void OnResponse(Response response) override { owner->OnResponse(*this, std::move(response)); }

    Simulation* owner = nullptr;
    RequestId id = 0;
    Request request;
    std::vector<TokenId> ids;
    std::vector<float> log_probs;
    size_t beams_length = 0;
    bool was_cancelled = false;
    int num_final = 0;
    int64_t last_turn = 0;    // the latest in which it may end, without priorities
    int64_t start_turn = -1;  // in which it got a slot for the first time
    scheduler::SlotId slot = -1;
  };

  struct Waiting {
    float priority;
    double turn;
    RequestId id;
    int64_t deadline_ns;
    int64_t starts_at_arrival;
    int64_t num_ahead;
    bool operator<(const Waiting& other) const {
      return std::tuple(-priority, turn, id) < std::tuple(-other.priority, other.turn, other.id);
    }
  };

  HarnessOptions Options(uint64_t seed) {
    return {.backend = {.info = InfoOf(world_),
                        .ready_seed = seed,
                        .prefill_token_ns = 20'000,
                        .on_setup = [this](const executor::SlotSetup& setup) { OnSetup(setup); },
                        .on_launch = [this](const executor::StepPlan& plan) { OnLaunch(plan); }},
            .enable_prefix_reuse = world_.prefix_reuse,
            .enable_chunked_prefill = world_.chunked,
            .scheduler_policy = world_.policy,
            .chunking_policy = world_.chunking,
            .step_time_goal_ns = world_.step_time_goal_ns,
            .max_queue_delay_ns = world_.max_queue_delay_ns,
            .max_queue_size = 40};
  }

  bool IsFifo() const { return !world_.priorities && world_.num_clients == 1; }
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool Chance(int one_in) { return Below(one_in) == 0; }

  std::vector<TokenId> RandomTokens(int n) {
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    for (TokenId& token : tokens) token = Below(97);
    return tokens;
  }

  Request RandomRequest() {
    Request request;
    if (Chance(2)) {
      const auto& prefix =
          prefixes_[static_cast<size_t>(Below(static_cast<int>(prefixes_.size())))];
      const int longest = std::min(48, harness_.limits.max_input_len / 2 + 4);
      request.input_ids.assign(prefix.begin(), prefix.begin() + Below(longest + 1));
    }
    const int room = harness_.limits.max_input_len - static_cast<int>(request.input_ids.size());
    const std::vector<TokenId> own = RandomTokens(1 + Below(std::min(Chance(8) ? 40 : 8, room)));
    request.input_ids.insert(request.input_ids.end(), own.begin(), own.end());
    const bool outgrows_memory = world_.policy == kMaxUtilization;
    request.max_tokens = 1 + Below(Chance(outgrows_memory ? 2 : 8) ? 60 : 12);
    const int left = harness_.limits.max_seq_len - static_cast<int>(request.input_ids.size());
    request.max_tokens = std::min(request.max_tokens, left);
    request.streaming = Chance(2);
    if (Chance(3)) request.end_ids = RandomTokens(1 + Below(8));
    if (Chance(4)) request.stop_words.push_back(RandomTokens(1 + Below(2)));
    if (Chance(20)) request.timeout_ms = 1 + Below(60);
    if (Chance(20)) request.queue_timeout_us = 1 + Below(60'000);
    if (world_.priorities && Chance(10)) request.priority = Chance(2) ? 0.75F : 0.25F;
    if (Chance(16)) request.cache_salt = 7;
    if (world_.max_beam_width > 1 && Chance(3)) MakeBeamSearch(&request);
    const int max_draft_len = world_.max_tokens_per_row - 1;
    if (max_draft_len > 0 && request.sampling.beam_width == 1 && Chance(6))
      request.draft_ids = RandomTokens(1 + Below(max_draft_len));
    if (world_.num_clients > 1) {
      request.client_id = static_cast<uint64_t>(Below(world_.num_clients));
      request.share = request.client_id == 1 ? 0.5F : request.client_id == 2 ? 3.0F : 1.0F;
    }
    request.output.return_log_probs = true;
    return request;
  }

  // Short enough for the memory: validation refuses others.
  void MakeBeamSearch(Request* request) {
    SamplingParams& sampling = request->sampling;
    sampling.beam_width = 2 + Below(world_.max_beam_width - 1);
    if (Chance(3)) sampling.num_return_sequences = 1 + Below(sampling.beam_width);
    const int longest_prompt = 24;
    if (std::ssize(request->input_ids) > longest_prompt) request->input_ids.resize(longest_prompt);
    request->max_tokens = std::min(request->max_tokens, world_.num_blocks < 40 ? 8 : 24);
  }

  bool Arrive() {
    auto client = std::make_shared<Client>();
    client->owner = this;
    client->request = RandomRequest();
    client->request.sampling.seed = harness_.next_id;  // names the request to the fake device too
    const int64_t now_ns = harness_.clock.NowNs();
    client->id = harness_.Enqueue(client->request, client);
    if (client->id == 0) return false;  // the queue is full
    live_.emplace(client->id, client);
    order_.push_back(client->id);
    const Waiting entry{.priority = client->request.priority,
                        .turn = TurnOf(client->request),
                        .id = client->id,
                        .deadline_ns = DeadlineNs(client->request, now_ns),
                        .starts_at_arrival = num_starts_,
                        .num_ahead = static_cast<int64_t>(line_.size())};
    entries_.emplace(client->id, entry);
    line_.insert(entry);
    turns_of_live_ += TurnsAlone(client->request);
    client->last_turn = num_turns_ + turns_of_live_;
    return true;
  }

  // By the rule of start-time fair queueing, from what the simulation sees of arrivals and starts.
  double TurnOf(const Request& request) {
    double& end = turn_ends_[{request.priority, request.client_id}];
    const double turn = std::max(end, turn_now_[request.priority]);
    const double num_tokens = static_cast<double>(request.input_ids.size()) +
                              1.0 * request.max_tokens * request.sampling.beam_width;
    end = turn + num_tokens / static_cast<double>(request.share);
    return turn;
  }

  // When the request leaves the queue if nothing has begun with it.
  static int64_t DeadlineNs(const Request& request, int64_t now_ns) {
    int64_t deadline_ns = executor::kNever;
    if (request.timeout_ms) deadline_ns = now_ns + *request.timeout_ms * 1'000'000;
    if (request.queue_timeout_us) {
      deadline_ns = std::min(deadline_ns, now_ns + *request.queue_timeout_us * 1'000);
    }
    return deadline_ns;
  }

  // Turns that the first in order needs at most, once those before it have ended: a token each, and
  // the depth again wherever it waits for a block (its start, and each new block).
  int64_t TurnsAlone(const Request& request) const {
    const int64_t length = static_cast<int64_t>(request.input_ids.size()) + request.max_tokens;
    const int64_t block = *std::min_element(world_.block_sizes.begin(), world_.block_sizes.end());
    int64_t turns = length + (world_.depth + 1) * (length / block + 2) + 2;
    turns += world_.max_queue_delay_ns / 1'000'000;
    // An unchunked prompt waits until the decode rows behind it leave room.
    if (!world_.chunked) turns += harness_.limits.max_seq_len;
    // Beams are not looked ahead.
    if (request.sampling.beam_width > 1) turns *= world_.depth;
    return turns;
  }

  void CancelSomebody() {
    if (order_.empty()) return;
    // Often one that has long ended, which must change nothing.
    const RequestId id = order_[static_cast<size_t>(Below(static_cast<int>(order_.size())))];
    harness_.inbox.Cancel(id);
    const auto found = live_.find(id);
    if (found != live_.end()) found->second->was_cancelled = true;
    LeaveLine(id);
    if (order_.size() > 256) order_.erase(order_.begin(), order_.begin() + 128);
  }

  void LeaveLine(RequestId id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    line_.erase(found->second);
    paused_.erase(found->second);
  }

  // Called when a sequence gets a slot: it must come before all that are known to wait.
  void OnSetup(const executor::SlotSetup& setup) {
    const RequestId id = setup.seed;
    const auto found = live_.find(id);
    if (found == live_.end()) return Bad("admitted after its end", id);
    Client& client = *found->second;
    const Waiting& entry = entries_.at(id);
    TakeSlot(setup.slot, id);
    for (const scheduler::SlotId slot : setup.beam_slots) TakeSlot(slot, id);
    client.slot = setup.slot;

    while (!line_.empty() && line_.begin()->deadline_ns <= harness_.clock.NowNs()) {
      const RequestId expired = line_.begin()->id;
      LeaveLine(expired);
    }
    if (!line_.empty() && *line_.begin() < entry) Bad("overtook one that was before it", id);
    LeaveLine(id);
    if (client.start_turn >= 0) {
      ++num_resumes_;
      return;
    }
    client.start_turn = num_turns_;
    double& now = turn_now_[entry.priority];
    now = std::max(now, entry.turn);
    if (world_.policy == kStaticBatch) CheckBatch(id);
    const int64_t waited = num_starts_ - entry.starts_at_arrival;
    longest_wait_ = std::max(longest_wait_, waited);
    if (IsFifo() && waited > entry.num_ahead) Bad("waited too long", id);
    ++num_starts_;
  }

  // Whose slot it was holds none now: it is paused, if it has not ended.
  void TakeSlot(scheduler::SlotId slot, RequestId id) {
    const auto owner = owners_.find(slot);
    const auto former = owner == owners_.end() ? live_.end() : live_.find(owner->second);
    if (former != live_.end() && former->first != id && former->second->slot == slot &&
        !IsEnding(*former->second)) {
      paused_.insert(entries_.at(former->first));
      line_.insert(entries_.at(former->first));
    }
    owners_[slot] = id;
  }

  bool IsEnding(const Client& client) const {
    return client.was_cancelled || entries_.at(client.id).deadline_ns <= harness_.clock.NowNs();
  }

  // Nobody joins a batch under way.
  void CheckBatch(RequestId id) {
    for (const auto& [other_id, other] : live_) {
      if (other->start_turn >= 0 && other->start_turn != num_turns_ && !IsEnding(*other))
        return Bad("joined a batch under way", id);
    }
  }

  // Whoever runs comes before whoever is paused.
  void OnLaunch(const executor::StepPlan& plan) {
    if (paused_.empty()) return;
    for (int r = 0; r < plan.num_rows; ++r) {
      const RequestId id = owners_.at(plan.rows[static_cast<size_t>(r)].slot);
      const auto found = entries_.find(id);
      if (found != entries_.end() && *paused_.begin() < found->second)
        Bad("runs while one before it is paused", id);
    }
  }

  void OnResponse(Client& client, Response response) {
    client.ids.insert(client.ids.end(), response.output_ids.begin(), response.output_ids.end());
    client.log_probs.insert(client.log_probs.end(), response.output_log_probs.begin(),
                            response.output_log_probs.end());
    if (!client.request.streaming && !response.is_final) Bad("a second response", client.id);
    if (!response.is_final && response.output_ids.empty() && response.beams.empty())
      Bad("a response of nothing", client.id);
    if (!response.is_final && client.beams_length >= LengthOf(response.beams) &&
        !response.beams.empty())
      Bad("beams that are no longer than before", client.id);
    if (response.finish_reason == FinishReason::kCancelled &&
        client.beams_length > LengthOf(response.beams))
      Bad("a last word that is shorter than one before", client.id);
    client.beams_length = LengthOf(response.beams);
    if (!response.status.ok()) Bad(response.status.ToString(), client.id);
    if (!response.is_final) return;
    if (++client.num_final != 1) Bad("two final responses", client.id);
    CheckOutput(client, response);
    if (IsFifo() && num_turns_ > client.last_turn) Bad("ended too late", client.id);
    turns_of_live_ -= TurnsAlone(client.request);
    LeaveLine(client.id);
    entries_.erase(client.id);
    ++num_final_;
    num_cached_tokens_ += response.num_cached_tokens;
    live_.erase(client.id);
  }

  static size_t LengthOf(const std::vector<Beam>& beams) {
    return beams.empty() ? 0 : beams[0].output_ids.size();
  }

  void CheckOutput(const Client& client, const Response& response) {
    const ExpectedResult expected = ExpectedOutput(client.request, 97);
    if (response.finish_reason == FinishReason::kLength &&
        !std::equal(response.beams.begin(), response.beams.end(), expected.beams.begin(),
                    expected.beams.end(),
                    [](const Beam& a, const Beam& b) { return a.output_ids == b.output_ids; }))
      Bad("other beams than alone", client.id);
    switch (response.finish_reason) {
      case FinishReason::kTimedOut:
        ++num_timed_out_;
        if (!client.request.timeout_ms &&
            (!client.request.queue_timeout_us || response.times.first_scheduled_ns != 0)) {
          Bad("timed out without a deadline", client.id);
        }
        if (!client.request.streaming && !client.ids.empty()) Bad("tokens after all", client.id);
        break;
      case FinishReason::kCancelled:
        ++num_cancelled_;
        if (!client.was_cancelled) Bad("cancelled by nobody", client.id);
        break;
      default:
        if (!client.request.draft_ids.empty() && response.finish_reason == FinishReason::kLength) {
          // One step yielded as many of them as were accepted, and one more.
          if (client.ids.empty() || client.ids.size() > client.request.draft_ids.size() + 1)
            Bad("not one step", client.id);
          break;
        }
        if (response.finish_reason != expected.reason) Bad("another finish reason", client.id);
        if (client.ids.size() != expected.ids.size()) Bad("another length", client.id);
        if (response.cum_log_prob != expected.cum_log_prob) Bad("cum_log_prob", client.id);
    }
    if (client.ids.size() > expected.ids.size() ||
        !std::equal(client.ids.begin(), client.ids.end(), expected.ids.begin()) ||
        !std::equal(client.log_probs.begin(), client.log_probs.end(), expected.log_probs.begin()))
      Bad("other tokens than alone", client.id);
  }

  void CheckEnd(int64_t arrivals) {
    harness_.RunUntilIdle();
    const ExecutorStats stats = harness_.loop.stats();
    EXPECT_EQ(num_final_, arrivals);
    EXPECT_EQ(stats.kv_blocks_used, 0);
    EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_max);
    EXPECT_EQ(stats.num_active_requests, 0);
    EXPECT_EQ(stats.num_queued_requests, 0);
    EXPECT_EQ(stats.requests_cancelled, num_cancelled_);
    EXPECT_EQ(stats.requests_timed_out, num_timed_out_);
    EXPECT_EQ(stats.requests_completed, arrivals - num_cancelled_ - num_timed_out_);
    EXPECT_EQ(stats.requests_failed, 0);
    EXPECT_EQ(stats.num_paused_requests, 0);
    EXPECT_GE(stats.num_pauses, num_resumes_);
    if (world_.policy != kMaxUtilization) {
      EXPECT_EQ(stats.num_pauses, 0);
    } else if (arrivals > 1000) {
      EXPECT_GT(num_resumes_, arrivals / 100) << "memory was not under pressure";
    }
    EXPECT_EQ(stats.kv_blocks_alloc_total, stats.kv_blocks_alloc_new + stats.kv_blocks_reused);
    if (!world_.prefix_reuse) {
      EXPECT_EQ(num_cached_tokens_, 0);
    }
    if (world_.prefix_reuse && arrivals > 1000) {
      EXPECT_GT(num_cached_tokens_, 0);
    }
    EXPECT_EQ(stats.kv_host_blocks_max, world_.num_host_blocks * std::ssize(world_.block_sizes));
    EXPECT_GE(stats.kv_blocks_offloaded, stats.kv_blocks_onboarded);
    if (world_.num_host_blocks == 0) {
      EXPECT_EQ(stats.kv_blocks_offloaded, 0);
    } else if (arrivals > 1000) {
      EXPECT_GT(stats.kv_blocks_onboarded, arrivals / 100) << "nothing came back from the host";
    }
    if (world_.depth == 1) {
      EXPECT_EQ(harness_.backend.num_wasted_rows(), 0);
    }
    std::cout << world_.name << ": " << arrivals << " arrivals, " << stats.num_steps << " steps, "
              << num_cancelled_ << " cancelled, " << num_timed_out_ << " timed out, "
              << num_cached_tokens_ << " tokens reused, " << harness_.backend.num_wasted_rows()
              << " rows wasted, longest wait " << longest_wait_ << " starts, " << stats.num_pauses
              << " pauses, " << stats.tokens_recomputed << " tokens computed again\n";
  }

  void Bad(const std::string& what, RequestId id) {
    if (num_bad_++ == 0) first_bad_ = "request " + std::to_string(id) + ": " + what;
  }

  const World world_;
  std::mt19937_64 random_;
  std::array<std::vector<TokenId>, 8> prefixes_;
  std::unordered_map<RequestId, std::shared_ptr<Client>> live_;
  std::vector<RequestId> order_;                             // recent arrivals
  std::unordered_map<RequestId, Waiting> entries_;           // of all live requests
  std::unordered_map<scheduler::SlotId, RequestId> owners_;  // who got the slot last
  std::set<Waiting> line_;                                   // who is known to wait
  std::set<Waiting> paused_;                                 // of them, those that had started
  std::map<std::pair<float, uint64_t>, double> turn_ends_;   // by priority and client
  std::map<float, double> turn_now_;                         // by priority
  int64_t turns_of_live_ = 0;
  int64_t num_turns_ = 0, num_final_ = 0, num_cancelled_ = 0, num_timed_out_ = 0;
  int64_t num_starts_ = 0, num_resumes_ = 0, longest_wait_ = 0, num_cached_tokens_ = 0;
  int num_bad_ = 0;
  std::string first_bad_;
  LoopHarness harness_;
};

class SimulationTest : public ::testing::TestWithParam<World> {};

TEST_P(SimulationTest, EveryRequestIsAnsweredOnceAndAsIfAlone) {
  Simulation simulation(GetParam(), /*seed=*/20'240'815);
  const auto num_worlds = std::count_if(Worlds().begin(), Worlds().end(), [](const World& world) {
    return world.policy == GetParam().policy;
  });
  simulation.Run(1 + NumArrivals() / num_worlds);
}

INSTANTIATE_TEST_SUITE_P(Worlds, SimulationTest, ::testing::ValuesIn(Worlds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace inflight::testing
