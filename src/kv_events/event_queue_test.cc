// SPDX-License-Identifier: Apache-2.0
#include "kv_events/event_queue.h"

#include <gtest/gtest.h>

namespace inflight::kv_events {
namespace {

TEST(EventQueueTest, GivesEventsInTheirOrderOnce) {
  EventQueue queue(10);
  const std::vector<TokenId> tokens = {1, 2};
  EXPECT_TRUE(queue.AddStored({.hash = 3, .tokens = tokens, .salt = 4}));
  EXPECT_FALSE(queue.AddRemoved(5, KvMedium::kHost));
  std::vector<Event> events(1);
  EXPECT_FALSE(queue.Take(&events).were_dropped);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_TRUE(events[0].is_stored);
  EXPECT_EQ(events[0].tokens, tokens);
  EXPECT_EQ(events[0].salt, 4U);
  EXPECT_FALSE(events[1].is_stored);
  EXPECT_EQ(events[1].hash, 5U);
  EXPECT_FALSE(queue.Take(&events).were_dropped);
  EXPECT_TRUE(events.empty());
}

TEST(EventQueueTest, WhoFallsBehindIsToldThatEventsWereDropped) {
  EventQueue queue(2);
  for (uint64_t hash = 1; hash <= 4; ++hash) queue.AddRemoved(hash, KvMedium::kDevice);
  std::vector<Event> events;
  EXPECT_TRUE(queue.Take(&events).were_dropped);
  ASSERT_EQ(events.size(), 1U) << "1, 2 and 3 were dropped";
  EXPECT_EQ(events[0].hash, 4U);
  EXPECT_FALSE(queue.Take(&events).were_dropped);
  queue.Drop();
  EXPECT_TRUE(queue.Take(&events).were_dropped);
}

}  // namespace
}  // namespace inflight::kv_events
