// SPDX-License-Identifier: Apache-2.0
// Where a model's weights come from, seen as checkpoint tensors whatever the files hold: each is
// rows of one or several stored tensors, possibly transposed, in the order that engine.md 1.6
// wants.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "artifact/tensor_set.h"
#include "model/config.h"
#include "model/weight_slots.h"

namespace inflight::builder {

// A checkpoint tensor made of stored ones.
struct WeightRecipe {
  Shape shape;                                       // of the checkpoint tensor
  std::vector<const artifact::StoredTensor*> parts;  // stacked along rows
  bool is_transposed = false;                        // stored [in, out]; then there is one part
};

// Whether the stored weights are int8 with scales of their own.
bool IsInt8(const WeightRecipe& recipe);

// Converts rows [row, row + num_rows) of the recipe to `dtype`, row-major, into `out`. A vector is
// one row. Rounds to nearest even.
void CopyRows(const WeightRecipe& recipe, int64_t row, int64_t num_rows, DType dtype, void* out);

// A model whose tensors are known to be complete and of the right shapes. Owns the mappings.
struct WeightSource {
  model::ModelConfig config;
  std::string where;  // directory, for messages
  artifact::TensorSet tensors;
  std::unordered_map<std::string, WeightRecipe> recipes;  // by checkpoint name
};

// Opens a Hugging Face directory or a checkpoint. `dtype` and `quant_algo` override what is stored;
// weights that are quantised already stay so (asking for none is kFailedPrecondition).
Result<std::unique_ptr<WeightSource>> OpenWeightSource(
    const std::filesystem::path& dir, std::optional<DType> dtype,
    std::optional<model::QuantAlgo> quant_algo = std::nullopt);

}  // namespace inflight::builder
