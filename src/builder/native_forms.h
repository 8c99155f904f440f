// SPDX-License-Identifier: Apache-2.0
// Quantised weights of a Hugging Face directory that the engine executes as they are stored.
#pragma once

#include "builder/weight_source.h"

namespace inflight::builder {

// Where every linear of the layers has one form, int8, int4 or FP8 with a scale per row, which the
// target executes and nothing else is asked for, makes these forms the recipes of the linears and
// of their scales, and sets the model's quant_algo. Else leaves the recipes, which read the weights
// widened, and returns false. `source.config` has its dtype.
bool KeepNativeForms(const SourceOptions& options, WeightSource& source);

}  // namespace inflight::builder
