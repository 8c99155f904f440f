// SPDX-License-Identifier: Apache-2.0
// What a process is told that is to be a rank of one model: where the others meet, and what it
// opens the model with. A line of JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/log_settings.h"
#include "comm/rendezvous.h"
#include "inflight/open.h"
#include "launch/world.h"
#include "loader/rank_processes.h"

namespace inflight {

struct RankOrder {
  std::string model;    // "tensorrt_llm/1"
  launch::World world;  // this rank's
  uint64_t secret = 0;  // of the group: who does not know it is turned away
  // Of a process that has no command line of its own.
  std::string device = "auto";
  int num_threads = 0;
  logging::Settings log = {};
};

std::string ToText(const RankOrder& order);
// kInvalidArgument: the text is none of ToText.
Result<RankOrder> ParseRankOrder(std::string_view text);

// The group of the order's ranks, once all have come: within a minute. Errors as of Group::Join,
// with the model's name.
Result<std::shared_ptr<RankProcesses>> JoinAsOrdered(const RankOrder& order,
                                                     comm::GroupOptions options = {});

// Of a process of `launched` above the first: is a rank of one model after the other, as the first
// process says, opening them with `options`. Returns as RankProcesses::Follow does.
Status ComputeAsOrdered(comm::Group& launched, const OpenOptions& options,
                        const std::function<bool()>& is_asked_to_stop);

}  // namespace inflight
