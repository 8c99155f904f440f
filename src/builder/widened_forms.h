// SPDX-License-Identifier: Apache-2.0
// Weights of integers for a GPU, which computes with some of their forms alone.
#pragma once

#include "builder/weight_source.h"

namespace inflight::builder {

// Of stored weights whose forms a GPU does not compute with (tables, experts but in MXFP4, columns
// in an order of their own, other linears in MXFP4), makes the numbers that their codes stand for,
// in float32, their recipes, and takes the forms out of the configuration. kInvalidArgument names
// an order that is none.
Status WidenForGpu(WeightSource& source);

}  // namespace inflight::builder
