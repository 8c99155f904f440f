// SPDX-License-Identifier: Apache-2.0
// Rows of the table that says how GGUF files describe a family (family.h): metadata under the
// architecture's name, which the rows leave out ("block_count" is "llama.block_count").
// Keys: ggml-org/ggml/docs/gguf.md, "LLM"; ggml-org/llama.cpp/gguf-py/gguf/constants.py.
#pragma once

#include "model/families/fields.h"

namespace inflight::model {

// What decoders with rotary positions and RMSNorm have. A key that a family's table does not list
// is refused. `epsilon`: the name of the norms'.
Fields GgufFields(std::string_view epsilon = "attention.layer_norm_rms_epsilon");

// A window on all layers, 0: none. A file must say it.
Field GgufWindow();

// A window on all layers but each `pattern`th, `fallback` where the file does not say it; 0: it
// must.
Fields GgufPatternWindows(int64_t fallback, int64_t pattern);

// What q k^T is times: 1 / sqrt(head_dim); 1 / sqrt(hidden_size / num_heads) of the model that has
// `widest_layers` layers, whose heads the file does not describe further.
Field GgufAttentionScale(int widest_layers);

// Numbers of experts, of those of a token, and their width.
Fields GgufExperts();

// YaRN with pairs that are no whole numbers, or no scaling.
Field GgufYarn();

// The base of the rope of layers with a window.
Field GgufSlidingRope(double fallback);

}  // namespace inflight::model
