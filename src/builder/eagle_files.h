// SPDX-License-Identifier: Apache-2.0
// Heads of EAGLE as their training leaves them (SafeAILab/EAGLE/eagle/model/cnets1.py, cnets.py): a
// directory with config.json and the tensors of one layer of Llama, L being `layers.0` or
// `midlayer`:
//
// clang-format off
//   fc.weight, fc.bias                              the bias of version 1, where it has one
//   L.self_attn.{q,k,v,o}_proj, L.mlp.*, L.post_attention_layernorm
//   L.input_layernorm, L.hidden_norm, norm          version 3, whose q, k and v read twice the width
//   lm_head.weight, d2t                             version 3; d2t where its vocabulary is a part of the model's
//   embed_tokens.weight, t2d                        the model's own, and what d2t says: not read, but
//                                                   for the table beside stages on GPUs
// clang-format on
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "model/config.h"
#include "model/eagle_head.h"
#include "tensor/device.h"

namespace inflight::builder {

// Whether `dir` holds such a head and no model: its weights have fc.weight.
bool IsEagleHead(const std::filesystem::path& dir);

// What a head finds of its model on the ranks that have it.
enum class EaglePlace : uint8_t {
  kWithTable,  // all that it reads
  kLastStage,  // of stages on GPUs: neither the table, so that the head has its own, nor what
               // enters layers of other stages, which version 3 reads
};

// What the head in `dir` is, for a model of that configuration. kInvalidArgument names the field or
// tensor where it is another model's or incomplete; kUnimplemented what is not supported.
Result<model::EagleConfig> DescribeEagleHead(const std::filesystem::path& dir,
                                             const model::ModelConfig& target,
                                             EaglePlace place = EaglePlace::kWithTable);

// Of the weights in memory of a device.
uint64_t EagleHeadBytes(const model::EagleConfig& config, DeviceKind device);

// Into the device's memory, in the model's dtype.
Result<std::shared_ptr<const model::EagleHead>> OpenEagleHead(
    const std::filesystem::path& dir, const model::ModelConfig& target, Device& device,
    EaglePlace place = EaglePlace::kWithTable);

}  // namespace inflight::builder
