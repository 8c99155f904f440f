// SPDX-License-Identifier: Apache-2.0
// A model family as data: everything that sets it apart from others. Each family is one file of
// this folder; families.cc lists them. Whatever reads a Hugging Face directory, a GGUF file or a
// checkpoint (builder/hf_config.h, builder/gguf_config.h, builder/recipes.h, model/config_json.h)
// walks these tables and knows no
// family by name. docs/adding-a-model.md adds one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/families/fields.h"

namespace inflight::model {

// A checkpoint tensor and the stored tensors that make it. Names lack ".weight" and ".bias". Rows
// of the same checkpoint tensor are other names of it: the first that a file has counts.
//
// Of experts a "*" in a stored name is the number of one: those of expert 0 are stacked, then those
// of expert 1, ...
struct TensorRow {
  std::string_view checkpoint;
  std::vector<std::string_view> stored;  // stacked along rows
  // Of one stored tensor that holds several of a checkpoint's, equally many rows of each: which of
  // them this one is.
  int share = 0;
  int num_shares = 1;
  int skipped_rows = 0;  // the first ones of a stored tensor, which are not used
  // The rows of one stored tensor are groups of heads, one for each kv head: the query heads of the
  // group, its key head, its value head.
  bool has_grouped_heads = false;
  // Of experts: one stored tensor holds all of them, in a dimension before its rows, and of each
  // maybe the activated branch before the linear one, which is second in checkpoints.
  bool holds_experts = false;
  bool has_activated_first = false;
  // Of holds_experts: rows of the two branches alternate, the activated one first.
  bool has_alternating_rows = false;
  // Of holds_experts: each one's matrix is stored [in, out].
  bool is_transposed = false;
  // Names end without ".weight", and with "_bias" in place of ".bias".
  bool is_bare = false;
  // Of experts: stored tensors of the shared ones behind the others, each holding its part of all
  // of them, rows or (of "mlp.proj") columns.
  std::vector<std::string_view> shared = {};
};

// Whether the row is of experts' weights.
bool IsOfExperts(const TensorRow& row);

// What stands in stored names for the number of an expert.
inline constexpr char kExpertNumber = '*';

// How files name the tensors:
//   outside the layers   [prefix] stored
//   inside layer I       [prefix] layer_prefix "I." stored
//   lm_head.weight       head ".weight"
struct TensorNames {
  std::string_view prefix;                       // some files leave it out of all names
  std::vector<std::string_view> other_prefixes;  // of models with further parts
  std::string_view layer_prefix;
  std::vector<TensorRow> model_rows;  // the first is the embedding: by it the prefix is recognised
  std::vector<TensorRow> layer_rows;  // checkpoint: what follows "transformer.layers.I."
  bool has_conv1d = false;            // matrices inside layers are stored [in, out]
  std::vector<std::string_view> ignorable;  // ends of names that hold nothing to load
  std::string_view head = "lm_head";
  std::vector<std::string_view> other_heads = {};  // names of it in some files
  bool has_whole_norms = false;  // weights of norms are stored as they are, not less 1
  // Stored names inside layers of which each head's rows lie in pairs, i beside i + head_dim / 2:
  // as a rotation of neighbours wants them.
  std::vector<std::string_view> paired = {};
};

// How GGUF files describe the family.
struct GgufForm {
  std::string_view architecture = {};  // "general.architecture"; empty: none is its own
  Fields fields = {};                  // metadata under "ARCHITECTURE.", named without that
  TensorNames tensors = {};
  // Of an architecture that another family has too: files with experts are this one's.
  bool has_experts = false;
  // Of models whose attention and feed-forward may read through one norm (has_shared_norm): the
  // stored name of attention's, which only those have that read through two.
  std::string_view attention_norm = {};
};

// `rows` in place of those of `base` that make the same checkpoint tensors, and behind them those
// that are new.
std::vector<TensorRow> Replaced(const std::vector<TensorRow>& base,
                                const std::vector<TensorRow>& rows);

// `base` with experts behind the dense layers' rows, for layers that have them: "mlp.gate" is the
// router, "mlp.experts.*.gate_proj", up_proj and down_proj are the experts.
// With shared ones "mlp.shared_expert" is they, and "mlp.shared_expert_gate" their logit.
std::vector<TensorRow> WithExperts(std::vector<TensorRow> base, bool has_shared = false);

// `base` with experts in place of the dense layers' rows, as GGUF files have them: of all experts
// one tensor, in older files one each.
std::vector<TensorRow> WithGgufExperts(const std::vector<TensorRow>& base, bool has_shared = false);

// A model with further parts, of which a family is the one that reads text. The rest of it is not
// loaded.
struct Composite {
  std::string_view architecture, model_type;  // Hugging Face's
  std::string_view config_field;              // of config.json: the object that describes this part
};

struct Family {
  std::string_view architecture;  // of "architectures" in Hugging Face's config.json, and of
                                  // "architecture" in checkpoints
  std::string_view model_type;    // Hugging Face's, for files without "architectures"
  ModelConfig config;             // what all its models have; `architecture` is filled in
  Fields hugging_face;            // of config.json
  Fields checkpoint;              // of a checkpoint's config.json
  TensorNames tensors;            // of Hugging Face's files
  std::vector<Composite> composites;
  GgufForm gguf = {};
};

// Each in its own file.
Family Llama();
Family Gpt2();
Family Qwen2();
Family Qwen2Moe();
Family Qwen3();
Family Mistral();
Family Mixtral();
Family Qwen3Moe();
Family Gemma();
Family Gemma2();
Family Gemma3();
Family Olmo2();
Family Olmoe();
Family Phi3();
Family Granite();
Family GraniteMoe();
Family GptOss();
Family SmolLm3();
Family StarCoder2();
Family GptNeoX();
Family GptJ();
Family Opt();
Family Falcon();

}  // namespace inflight::model
