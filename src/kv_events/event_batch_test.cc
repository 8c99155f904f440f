// SPDX-License-Identifier: Apache-2.0
// The bytes are written by hand from MessagePack's specification. tests/protocol/test_kv_events.py
// reads batches with a decoder of vLLM's types.
#include "kv_events/event_batch.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::kv_events {
namespace {

std::string Bytes(std::initializer_list<int> bytes) {
  std::string text;
  for (const int byte : bytes) text.push_back(static_cast<char>(byte));
  return text;
}

// 1.5 seconds: float 64 of 0x3ff8000000000000
const std::string kHead = Bytes({0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0});
const std::string kNil = Bytes({0xc0});
const std::string kRank = Bytes({0});

std::string Text(const std::string& text) {  // shorter than 32 bytes
  return Bytes({0xa0 | static_cast<int>(text.size())}) + text;
}

Event Stored(uint64_t hash, uint64_t parent, std::vector<TokenId> tokens) {
  return {.is_stored = true,
          .has_parent = parent != 0,
          .hash = hash,
          .parent_hash = parent,
          .tokens = std::move(tokens)};
}

TEST(EventBatchTest, BlocksThatGoOnFromOneAnotherAreOneEntry) {
  const std::vector<Event> events = {Stored(7, 0, {1, 2}), Stored(8, 7, {3, 300}),
                                     Stored(9, 7, {4, 5})};
  EXPECT_EQ(EncodeBatch(1.5, false, events, {}),
            kHead + Bytes({0x92}) +
                // hashes 7 and 8, no parent, four tokens (300 is uint 16), two a block
                Bytes({0x98}) + Text("BlockStored") + Bytes({0x92, 7, 8}) + kNil +
                Bytes({0x94, 1, 2, 3, 0xcd, 0x01, 0x2c, 2}) + kNil + Text("GPU") + kNil +
                // hash 9 after 7: it does not go on from 8
                Bytes({0x98}) + Text("BlockStored") + Bytes({0x91, 9, 7}) + Bytes({0x92, 4, 5, 2}) +
                kNil + Text("GPU") + kNil + kRank);
}

TEST(EventBatchTest, ASaltIsAnExtraKeyOfEachBlock) {
  Event event = Stored(7, 0, {1});
  event.salt = 5;
  event.medium = KvMedium::kHost;
  EXPECT_EQ(EncodeBatch(1.5, false, std::span(&event, 1), {.device = "GPU", .host = "CPU"}),
            kHead + Bytes({0x91, 0x99}) + Text("BlockStored") + Bytes({0x91, 7}) + kNil +
                Bytes({0x91, 1, 1}) + kNil + Text("CPU") + kNil + Bytes({0x91, 0x91, 5}) + kRank);
}

TEST(EventBatchTest, RemovedBlocksOfOneMediumAreOneEntry) {
  const std::vector<Event> events = {
      {.hash = 1}, {.hash = 2}, {.medium = KvMedium::kHost, .hash = 3}};
  EXPECT_EQ(EncodeBatch(1.5, true, events, {}),
            kHead + Bytes({0x93, 0x91}) + Text("AllBlocksCleared") +  //
                Bytes({0x93}) + Text("BlockRemoved") + Bytes({0x92, 1, 2}) + Text("GPU") +
                Bytes({0x93}) + Text("BlockRemoved") + Bytes({0x91, 3}) + Text("CPU") + kRank);
}

TEST(EventBatchTest, AHashMayHaveAll64Bits) {
  const Event event = {.hash = ~uint64_t{0}};
  EXPECT_EQ(EncodeBatch(1.5, false, std::span(&event, 1), {}),
            kHead + Bytes({0x91, 0x93}) + Text("BlockRemoved") +
                Bytes({0x91, 0xcf, 255, 255, 255, 255, 255, 255, 255, 255}) + Text("GPU") + kRank);
}

}  // namespace
}  // namespace inflight::kv_events
