// SPDX-License-Identifier: Apache-2.0
// Finds the stored tensors of every weight that a model needs, under the names of its family.
#pragma once

#include <string_view>
#include <vector>

#include "builder/sharding.h"
#include "builder/weight_source.h"

namespace inflight::builder {

// The end of names of scales of a KV cache, which no recipe has.
inline constexpr std::string_view kKvScale = ".kv_cache_scaling_factor";
// The same of SmoothQuant's scales of what norms, and attention and feed-forward, give. They change
// nothing where activations are scaled token by token.
inline constexpr std::string_view kNormScale = ".scale_to_int";
inline constexpr std::string_view kInputScale = ".quantization_scaling_factor";

// Fill `source.recipes` from `source.files`. Errors: all missing tensors in one message; a wrong
// shape with the expected and the found one. Unexpected tensors are logged as one warning. With
// several files messages name the file as well, and a tensor that they store in different dtypes is
// kDataLoss.
Status MakeCheckpointRecipes(const Sharding& sharding, WeightSource& source);
Status MakeHuggingFaceRecipes(WeightSource& source);
// The same of a GGUF file, where unexpected tensors are kUnimplemented: its metadata may leave
// unsaid what they are for.
Status MakeGgufRecipes(WeightSource& source);

}  // namespace inflight::builder
