// SPDX-License-Identifier: Apache-2.0
// What the ranks of a checkpoint hold more than once.
#pragma once

#include "builder/weight_source.h"
#include "tensor/cpu_pool.h"

namespace inflight::builder {

// Compares every copy with the part that the recipes use: kDataLoss names the tensor, the copy's
// file and a row near which they differ. Biases of row-parallel layers may be zero on further
// ranks, as some converters write them. Reads all copies, so describing a model does not call it.
Status CheckCopies(const WeightSource& source, CpuPool& pool);

// Makes the embeddings tied where the head of a checkpoint is the embedding table once more, byte
// for byte: converters store both unless asked to share, and between pipeline stages always.
void FoldHead(WeightSource& source);

}  // namespace inflight::builder
