// SPDX-License-Identifier: Apache-2.0
// Medusa's heads as their training leaves them, in a directory beside the model's
// (FasterDecoding/Medusa/medusa/train/train_legacy.py): config.json says how many there are, and
// medusa_lm_head.safetensors or medusa_lm_head.pt has their tensors, of head h with n blocks
//
//   h.0.linear.weight, h.0.linear.bias ... h.(n-1).linear.weight, ...   the blocks
//   h.n.weight                                                          its lm_head
#pragma once

#include <string>
#include <string_view>

#include "builder/builder.h"
#include "builder/weight_source.h"

namespace inflight::builder {

// For messages.
inline constexpr std::string_view kMedusaFile = "medusa_lm_head";

// Appends their file to source.files and sets their numbers in source.config. Nothing without a
// directory. kInvalidArgument "medusa_model_dir" where there is no such file, the model's family
// has none in checkpoints (LlamaForCausalLM has), or the heads are of another model's size.
Status AddMedusaHeads(const MedusaOptions& options, WeightSource& source);

// "0.1.weight" of "medusa_heads.0.lm_head.weight" where heads have one block.
std::string MedusaName(std::string_view checkpoint_name, int num_layers);

}  // namespace inflight::builder
