// SPDX-License-Identifier: Apache-2.0
// What the first process of a group says to another, one message after the other, until it says
// goodbye.
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "comm/rendezvous.h"

namespace inflight {

// To all but the first.
Status TellOthers(comm::Group& group, std::span<const std::byte> message);
// TellOthers, at the end: then they end without an error.
Status TellGoodbye(comm::Group& group);

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string_view TextOf(std::span<const std::byte> message) {
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

class LeaderMessages {
 public:
  // Both outlive it.
  LeaderMessages(comm::Group& group, const std::function<bool()>& is_asked_to_stop)
      : group_(group), is_asked_to_stop_(is_asked_to_stop) {}

  // kCancelled where it is goodbye. kUnavailable where the group is over, the first process left
  // without a goodbye, or has said none 2 minutes after `is_asked_to_stop` was true.
  Result<std::vector<std::byte>> Next();

 private:
  comm::Group& group_;
  const std::function<bool()>& is_asked_to_stop_;
  comm::Deadline stop_by_ = {};
};

}  // namespace inflight
