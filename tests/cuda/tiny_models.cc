// SPDX-License-Identifier: Apache-2.0
#include "tiny_models.h"

#include "builder/builder.h"
#include "gpu_test.h"
#include "model/families/families.h"

namespace inflight::gpu {

namespace {

model::ModelConfig Tiny(const std::string& architecture) {
  model::ModelConfig config = Must(model::FamilyOf(architecture))->config;
  config.dtype = DType::kBF16;
  config.vocab_size = 512;
  config.hidden_size = 256;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.intermediate_size = 512;
  config.max_position_embeddings = 512;
  return config;
}

}  // namespace

model::ModelConfig TinyLlama() { return Tiny("LlamaForCausalLM"); }

model::ModelConfig TinyLlamaF16() {
  model::ModelConfig config = TinyLlama();
  config.dtype = DType::kF16;
  config.vocab_size = 1001;
  config.hidden_size = 512;
  config.num_layers = 2;
  config.num_kv_heads = 1;
  config.head_dim = 128;
  config.intermediate_size = 1376;
  return config;
}

model::ModelConfig TinyGpt2() {
  model::ModelConfig config = Tiny("GPT2LMHeadModel");
  config.num_kv_heads = config.num_heads;
  config.intermediate_size = 1024;
  config.tied_embeddings = true;
  return config;
}

model::EngineLimits TinyLimits() {
  return {.max_batch_size = 32,
          .max_num_tokens = 512,
          .max_seq_len = 512,
          .max_input_len = 500,
          .max_beam_width = 4};
}

std::shared_ptr<const model::Engine> RandomEngine(const model::ModelConfig& config,
                                                  const model::EngineLimits& limits,
                                                  Device& device) {
  return Must(builder::Random(config, limits, /*seed=*/5, device));
}

Device& Cpu() {
  static auto* cpu = Device::Cpu().release();
  return *cpu;
}

}  // namespace inflight::gpu
