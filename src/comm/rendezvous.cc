// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "comm/meeting.h"
#include "comm/tcp_group.h"

namespace inflight::comm {
namespace {

constexpr int kMaxGroupRanks = 4096;

Status CheckWorld(const launch::World& world, const GroupOptions& options) {
  if (world.size < 1 || world.size > kMaxGroupRanks || world.rank < 0 || world.rank >= world.size)
    return InvalidArgument("rank", fmt::format("got {} of {}, must be below the number of ranks, "
                                               "which is from 1 to {}",
                                               world.rank, world.size, kMaxGroupRanks));
  if (options.silence < std::chrono::milliseconds(100))
    return InvalidArgument("silence",
                           fmt::format("got {} ms, must be at least 100", options.silence.count()));
  if (!world.leader_address.empty() || world.size == 1) return Status::Ok();
  return InvalidArgument("leader_address",
                         fmt::format("{} does not say where rank 0 is: set MASTER_ADDR to its "
                                     "host for all ranks",
                                     world.launcher.empty() ? "nobody" : world.launcher));
}

}  // namespace

Result<std::unique_ptr<Group>> Group::Join(const launch::World& world, const Agreement& agreement,
                                           Deadline deadline, const GroupOptions& options) {
  Descriptor listener(options.listener);
  RETURN_IF_ERROR(CheckWorld(world, options));
  if (world.size == 1)
    return std::unique_ptr<Group>(
        std::make_unique<TcpGroup>(0, std::vector<Descriptor>(1), nullptr));
  Meeting meeting(world, agreement, deadline, options);
  RETURN_IF_ERROR(world.rank == 0 ? meeting.Lead(std::move(listener)) : meeting.Follow());
  return meeting.MakeGroup();
}

}  // namespace inflight::comm
