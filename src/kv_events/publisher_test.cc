// SPDX-License-Identifier: Apache-2.0
// What a publisher sends is read by tests/protocol/test_kv_events.py.
#include "kv_events/publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace inflight::kv_events {
namespace {

using ::testing::HasSubstr;

std::string Endpoint() {
  return "ipc://" +
         (std::filesystem::temp_directory_path() / ("inflight_kv_" + std::to_string(getpid())))
             .string();
}

TEST(PublisherTest, EndsAtOnceThoughNobodyListens) {
  const auto publisher = Publish({.endpoint = Endpoint()}, {});
  ASSERT_TRUE(publisher.ok()) << publisher.status().ToString();
  const std::vector<TokenId> tokens = {1, 2};
  for (uint64_t hash = 1; hash < 1000; ++hash) {
    (*publisher)->OnStored({.hash = hash, .tokens = tokens});
    (*publisher)->OnRemoved(hash, KvMedium::kDevice);
  }
}

TEST(PublisherTest, RefusesWhatCannotBeBound) {
  for (const char* endpoint : {"5557", "tcp://nowhere:1", "tcp://127.0.0.1:port"}) {
    const Status status = Publish({.endpoint = endpoint}, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << endpoint;
    EXPECT_THAT(status.ToString(), HasSubstr("kv_events_endpoint")) << endpoint;
    EXPECT_THAT(status.ToString(), HasSubstr(endpoint));
  }
  const Status status =
      Publish({.endpoint = Endpoint(), .replay_endpoint = "tcp://127.0.0.1:port"}, {}).status();
  EXPECT_THAT(status.ToString(), HasSubstr("kv_events_replay_endpoint"));
}

TEST(PublisherTest, RefusesAnEndpointTwice) {
  const auto first = Publish({.endpoint = "tcp://127.0.0.1:*"}, {});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const auto held = Publish({.endpoint = Endpoint()}, {});
  ASSERT_TRUE(held.ok());
  const Status status = Publish({.endpoint = "tcp://0.0.0.0:1", .buffer_steps = 0}, {}).status();
  EXPECT_THAT(status.ToString(), HasSubstr("kv_events_buffer_steps"));
}

}  // namespace
}  // namespace inflight::kv_events
