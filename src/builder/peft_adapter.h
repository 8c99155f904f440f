// SPDX-License-Identifier: Apache-2.0
// An adapter's directory as peft saves it: adapter_config.json, and adapter_model.safetensors or
// adapter_model.bin.
//
//   scale = alpha / r, with use_rslora alpha / sqrt(r)     arXiv:2106.09685, arXiv:2312.03732
//
// where r is the rank of the module's factors and alpha lora_alpha, or what alpha_pattern says of
// the module (huggingface/peft/src/peft/tuners/lora/model.py). A bias of B (lora_bias) is scaled as
// B is; the biases of `bias: lora_only` and `all` are the model's own as training left them, and
// stand in place of them (huggingface/peft/src/peft/tuners/tuners_utils.py).
#pragma once

#include <filesystem>

#include "inflight/adapter.h"
#include "inflight/status.h"

namespace inflight::builder {

// float32, B scaled. kNotFound where files are missing; kInvalidArgument and kUnimplemented name
// file and field of what is no adapter or is none that is supported: DoRA, biases of norms, factors
// of embeddings and of lm_head.
Result<LoraTensors> ReadPeftAdapter(const std::filesystem::path& dir);

// Whether a directory looks like one.
bool IsPeftAdapter(const std::filesystem::path& dir);

}  // namespace inflight::builder
