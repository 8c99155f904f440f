// SPDX-License-Identifier: Apache-2.0
// Puts messages together from the bytes of a stream. One message is complete at a time; what came
// after it waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/grpc_listener/rpc.h"
#include "protocol/grpc_listener/wire.h"

namespace inflight::grpc_listener {

class MessageReader {
 public:
  // A message has at most `max_bytes` as it is sent.
  MessageReader(std::shared_ptr<AccountShare> share, Coding coding, size_t max_bytes)
      : share_(std::move(share)), coding_(coding), max_bytes_(max_bytes), backlog_charge_(share_) {}

  // Takes what came. An error ends the call, and nothing is added any more.
  Status Add(std::string_view bytes);

  bool HasMessage() const { return is_complete_; }
  // Once there is one. What waited is then looked at: its error ends the call.
  RpcMessage Take(Status& status);

  // Part of a message is there, and its rest is to come.
  bool IsWithinMessage() const { return !is_complete_ && num_prefix_bytes_ > 0; }
  bool HasBacklog() const { return !backlog_.empty(); }
  // When the first byte of the message that is complete came; monotonic clock.
  int64_t started_ns() const { return started_ns_; }

 private:
  Status AddSome(std::string_view& bytes);
  Status BeginMessage();
  Status Reserve(size_t num_bytes);

  const std::shared_ptr<AccountShare> share_;
  const Coding coding_;
  const size_t max_bytes_;
  Prefix prefix_{};
  size_t num_prefix_bytes_ = 0;
  size_t length_ = 0;  // of the message, once the prefix is there
  RpcMessage message_;
  bool is_complete_ = false;
  int64_t started_ns_ = 0;
  std::string backlog_;
  MemoryCharge backlog_charge_;
};

}  // namespace inflight::grpc_listener
