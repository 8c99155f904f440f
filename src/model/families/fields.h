// SPDX-License-Identifier: Apache-2.0
// Rows of the tables that describe a model family (family.h): the fields of a config.json, how each
// is read into a ModelConfig and, in checkpoints, written from it.
//
// A field that is null counts as absent, so that its default is taken. Errors name the file, the
// field, the value and what is needed: kInvalidArgument for values that make no sense,
// kUnimplemented for what is described and not supported.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/json_file.h"
#include "model/config.h"

namespace inflight::model {

struct Field {
  std::string_view name;
  std::function<Status(artifact::JsonFields&, ModelConfig&)> read;
  // Of checkpoints: sets the field in the object, or leaves it out. Null: it is never written.
  std::function<void(const ModelConfig&, nlohmann::json&)> write;
};

// The largest whole number that a field of a ModelConfig holds.
inline constexpr int64_t kMaxField = INT32_MAX;

// Read from the first to the last: a default may be computed from fields before it.
using Fields = std::vector<Field>;

// `base` with `rows` behind it; a row of `base` that has the name of one of them is left out.
Fields Replaced(const Fields& base, const Fields& rows);

// kUnimplemented "FILE: NAME: got VALUE, WHY" of a field that is there.
Status Refuse(const artifact::JsonFields& fields, std::string_view name, std::string_view why);

// A default that depends on what was read before.
using DefaultOf = std::function<int64_t(const ModelConfig&)>;

// Whole numbers from 1 on: required, or with a default.
Field Number(std::string_view name, int ModelConfig::*to);
Field NumberOr(std::string_view name, int ModelConfig::*to, int64_t fallback);
Field NumberOr(std::string_view name, int ModelConfig::*to, DefaultOf fallback);

// Finite numbers.
Field RealOr(std::string_view name, float ModelConfig::*to, double fallback);
Field RealOr(std::string_view name, double ModelConfig::*to, double fallback);

// One field that sets every one of `to`; it is written from the first.
Field FlagOr(std::string_view name, std::vector<bool ModelConfig::*> to, bool fallback);

// A field that the family does not read, whatever its relatives do.
Field Ignored(std::string_view name);

// What no field says.
Field Derived(int ModelConfig::*to, DefaultOf value);

// A soft cap, 0 and null: none. `fallback` is that of a file that is silent.
Field SoftCap(std::string_view name, float ModelConfig::*to, double fallback);

// A positive factor that stands in the file as its inverse.
Field Inverse(std::string_view name, float ModelConfig::*to);

// attention_multiplier: what q k^T is times; `fallback` 0: 1 / sqrt(head_dim).
Field AttentionMultiplier(double fallback);

// query_pre_attn_scalar, a whole number s: q k^T is times 1 / sqrt(s).
Field QueryPreAttnScalar(int64_t fallback);

// A value that must be `value`, which is also what absence means, because no other is supported.
Field Only(std::string_view name, const nlohmann::json& value);
// The same, and checkpoints say it.
Field Constant(std::string_view name, const nlohmann::json& value);
// What checkpoints say for those who read them, and nothing here reads.
Field Written(std::string_view name, const nlohmann::json& value);
// A field whose presence is refused: "NAME: got VALUE, WHY".
Field Unsupported(std::string_view name, std::string_view why);

// The size of a head, hidden_size / num_heads where the field is absent or has no name. The two
// other names are of the fields that those were read from, for the error where one does not divide
// the other.
Field HeadDim(std::string_view name, std::string_view hidden_field, std::string_view heads_field);

// What the names of activations mean: "gelu" is another function in Hugging Face's models than in
// upstream's checkpoints, which have names of their own for those of gated experts.
enum class ActivationNames : uint8_t { kHuggingFace, kCheckpoint, kCheckpointOfExperts };
Field Activation(std::string_view name, ActivationNames names, std::string_view fallback);

// Hugging Face's description of rotary positions over whole heads: rope_theta, `theta` where it is
// absent, and rope_scaling, or in newer files rope_parameters with both.
Fields HuggingFaceRope(double theta = 10000.0);
// The same where a part of each head may be rotated. Newer files say rope_theta and
// partial_rotary_factor whatever the names of the fields beside the dictionary.
struct PartialRope {
  std::string_view theta_field = "rope_theta";
  std::string_view fraction_field = "partial_rotary_factor";
  double fraction = 1.0;  // where it is absent
  // original_max_position_embeddings is 4096 where it is absent, and the older names of longrope
  // are known.
  bool is_phi3 = false;
};
Fields HuggingFacePartialRope(const PartialRope& form);
// How many elements of each head are rotated; `fallback` 0: all of them.
Field RotaryDimension(std::string_view name, int64_t fallback);
// HuggingFaceRope of a family whose layers with a window have a base of their own and no scaling:
// rope_local_base_freq, or in newer files rope_parameters with a dictionary for each kind of layer.
Fields HuggingFaceLayerRopes(double theta, double sliding_theta);
// Which layers are rotated: Hugging Face's no_rope_layers, 1 where they are, or all but each
// no_rope_layer_interval-th. A checkpoint's is the same list, where some are not.
Fields HuggingFaceRopeLayers(int64_t interval);
Field CheckpointRopeLayers();
// A checkpoint's: position_embedding_type (rope_gpt_neox or rope_gptj), rotary_base, rotary_pct,
// rotary_scaling.
Fields CheckpointRope();
Field CheckpointSlidingRope();  // rope_local_base_freq
// A checkpoint's word for learned absolute positions, the only kind of its family.
Field LearnedPositions();

// Hugging Face's windows. Of every layer: sliding_window, `fallback` (0: none) where it is absent,
// none where it is null. Of some: where use_sliding_window is true, of the layers that layer_types
// calls sliding_attention, or without it of those from max_window_layers on.
Field HuggingFaceWindow(int64_t fallback);
Field HuggingFaceUsedWindow(int64_t fallback);  // of every layer, where use_sliding_window is true
Fields HuggingFaceLayerWindows(int64_t fallback);
// Of all layers but each `pattern`th: of those that layer_types says, or by `pattern_field`, which
// may be empty.
Fields HuggingFacePatternWindows(int64_t fallback, int64_t pattern, std::string_view pattern_field);
// A checkpoint's, under the same names: sliding_window and layer_types.
Fields CheckpointWindows();

// Hugging Face's numbers of experts, num_local_experts or num_experts, and of those that a token
// has, num_experts_per_tok.
Fields HuggingFaceExperts(int64_t num_experts, int64_t experts_per_token);
// Which layers have experts, Hugging Face's: each decoder_sparse_step-th, but for those that
// mlp_only_layers numbers.
Fields HuggingFaceSparseLayers();
// A checkpoint's: moe with num_experts, top_k and normalization_mode, moe_intermediate_size, and
// mlp_only_layers.
Fields CheckpointExperts();

// What every family's config.json may carry and no family supports.
Fields HuggingFaceRefusals();
// Fields that checkpoints of all families have, and those that no family supports.
Fields SharedCheckpointFields();

}  // namespace inflight::model
