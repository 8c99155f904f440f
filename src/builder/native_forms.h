// SPDX-License-Identifier: Apache-2.0
// Quantised weights of a Hugging Face directory that the engine executes as they are stored.
#pragma once

#include <set>
#include <string>

#include "builder/weight_source.h"

namespace inflight::builder {

// Makes the forms of `source.packed` the recipes of the layers' linears, and of their scales and
// offsets, where the target executes them and nothing else is asked for, and sets the model's
// quant_algo and what belongs to it. A linear of several stored weights has the narrowest form that
// holds all of them. Linears without a form are left as they are, widened; FP8 is kept where all of
// them have it. Returns the names of the stored weights that are kept: none where quant_algo is not
// set. `source.config` has its dtype.
std::set<std::string> KeepNativeForms(const SourceOptions& options, WeightSource& source);

}  // namespace inflight::builder
