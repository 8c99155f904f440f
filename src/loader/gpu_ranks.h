// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs that are processes (executor/cuda_rank_processes.h), while a model is loaded and
// while it runs. What is said, behind what rank_processes.h says of parts that are read:
//
//   {options}                      what have you room for?  {kv_tokens, adapter_bytes, host_blocks}
//   {these of all, ids}            make your rank           {gpu_bytes}
//   calls (executor/rank_call.h)   answers to some of them
//   an empty message               give it up
#pragma once

#include <memory>

#include "comm/rendezvous.h"
#include "executor/cuda_rank_processes.h"
#include "loader/leader_messages.h"

namespace inflight {

// Of the leader, when the others have read their parts. `model` goes with the backend, or where
// none is made: with it the others give the model up.
Result<executor::LocalBackend> LeadGpuRanks(executor::RankOfProcess rank, comm::Group& group,
                                            const std::shared_ptr<void>& model);

// Of another rank, whose engine and draft model are open: from the first question to the end of the
// model. Errors of the model are the leader's to tell; what is returned ends this rank.
Status FollowOnGpu(executor::RankOfProcess rank, comm::Group& group, LeaderMessages& leader);

}  // namespace inflight
