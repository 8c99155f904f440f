// SPDX-License-Identifier: Apache-2.0
// A model whose layers several GPUs of this process share, a rank and a thread on each.
//
// Every rank of the last stage is a whole backend: it has the slots, the tokens and the sampler,
// and is told of the same slots and plans in the same order. These GPUs add up and gather logits
// among themselves, with the same bits on all, so that all draw the same tokens. Of several stages
// the others have the slots and tokens too, and get what is drawn (cuda/front_stage.h). The leader,
// the first rank of the last stage, has the model's results.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/cuda_backend.h"
#include "executor/local_backend.h"

namespace inflight::executor {

// The ranks of `engines`, [tp_size * pp_size] as of model::RankPart, each on its place of
// `devices`: GPUs.
// Each takes as many KV blocks as the rank with the least room. `drafts`, [tp_size * pp_size],
// where a draft model or a head of EAGLE proposes tokens: a model whole on each GPU of the first
// stage, a head on each of the last one, since each rank there drafts; else empty. Those of other
// stages are not looked at. A head beside several stages has its own table
// (EagleConfig::has_table). kUnimplemented names what ranks on GPUs do not do; errors else as of
// CreateLocalBackend.
using RankEngines = std::vector<std::shared_ptr<const model::Engine>>;
Result<LocalBackend> CreateCudaRanks(const RankEngines& engines,
                                     const std::vector<Device*>& devices,
                                     const ExecutorOptions& options,
                                     const std::string& force_ops = {},
                                     const std::vector<DraftWeights>& drafts = {});

// What CreateCudaRanks refuses, before weights are read.
Status CheckCudaRanks(const model::RankPart& part);

}  // namespace inflight::executor
