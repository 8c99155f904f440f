// SPDX-License-Identifier: Apache-2.0
// Rows of the table that says how GGUF files describe a family (family.h): metadata under the
// architecture's name, which the rows leave out ("block_count" is "llama.block_count").
// Keys: ggml-org/ggml/docs/gguf.md, "LLM"; ggml-org/llama.cpp/gguf-py/gguf/constants.py.
#pragma once

#include "model/families/fields.h"

namespace inflight::model {

// What all decoders have, and what those with rotary positions over whole heads have. A key that a
// family's table does not list is refused. `epsilon`: the name of the norms'.
constexpr std::string_view kGgufRmsEpsilon = "attention.layer_norm_rms_epsilon";
constexpr std::string_view kGgufEpsilon = "attention.layer_norm_epsilon";
Fields GgufPlainFields(std::string_view epsilon);
Fields GgufFields(std::string_view epsilon = kGgufRmsEpsilon);

// A window on all layers, 0: none. A file must say it.
Field GgufWindow();

// A window on all layers but each `pattern`th, `fallback` where the file does not say it; 0: it
// must.
Fields GgufPatternWindows(int64_t fallback, int64_t pattern);

// What q k^T is times: 1 / sqrt(head_dim); 1 / sqrt(hidden_size / num_heads) of the model that has
// `widest_layers` layers, whose heads the file does not describe further.
Field GgufAttentionScale(int widest_layers);

// Numbers of experts, of those of a token, and their width. No key says whether the chosen experts'
// weights add up to 1: it is the architecture's own.
Fields GgufExperts(bool are_renormalized = true);

// YaRN with pairs that are no whole numbers, or no scaling.
Field GgufYarn();

// The base of the rope of layers with a window.
Field GgufSlidingRope(double fallback);

}  // namespace inflight::model
