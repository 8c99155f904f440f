// SPDX-License-Identifier: Apache-2.0
#include "loader/leader_messages.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"

namespace inflight {
namespace {

constexpr std::string_view kGoodbye = "goodbye";

}  // namespace

Status TellOthers(comm::Group& group, std::span<const std::byte> message) {
  for (int rank = 1; rank < group.size(); ++rank) RETURN_IF_ERROR(group.Send(rank, message));
  return Status::Ok();
}

Status TellGoodbye(comm::Group& group) { return TellOthers(group, BytesOf(kGoodbye)); }

Result<std::vector<std::byte>> LeaderMessages::Next() {
  constexpr std::chrono::milliseconds kLook{200};
  constexpr std::chrono::minutes kPatience{2};  // with a leader that does not stop
  while (true) {
    const auto now = std::chrono::steady_clock::now();
    if (is_asked_to_stop_() && stop_by_ == comm::Deadline()) stop_by_ = now + kPatience;
    if (stop_by_ != comm::Deadline() && now > stop_by_)
      return Unavailable("asked to stop, and rank 0 goes on");
    auto message = group_.Receive(0, now + kLook);
    if (message.status().code() == StatusCode::kCancelled)
      return Unavailable("rank 0 left without a goodbye: see its log");
    if (message.ok() && TextOf(*message) == kGoodbye) return Cancelled(std::string(kGoodbye));
    if (message.ok() || message.status().code() != StatusCode::kDeadlineExceeded) return message;
  }
}

}  // namespace inflight
