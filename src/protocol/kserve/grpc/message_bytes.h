// SPDX-License-Identifier: Apache-2.0
// Messages <-> the bytes that gRPC carries. What clients compress is unpacked while it is parsed,
// within the limit; what cannot be parsed is told to the client in the words of the contract; and a
// response is written once, by the thread that made it.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/memory_account.h"
#include "protocol/grpc_listener/rpc.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/part_count.h"

namespace inflight::kserve_grpc {

using grpc_listener::Coding;

// A message on an arena of its own, which goes with it. Where memory runs out while a message is
// filled, protobuf leaves maps behind that cannot be destroyed; an arena frees them as bytes.
template <typename Message>
std::shared_ptr<Message> MakeOnArena() {
  auto arena = std::make_shared<google::protobuf::Arena>();
  Message* const message = google::protobuf::Arena::CreateMessage<Message>(arena.get());
  return {std::move(arena), message};
}

enum class ParseFailure {
  kNone,
  kNoMessage,  // not such a message
  kBroken,     // compressed, and the data cannot be unpacked
  kTooLarge,   // compressed, and unpacks to more than the limit
  kManyParts,  // more than part_count.h lets it have
  kNoRoom,     // the account of memory has none for it
};

// Whether a message with these parts is to be parsed; may fill what else is needed of it.
using IsWanted = std::function<bool(const PartCount&)>;

// Parses what was sent as it is, or compressed and at most `max_bytes` unpacked; for what was sent
// as it is the listener keeps the limit. Objects are made once their number is known and charged to
// `charge`. A message that is not wanted is left as it is, with kNone.
ParseFailure ParseMessage(const grpc_listener::RpcMessage& message, int64_t max_bytes,
                          MemoryCharge& charge, google::protobuf::Message& out,
                          const IsWanted& is_wanted = {});

// What the client is told: INTERNAL `Unable to parse request` or that its data is broken,
// RESOURCE_EXHAUSTED; INVALID_ARGUMENT for too many parts.
Status ToGrpcStatus(ParseFailure failure, int64_t max_bytes);

// The message with its prefix, compressed where that makes it smaller. An error where it is over
// the 2 GiB that fit in one.
Status WriteMessage(const google::protobuf::Message& message, Coding coding, std::string& out);

// The message that `fill` makes, written. It lives in an arena on the stack, which holds a response
// with a few outputs.
template <typename Message, typename Fill>
Status FillAndWrite(Fill fill, Coding coding, std::string& out) {
  try {
    std::array<char, 2048> block;
    google::protobuf::Arena arena(block.data(), block.size());
    auto& message = *google::protobuf::Arena::CreateMessage<Message>(&arena);
    fill(message);
    return WriteMessage(message, coding, out);
  } catch (const std::bad_alloc&) {
    return NoMemoryFor("the response");
  }
}

}  // namespace inflight::kserve_grpc
