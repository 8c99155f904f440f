// SPDX-License-Identifier: Apache-2.0
// A model family as data: everything that sets it apart from others. Each family is one file of
// this folder; families.cc lists them. Whatever reads a Hugging Face directory or a checkpoint
// (builder/hf_config.h, builder/recipes.h, model/config_json.h) walks these tables and knows no
// family by name. docs/adding-a-model.md adds one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/families/fields.h"

namespace inflight::model {

// A checkpoint tensor and the stored tensors that make it. Names lack ".weight" and ".bias".
struct TensorRow {
  std::string_view checkpoint;
  std::vector<std::string_view> stored;  // stacked along rows
};

// How Hugging Face's files name the tensors:
//   outside the layers   [prefix] stored
//   inside layer I       [prefix] layer_prefix "I." stored
//   lm_head.weight       as it is, in every family
struct TensorNames {
  std::string_view prefix;  // some files leave it out of all names
  std::string_view layer_prefix;
  std::vector<TensorRow> model_rows;  // the first is the embedding: by it the prefix is recognised
  std::vector<TensorRow> layer_rows;  // checkpoint: what follows "transformer.layers.I."
  bool has_conv1d = false;            // matrices inside layers are stored [in, out]
  std::vector<std::string_view> ignorable;  // ends of names that hold nothing to load
};

// `rows` in place of those of `base` that make the same checkpoint tensors, and behind them those
// that are new.
std::vector<TensorRow> Replaced(const std::vector<TensorRow>& base,
                                const std::vector<TensorRow>& rows);

struct Family {
  std::string_view architecture;  // of "architectures" in Hugging Face's config.json, and of
                                  // "architecture" in checkpoints
  std::string_view model_type;    // Hugging Face's, for files without "architectures"
  ModelConfig config;             // what all its models have; `architecture` is filled in
  Fields hugging_face;            // of config.json
  Fields checkpoint;              // of a checkpoint's config.json
  TensorNames tensors;
};

// Each in its own file.
Family Llama();
Family Gpt2();
Family Qwen2();
Family Qwen3();
Family Mistral();

}  // namespace inflight::model
