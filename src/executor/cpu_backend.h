// SPDX-License-Identifier: Apache-2.0
// A model on this process's CPU. Launch computes, at depth 1. Of several stages (MemoryPlan::
// num_stages) each has a step of its own: Launch computes the first stage, and Collect draws from
// what the last one sent.
#pragma once

#include <cstdint>
#include <memory>

#include "decoding/suffix_drafts.h"
#include "executor/backend.h"
#include "executor/memory_plan.h"
#include "executor/model_drafts.h"
#include "executor/rank_leader.h"
#include "executor/tree_source.h"
#include "model/engine.h"
#include "ops/backend.h"
#include "tensor/device.h"

namespace inflight::executor {

// Who proposes drafts, of a plan that has them made; all null: the text of the sequence.
struct DraftMakers {
  std::unique_ptr<ModelDrafts> model;
  std::unique_ptr<TreeSource> tree;
  std::unique_ptr<decoding::SuffixDrafts> texts;
  MemoryShare texts_share;
};

// Of the leader of several ranks: how it talks to the others.
struct RankMembership {
  comm::RankGroups groups;             // outlive the backend
  std::unique_ptr<RankLeader> leader;  // null: there is one rank
  uint64_t others_bytes = 0;           // that the others hold of this process's memory
};

// Takes what `plan` lists, but for the weights, from the device's ledger.
Result<std::unique_ptr<Backend>> CreateCpuBackend(std::shared_ptr<const model::Engine> engine,
                                                  Device& device, const MemoryPlan& plan,
                                                  const ops::OpTable& ops, DraftMakers drafts = {},
                                                  RankMembership membership = {});

}  // namespace inflight::executor
