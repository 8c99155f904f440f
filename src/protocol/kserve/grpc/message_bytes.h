// SPDX-License-Identifier: Apache-2.0
// Messages of the inference RPCs <-> the bytes that gRPC carries. These RPCs are served raw: what
// cannot be parsed is told to the client in the words of the contract, and a response is written
// once, by the thread that made it.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <array>

namespace inflight::kserve_grpc {

// False: not such a message. Empties `bytes`.
template <typename Message>
bool ParseMessage(::grpc::ByteBuffer& bytes, Message& out) {
  return ::grpc::SerializationTraits<Message>::Deserialize(&bytes, &out).ok();
}

// An error where the message is over the 2 GiB that fit in one.
template <typename Message>
::grpc::Status WriteMessage(const Message& message, ::grpc::ByteBuffer& out) {
  bool is_own = false;
  return ::grpc::SerializationTraits<Message>::Serialize(message, &out, &is_own);
}

// The message that `fill` makes, written. It lives in an arena on the stack, which holds a response
// with a few outputs.
template <typename Message, typename Fill>
::grpc::Status FillAndWrite(Fill fill, ::grpc::ByteBuffer& out) {
  std::array<char, 2048> block;
  google::protobuf::Arena arena(block.data(), block.size());
  auto& message = *google::protobuf::Arena::CreateMessage<Message>(&arena);
  fill(message);
  return WriteMessage(message, out);
}

}  // namespace inflight::kserve_grpc
