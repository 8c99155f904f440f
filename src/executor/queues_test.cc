// SPDX-License-Identifier: Apache-2.0
// The rings, the seqlock, the inbox and the stream threads, each with its real threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "executor/inbox.h"
#include "executor/mpsc_ring.h"
#include "executor/seqlock.h"
#include "executor/spsc_ring.h"
#include "executor/streams.h"

namespace inflight::executor {
namespace {

TEST(SpscRingTest, HoldsItsCapacityInOrder) {
  SpscRing<int> ring(4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.Push(i));
  EXPECT_FALSE(ring.Push(4));
  int value = -1;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(ring.Pop(&value));
    EXPECT_EQ(value, i);
  }
  EXPECT_FALSE(ring.Pop(&value));
  EXPECT_TRUE(ring.empty());
}

TEST(SpscRingTest, CarriesEverythingBetweenTwoThreads) {
  constexpr int kCount = 20'000;
  SpscRing<int> ring(1024);
  std::thread producer([&] {
    for (int i = 0; i < kCount; ++i) {
      while (!ring.Push(i)) std::this_thread::yield();
    }
  });
  int value = -1;
  for (int i = 0; i < kCount; ++i) {
    while (!ring.Pop(&value)) std::this_thread::yield();
    ASSERT_EQ(value, i);
  }
  producer.join();
}

TEST(MpscRingTest, IsFullAtItsCapacityAndThenGoesRound) {
  MpscRing<int> ring(2);
  EXPECT_TRUE(ring.Push(1));
  EXPECT_TRUE(ring.Push(2));
  EXPECT_FALSE(ring.Push(3));
  int value = 0;
  EXPECT_TRUE(ring.Pop(&value));
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(ring.Push(3));
  EXPECT_FALSE(ring.all_popped());
  EXPECT_TRUE(ring.Pop(&value));
  EXPECT_TRUE(ring.Pop(&value));
  EXPECT_EQ(value, 3);
  EXPECT_TRUE(ring.empty());
  EXPECT_TRUE(ring.all_popped());
}

TEST(MpscRingTest, KeepsTheOrderOfEachProducer) {
  constexpr int kProducers = 3, kCount = 4'000;
  MpscRing<std::array<int, 2>> ring(1024);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&ring, p] {
      for (int i = 0; i < kCount; ++i) {
        while (!ring.Push({p, i})) std::this_thread::yield();
      }
    });
  }
  std::array<int, kProducers> next{};
  std::array<int, 2> value{};
  for (int i = 0; i < kProducers * kCount; ++i) {
    while (!ring.Pop(&value)) std::this_thread::yield();
    ASSERT_EQ(value[1], next[static_cast<size_t>(value[0])]++);
  }
  for (std::thread& producer : producers) producer.join();
}

TEST(SeqLockTest, ReadersSeeWholeValues) {
  struct Pair {
    int64_t a = 0, b = 0, c = 0;
  };
  SeqLock<Pair> lock;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int64_t i = 1; !stop.load(); ++i) lock.Store({i, 2 * i, 3 * i});
  });
  int64_t last = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Pair pair = lock.Load();
    ASSERT_EQ(pair.b, 2 * pair.a);
    ASSERT_EQ(pair.c, 3 * pair.a);
    ASSERT_GE(pair.a, last);
    last = pair.a;
  }
  stop.store(true);
  writer.join();
}

std::unique_ptr<ActiveRequest> SmallRequest(RequestId id) {
  Request request;
  request.input_ids = {1};
  request.max_tokens = 1;
  return MakeActiveRequest(id, std::move(request), nullptr, /*now_ns=*/1);
}

TEST(InboxTest, RefusesMoreThanItsLimitUntilSomeLeftTheQueue) {
  Inbox inbox(2);
  EXPECT_TRUE(inbox.Push(SmallRequest(1)));
  EXPECT_TRUE(inbox.Push(SmallRequest(2)));
  EXPECT_FALSE(inbox.Push(SmallRequest(3)));
  const auto popped = inbox.Pop();
  EXPECT_EQ(popped->id, 1u);
  EXPECT_FALSE(inbox.Push(SmallRequest(3))) << "taken, but still waiting to be admitted";
  inbox.LeftQueue();
  EXPECT_TRUE(inbox.Push(SmallRequest(3)));
  EXPECT_EQ(inbox.Pop()->id, 2u);
  EXPECT_EQ(inbox.Pop()->id, 3u);
  EXPECT_EQ(inbox.Pop(), nullptr);
}

constexpr int64_t kTooLongNs = 60'000'000'000;
constexpr std::chrono::seconds kPatience{20};

// Whether a loop that sleeps in `inbox` goes on when `news` comes.
bool IsWokenBy(Inbox& inbox, const std::function<void()>& news) {
  std::future<void> awake = std::async(std::launch::async, [&] { inbox.WaitForNews(kTooLongNs); });
  while (!inbox.is_sleeping()) std::this_thread::yield();
  news();
  return awake.wait_for(kPatience) == std::future_status::ready;
}

TEST(InboxTest, SleeperIsWokenByARequestACancelAndAHold) {
  Inbox inbox(8);
  EXPECT_TRUE(IsWokenBy(inbox, [&] { inbox.Push(SmallRequest(1)); }));
  const auto request = inbox.Pop();
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(request->id, 1u);
  EXPECT_TRUE(IsWokenBy(inbox, [&] { inbox.Cancel(7); }));
  std::vector<RequestId> cancels;
  inbox.TakeCancels(&cancels);
  EXPECT_THAT(cancels, ::testing::ElementsAre(7));
  EXPECT_TRUE(IsWokenBy(inbox, [&] { inbox.Hold(7, true); }));
  inbox.Hold(7, false);
  std::vector<HoldNews> holds;
  inbox.TakeHolds(&holds);
  EXPECT_THAT(holds, ::testing::ElementsAre(HoldNews{7, true}, HoldNews{7, false}));
  EXPECT_FALSE(inbox.has_holds());
  EXPECT_TRUE(IsWokenBy(inbox, [&] { inbox.CancelAllAt(5); }));
  EXPECT_EQ(inbox.cancel_all_ns(), 5);
}

