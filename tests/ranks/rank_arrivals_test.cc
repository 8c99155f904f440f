// SPDX-License-Identifier: Apache-2.0
// Requests that arrive at random at a model on ranks, more than its KV cache holds, some of which
// are cancelled: each ends once, and with the tokens that one rank gives it alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>

#include "artifact/checkpoint.h"
#include "base/check.h"
#include "builder/builder.h"
#include "executor/executor.h"
#include "executor/local_backend.h"
#include "executor/ranked_backend.h"
#include "run_requests.h"

namespace inflight {
namespace {

using artifact::RankMapping;

// In all; two ranks that share layers have most of them, since more are slow where there are fewer
// cores.
int NumArrivals(const RankMapping& ranks) {
  const char* value = std::getenv("INFLIGHT_RANK_ARRIVALS");  // scripts/sanitize.sh: fewer
  const int all = value != nullptr ? std::atoi(value) : 100000;
  return ranks.tp_size == 2 && ranks.pp_size == 1 ? all - all / 5 : all / 10;
}

constexpr int kMaxOutstanding = 48;

struct Kind {
  Request request;
  std::vector<TokenId> ids;  // by one rank, alone
};

std::shared_ptr<const model::Engine> OpenPart(Device& device, const RankMapping& ranks, int rank) {
  auto engine =
      builder::Open(std::filesystem::path(INFLIGHT_GOLDEN_DATA) / "llama_gqa2", device,
                    {.dtype = DType::kF32, .limits = std::nullopt, .ranks = ranks, .rank = rank});
  CHECK(engine.ok());
  return *std::move(engine);
}

ExecutorOptions SmallOptions() {
  ExecutorOptions options;
  options.block_size = 16;
  options.max_batch_size = 16;
  options.max_num_tokens = 48;
  options.max_kv_tokens = 144;  // sixteen sequences may need 480
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  return options;
}

std::vector<std::vector<TokenId>> IdsAlone(const std::vector<Request>& requests) {
  const auto device = Device::Cpu(1);
  const auto executor = MakeExecutor(OpenPart(*device, {}, 0), *device, SmallOptions());
  std::vector<std::vector<TokenId>> ids;
  for (const auto& sink : RunAll(*executor, requests)) ids.push_back(sink->ids);
  return ids;
}

std::vector<Kind> MakeKinds(std::mt19937& random) {
  std::vector<Kind> kinds(60);
  const auto number = [&](int n) { return static_cast<int>(random() % n) + 1; };
  std::vector<Request> requests;
  for (Kind& kind : kinds) {
    kind.request.max_tokens = number(10);
    for (int n = number(20); n > 0; --n) kind.request.input_ids.push_back(number(200));
    requests.push_back(kind.request);
  }
  const std::vector<std::vector<TokenId>> ids = IdsAlone(requests);
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i].ids = ids[i];
  return kinds;
}

// What has ended, of all requests.
struct Crowd {
  std::mutex mutex;
  std::condition_variable changed;
  int num_outstanding = 0;
  int num_ended = 0, num_cancelled = 0, num_wrong = 0, num_ended_twice = 0;
};

class Member : public ResponseSink {
 public:
  Member(Crowd& crowd, const Kind& kind) : crowd_(crowd), kind_(kind) {}

  void OnResponse(Response response) override {
    ids_.insert(ids_.end(), response.output_ids.begin(), response.output_ids.end());
    if (!response.is_final) return;
    const bool is_cancelled = response.finish_reason == FinishReason::kCancelled;
    const bool is_right = is_cancelled ? ids_.size() <= kind_.ids.size() &&
                                             std::equal(ids_.begin(), ids_.end(), kind_.ids.begin())
                                       : ids_ == kind_.ids;
    const std::lock_guard lock(crowd_.mutex);
    crowd_.num_ended_twice += has_ended_ ? 1 : 0;
    has_ended_ = true;
    crowd_.num_wrong += is_right && response.status.ok() ? 0 : 1;
    crowd_.num_cancelled += is_cancelled ? 1 : 0;
    ++crowd_.num_ended;
    --crowd_.num_outstanding;
    crowd_.changed.notify_all();
  }

 private:
  Crowd& crowd_;
  const Kind& kind_;
  std::vector<TokenId> ids_;
  bool has_ended_ = false;
};

class RankArrivals : public testing::TestWithParam<RankMapping> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RankArrivals,
                         testing::Values(RankMapping{2, 1}, RankMapping{1, 2}, RankMapping{2, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.tp_size) + "x" +
                                  std::to_string(info.param.pp_size);
                         });

TEST_P(RankArrivals, EachEndsOnceAndAsOnOneRank) {
  std::mt19937 random(20261126);
  const std::vector<Kind> kinds = MakeKinds(random);
  const auto device = Device::Cpu(1);
  std::vector<std::shared_ptr<const model::Engine>> engines;
  for (int rank = 0; rank < GetParam().num_ranks(); ++rank)
    engines.push_back(OpenPart(*device, GetParam(), rank));
  auto backend = executor::CreateRankedBackend(engines, *device, SmallOptions(), {}, {});
  ASSERT_TRUE(backend.ok()) << backend.status().ToString();
  const int num_arrivals = NumArrivals(GetParam());
  Crowd crowd;
  auto executor = executor::CreateExecutor(std::move(backend->backend), SmallOptions());
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  // The first come at once, and nine have room until each needs a second block.
  Kind long_one;
  long_one.request.input_ids = {7, 1, 5, 3, 9, 4, 8, 2, 6, 11, 13, 12, 17, 15};
  long_one.request.max_tokens = 10;
  long_one.ids = IdsAlone({long_one.request}).front();
  for (int i = 0; i < num_arrivals; ++i) {
    const bool is_one_of_the_first = i < kMaxOutstanding;
    {
      std::unique_lock lock(crowd.mutex);
      const int room =
          is_one_of_the_first ? kMaxOutstanding : static_cast<int>(random() % kMaxOutstanding) + 1;
      crowd.changed.wait(lock, [&] { return crowd.num_outstanding < room; });
      ++crowd.num_outstanding;
    }
    const Kind& kind = is_one_of_the_first ? long_one : kinds[random() % kinds.size()];
    const auto id = (*executor)->Enqueue(kind.request, std::make_shared<Member>(crowd, kind));
    ASSERT_TRUE(id.ok()) << id.status().ToString();
    if (random() % 8 == 0) (*executor)->Cancel(*id);
  }
  {
    std::unique_lock lock(crowd.mutex);
    crowd.changed.wait(lock, [&] { return crowd.num_outstanding == 0; });
  }
  EXPECT_EQ(crowd.num_ended, num_arrivals);
  EXPECT_EQ(crowd.num_ended_twice, 0);
  EXPECT_EQ(crowd.num_wrong, 0);
  EXPECT_GT(crowd.num_cancelled, 0);
  const ExecutorStats stats = (*executor)->stats();
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_max);
  EXPECT_EQ(stats.requests_completed + stats.requests_cancelled, num_arrivals);
  EXPECT_GT(stats.num_pauses, 0) << "memory was never short";
}

}  // namespace
}  // namespace inflight
