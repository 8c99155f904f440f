// SPDX-License-Identifier: Apache-2.0
// Collectives between ranks that are processes: through memory that they share where all of them
// are on one host, else by messages (group_communicator.h).
//
// The first member makes a memory file (memfd_create(2)) and tells the others where /proc has it;
// who is on another host, or in a container of its own, finds nothing there. It has no name in any
// file system, so that the memory goes with the last process that has it, however that ends.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace inflight::comm {

// A region of so many ranks takes 72 MiB; of two ranks it takes 2 MiB.
inline constexpr int kMaxRanksOfARegion = 16;

// As MakeGroupCommunicator, but that the members of `group` exchange messages here: each of them
// calls this, and those with several such groups call it in one order. What ends the group ends the
// collectives within a tenth of a second, and Abort of either ends both. kUnavailable where the
// group is over.
Result<std::unique_ptr<Communicator>> MakeHostCommunicator(Group& group, std::vector<int> members);

}  // namespace inflight::comm
