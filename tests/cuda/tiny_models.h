// SPDX-License-Identifier: Apache-2.0
// Small decoders of random weights in shapes that the CUDA kernels take, the same on every device.
#pragma once

#include <memory>

#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::gpu {

model::ModelConfig TinyLlama();     // bf16, 3 layers, 4 query heads on 2 kv heads of 64
model::ModelConfig TinyLlamaF16();  // f16, 1 kv head of 128, odd vocabulary
model::ModelConfig TinyGpt2();      // bf16, LayerNorm, GELU, biases, learned positions, tied
model::EngineLimits TinyLimits();   // 32 sequences or beams, 512 tokens a step, length 512

// Which device computes makes no difference to the weights.
std::shared_ptr<const model::Engine> RandomEngine(const model::ModelConfig& config,
                                                  const model::EngineLimits& limits,
                                                  Device& device);

// The process's CPU device; never destroyed.
Device& Cpu();

}  // namespace inflight::gpu
