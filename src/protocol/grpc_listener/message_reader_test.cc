// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/message_reader.h"

#include <gtest/gtest.h>

#include "protocol/grpc_listener/echo_service.h"

namespace inflight::grpc_listener {
namespace {

struct Reading {
  std::shared_ptr<MemoryAccount> memory = MemoryAccount::Make(MemoryLimits::Of(8 * kMib));
  MessageReader reader{memory->NewConnection("c", [] {}), Coding::kGzip, 2 * kMib};

  std::string Take() {
    Status status;
    const RpcMessage message = reader.Take(status);
    EXPECT_TRUE(status.ok());
    return message.bytes;
  }
};

TEST(MessageReaderTest, MessagesAreTheSameHoweverTheirBytesCome) {
  const std::string sent = Framed("one") + Framed("") + Framed("three", true);
  for (size_t size = 1; size <= sent.size(); ++size) {
    Reading reading;
    std::vector<std::string> messages;
    for (size_t at = 0; at < sent.size(); at += size) {
      ASSERT_TRUE(reading.reader.Add(std::string_view(sent).substr(at, size)).ok());
      while (reading.reader.HasMessage()) messages.push_back(reading.Take());
    }
    EXPECT_EQ(messages, (std::vector<std::string>{"one", "", "three"})) << size;
    EXPECT_FALSE(reading.reader.IsWithinMessage());
  }
}

TEST(MessageReaderTest, WhatFollowsAMessageWaits) {
  Reading reading;
  ASSERT_TRUE(reading.reader.Add(Framed("a") + Framed("b").substr(0, 3)).ok());
  EXPECT_TRUE(reading.reader.HasBacklog());
  EXPECT_EQ(reading.Take(), "a");
  EXPECT_FALSE(reading.reader.HasBacklog());
  EXPECT_TRUE(reading.reader.IsWithinMessage());
}

TEST(MessageReaderTest, AFlagWithoutACodingIsAnError) {
  const auto memory = MemoryAccount::Make({});
  MessageReader plain(memory->NewConnection("c", [] {}), Coding::kIdentity, kMib);
  EXPECT_EQ(plain.Add(Framed("x", true)).code(), StatusCode::kInternal);
}

TEST(MessageReaderTest, AMessageBeyondTheLimitIsRefusedByItsLength) {
  Reading reading;
  EXPECT_TRUE(reading.reader.Add(Framed(std::string(2 * kMib, 'x'))).ok());
  Reading refusing;
  const Prefix prefix = MakePrefix(false, 2 * kMib + 1);
  const Status status = refusing.reader.Add({prefix.data(), prefix.size()});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message().substr(0, 56),
            "Received message larger than max (2097153 vs. 2097152); ");
}

TEST(MessageReaderTest, WhatComesIsChargedAndNotWhatIsAnnounced) {
  Reading reading;
  const std::string sent = Framed(std::string(2 * kMib, 'x'));
  ASSERT_TRUE(reading.reader.Add(std::string_view(sent).substr(0, 10)).ok());
  EXPECT_LE(reading.memory->used_bytes(), 16U * 1024);
  ASSERT_TRUE(reading.reader.Add(std::string_view(sent).substr(10)).ok());
  EXPECT_GE(reading.memory->used_bytes(), 2 * kMib);
  reading.Take();
  EXPECT_EQ(reading.memory->used_bytes(), 0U);
}

TEST(MessageReaderTest, WithoutRoomItIsRefused) {
  const auto memory = MemoryAccount::Make(MemoryLimits::Of(kMib));
  MessageReader reader(memory->NewConnection("c", [] {}), Coding::kIdentity, 2 * kMib);
  EXPECT_EQ(reader.Add(Framed(std::string(2 * kMib, 'x'))).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace inflight::grpc_listener
