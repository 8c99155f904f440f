// SPDX-License-Identifier: Apache-2.0
// What one rank of several holds of a model, cut out of the whole model's files: of any files, not
// only of a checkpoint that was converted for so many ranks. Nothing is read here but orders of
// columns, so that a rank reads the bytes that are its own.
#pragma once

#include <string>
#include <string_view>

#include "artifact/checkpoint.h"
#include "builder/sharding.h"
#include "builder/weight_source.h"

namespace inflight::builder {

// The head of a model whose embedding table is its head as a tensor of its own, of the same form;
// and of a name of the head's or its scales' the table's.
void Untie(model::ModelConfig& config);
std::string TiedName(std::string_view name);

// How `source`, a whole model that runs on ranks, is split over `ranks`: stages are even, the
// embedding table and the head are split by rows. Where stages part them, a head that is the table
// becomes a tensor of its own in `source`. Errors as of CheckSharding.
Result<Sharding> DivideOver(const artifact::RankMapping& ranks, WeightSource& source);

// Configuration of rank `rank` on `target` of a model that divides as `sharding` says.
model::ModelConfig ConfigOfRank(model::ModelConfig config, const Sharding& sharding, int rank,
                                DeviceKind target);

// Leaves of `source`, a whole model that DivideOver has divided, what that rank holds: its
// configuration and the recipes of its tensors. Rank 0, on GPUs every rank of the last stage, has
// Medusa's heads whole, whichever ranks of a checkpoint have parts of them. Errors are those of
// OrderedPart (builder/ordered_part.h).
Status TakeRank(const Sharding& sharding, int rank, DeviceKind target, WeightSource& source);

}  // namespace inflight::builder