TEST(InboxTest, NobodySleepsOverWhatIsThere) {
  for (const bool is_cancel : {false, true}) {
    Inbox inbox(8);
    if (is_cancel) {
      inbox.Cancel(7);
    } else {
      inbox.Push(SmallRequest(1));
    }
    std::future<void> awake =
        std::async(std::launch::async, [&] { inbox.WaitForNews(kTooLongNs); });
    EXPECT_EQ(awake.wait_for(kPatience), std::future_status::ready);
    awake.wait();
    inbox.Pop();
  }
}

// Counts, and remembers what a request got.
struct CountingSink : ResponseSink {
  void OnResponse(Response response) override {
    ids.insert(ids.end(), response.output_ids.begin(), response.output_ids.end());
    ++num_responses;
    if (response.is_final) ++num_final;
    if (throws) throw std::runtime_error("a sink's own trouble");
  }
  std::vector<TokenId> ids;
  int num_responses = 0, num_final = 0;
  bool throws = false;
};

Stream* NewStream(StreamHub& hub, RequestId id, bool streaming,
                  std::shared_ptr<ResponseSink> sink) {
  Request request;
  request.streaming = streaming;
  hub.Open();
  return new Stream(request, id, std::move(sink));
}

void PushToken(StreamHub& hub, Stream* stream, TokenId token, uint8_t flags) {
  hub.Push({.stream = stream,
            .token = token,
            .flags = static_cast<uint8_t>(flags | StreamEvent::kToken)});
}

constexpr uint8_t kEnd =
    StreamEvent::kStepEnd | StreamEvent::kSequenceEnd | StreamEvent::kRequestEnd;

TEST(StreamHubTest, TokensOfOneStepAreOneResponse) {
  auto sink = std::make_shared<CountingSink>();
  StreamHub hub(0);
  Stream* stream = NewStream(hub, 1, /*streaming=*/true, sink);
  PushToken(hub, stream, 10, 0);
  PushToken(hub, stream, 11, StreamEvent::kStepEnd);
  hub.Pump();
  EXPECT_EQ(sink->num_responses, 1);
  EXPECT_EQ(hub.num_open(), 1);
  PushToken(hub, stream, 12, kEnd);
  hub.Pump();
  EXPECT_EQ(sink->num_responses, 2);
  EXPECT_EQ(sink->num_final, 1);
  EXPECT_THAT(sink->ids, ::testing::ElementsAre(10, 11, 12));
  EXPECT_EQ(hub.num_open(), 0);
  EXPECT_EQ(sink.use_count(), 1) << "the reference is dropped after the final response";
}

TEST(StreamHubTest, FullRingLosesNothingAndKeepsOrder) {
  auto sink = std::make_shared<CountingSink>();
  StreamHub hub(0, /*ring_events=*/4);
  Stream* stream = NewStream(hub, 1, /*streaming=*/false, sink);
  for (int i = 0; i < 100; ++i) PushToken(hub, stream, i, StreamEvent::kStepEnd);
  EXPECT_TRUE(hub.has_backlog());
  PushToken(hub, stream, 100, kEnd);
  hub.Pump();
  EXPECT_FALSE(hub.has_backlog());
  EXPECT_EQ(sink->num_responses, 1);
  ASSERT_EQ(sink->ids.size(), 101u);
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(sink->ids[static_cast<size_t>(i)], i);
}

TEST(StreamHubTest, SinkThatThrowsHurtsNobody) {
  auto bad = std::make_shared<CountingSink>();
  bad->throws = true;
  auto good = std::make_shared<CountingSink>();
  StreamHub hub(0);
  Stream* first = NewStream(hub, 1, true, bad);
  Stream* second = NewStream(hub, 2, true, good);
  PushToken(hub, first, 1, kEnd);
  PushToken(hub, second, 2, kEnd);
  hub.Pump();
  EXPECT_EQ(bad->num_final, 1);
  EXPECT_EQ(good->num_final, 1);
  EXPECT_EQ(hub.num_open(), 0);
}

TEST(StreamHubTest, ThreadsDeliverEachRequestInOrder) {
  constexpr int kStreams = 50, kSteps = 200;
  std::vector<std::shared_ptr<CountingSink>> sinks;
  {
    StreamHub hub(2, /*ring_events=*/64);
    std::vector<Stream*> streams;
    for (int i = 0; i < kStreams; ++i) {
      sinks.push_back(std::make_shared<CountingSink>());
      streams.push_back(NewStream(hub, static_cast<RequestId>(i), i % 2 == 0, sinks.back()));
    }
    for (int step = 0; step < kSteps; ++step) {
      for (Stream* stream : streams) {
        PushToken(hub, stream, step, step + 1 == kSteps ? kEnd : uint8_t{StreamEvent::kStepEnd});
      }
      hub.Flush();
    }
    while (hub.has_backlog()) {
      hub.Flush();
      std::this_thread::yield();
    }
    hub.WaitUntilAllClosed();
  }
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->num_final, 1);
    ASSERT_EQ(sink->ids.size(), static_cast<size_t>(kSteps));
    EXPECT_TRUE(std::is_sorted(sink->ids.begin(), sink->ids.end()));
  }
}

}  // namespace
}  // namespace inflight::executor
