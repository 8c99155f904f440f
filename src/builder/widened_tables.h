// SPDX-License-Identifier: Apache-2.0
// Embedding tables and heads of integers for a device that computes with none.
#pragma once

#include "builder/weight_source.h"

namespace inflight::builder {

// Makes the numbers that the codes of the embedding table and of lm_head stand for their recipes,
// in float32, and takes their forms out of the configuration.
void WidenTables(WeightSource& source);

}  // namespace inflight::builder
