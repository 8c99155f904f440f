// SPDX-License-Identifier: Apache-2.0
// A rank's columns of a linear whose columns have an order of their own (GPTQ's act-order), where
// ranks have columns of it (builder/sharding.h): attention.dense and mlp.proj. Of each group of the
// whole weight a rank has some columns, more or fewer. In its part they lie side by side, behind
// them columns of zeros up to whole groups of ops::kGroupStep, each with the scale and the offset
// of the group that they are of; behind all groups further ones of zeros, so that the number of
// columns, LinearForm::columns, is the same on all ranks. Numbers are those of the whole weight,
// bit for bit.
#pragma once

#include "builder/sharding.h"
#include "builder/weight_source.h"

namespace inflight::builder {

// Whether `slot`, of a whole model, is such a linear's matrix, scales, offsets or order.
bool IsOrderedByColumns(const model::WeightSlot& slot);

// The forms that such linears have on each of `ranks`, in `config`, which says the whole model.
void SetFormsOfOrderedParts(const artifact::RankMapping& ranks, model::ModelConfig& config);

// What rank `tp_rank` of tensor parallelism has of `slot`, for which IsOrderedByColumns is true.
// Reads the order. kInvalidArgument where that has not each column once.
Result<WeightRecipe> OrderedPart(const model::WeightSlot& slot, const artifact::RankMapping& ranks,
                                 int tp_rank, WeightSource& source);

}  // namespace inflight::builder
