// SPDX-License-Identifier: Apache-2.0
// Where a model's weights come from, seen as checkpoint tensors whatever the files hold: each is
// rows of one or several stored tensors, possibly transposed, in the order of
// docs/reference/artifacts.md.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "artifact/checkpoint.h"
#include "artifact/tensor_set.h"
#include "builder/builder.h"
#include "model/config.h"
#include "model/weight_slots.h"
#include "quantized/method.h"
#include "tensor/device.h"

namespace inflight::builder {

// A rectangle of a checkpoint tensor and the stored tensor that holds it. A vector has one column.
struct WeightPart {
  const artifact::StoredTensor* tensor = nullptr;
  int64_t row = 0;  // of the checkpoint tensor
  int64_t num_rows = 0;
  int64_t column = 0;
  int64_t num_columns = 1;
  int64_t stored_row = 0;      // that holds `row`
  int64_t stored_column = 0;   // that holds `column`
  bool is_transposed = false;  // stored [in, out]: `stored_row` counts stored columns then
  int row_step = 1;            // stored rows (columns) from one of the tensor's to the next
  int pair_rows = 0;  // > 0: rows are heads of so many, and of each head rows i and i + pair_rows /
                      // 2 are stored side by side; `stored_row` counts rows as if they were not
};

// A checkpoint tensor made of stored ones: parts that tile it, or all of it but padding behind its
// rows, which is zeros.
struct WeightRecipe {
  Shape shape;  // of the checkpoint tensor
  std::vector<WeightPart> parts;
  bool is_padded = false;
  float added = 0;  // to each stored element; of vectors that are read as float32
};

// Whether the stored weights are int8, int4 or FP8 with scales of their own.
bool IsQuantized(const WeightRecipe& recipe);

// A rectangle of a checkpoint tensor, both ranges half-open.
struct WeightBlock {
  int64_t row = 0;
  int64_t num_rows = 0;
  int64_t column = 0;
  int64_t num_columns = 1;
};

// Converts a block of the recipe to `dtype`, row-major and dense, into `out`. Rounds to nearest
// even. Of int4 the block's columns begin and end at whole bytes.
void CopyBlock(const WeightRecipe& recipe, const WeightBlock& block, DType dtype, void* out);

// The same for rows [row, row + num_rows) at full width. A vector's elements are its rows.
void CopyRows(const WeightRecipe& recipe, int64_t row, int64_t num_rows, DType dtype, void* out);

// What several ranks hold alike: a further copy of what a recipe takes from another file.
struct WeightCopy {
  std::string name;  // of the checkpoint tensor
  std::string file;  // that holds this copy
  WeightPart part;
};

// A model whose tensors are known to be complete and of the right shapes. Owns the mappings.
struct WeightSource {
  model::ModelConfig config;
  std::string where;                                      // directory, for messages
  artifact::RankMapping ranks;                            // of the checkpoint
  std::vector<artifact::TensorSet> files;                 // one per rank; of Hugging Face
                                                          // directories the model, then Medusa's
                                                          // heads where it has some
  std::deque<artifact::StoredTensor> read_tensors;        // of files: as recipes read them
  quantized::Unpacked packed;                             // of Hugging Face directories, and the
                                                          // forms of a GGUF file's blocks
  std::string quantization;                               // of its files, for people; empty: none
  std::unordered_map<std::string, WeightRecipe> recipes;  // by checkpoint name
  std::vector<WeightCopy> copies;                         // for CheckCopies
  std::optional<DType> narrowed_from;  // the dtype by default, where that is not supported
  std::shared_ptr<const nlohmann::json> further_config;  // keys of a checkpoint's config.json that
                                                         // ModelConfig does not hold; null if none
};

struct SourceOptions {
  std::optional<DType> dtype;                  // default: what is stored
  std::optional<model::QuantAlgo> quant_algo;  // likewise; weights that are quantised already stay
                                               // so (asking for none is kFailedPrecondition)
  std::optional<int> group_size = {};          // of a quant_algo with groups; default: what is
                                               // stored, else model::kDefaultGroupSize
  std::optional<bool> fp8_kv_cache = {};       // likewise
  std::optional<bool> quantize_lm_head = {};   // likewise
  MedusaOptions medusa = {};                   // of a Hugging Face directory
  // Where the model will run. Without a `dtype`, what is not computed there unless it is asked for
  // (float32 on CUDA) or never (beside FP8) becomes bfloat16.
  std::optional<DeviceKind> target = {};
  bool is_for_one_rank = true;  // else ranks take parts of it, which may cut blocks of scales
};

// Opens a Hugging Face directory, a GGUF file or a checkpoint.
Result<std::unique_ptr<WeightSource>> OpenWeightSource(const std::filesystem::path& dir,
                                                       const SourceOptions& options);

}  // namespace inflight::builder
