// SPDX-License-Identifier: Apache-2.0
// Collectives between CPU ranks that are processes, of one host or of several, by the messages of a
// Group (rendezvous.h). What else a rank sends to another one on the Group stays in order with
// them.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace inflight::comm {

// Of those ranks of `group` that `members` names, of which this one is one; its rank as of
// Communicator is its place there. `group` outlives it. Abort ends the whole group.
std::unique_ptr<Communicator> MakeGroupCommunicator(Group& group, std::vector<int> members);

}  // namespace inflight::comm
