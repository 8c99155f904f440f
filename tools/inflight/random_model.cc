// SPDX-License-Identifier: Apache-2.0
#include "random_model.h"

#include <utility>

#include "base/status_macros.h"
#include "builder/builder.h"

namespace inflight::tool {
namespace {

model::ModelConfig ShapeByName(const std::string& name) {
  model::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 128256;
  config.num_kv_heads = 8;
  config.num_heads = 32;
  config.max_position_embeddings = 131072;
  config.rope_theta = 500000;
  if (name == "llama-3.2-1b") {
    config.hidden_size = 2048;
    config.num_layers = 16;
    config.head_dim = 64;
    config.intermediate_size = 8192;
    config.tied_embeddings = true;
  } else {  // llama-3-8b
    config.hidden_size = 4096;
    config.num_layers = 32;
    config.head_dim = 128;
    config.intermediate_size = 14336;
  }
  return config;
}

}  // namespace

Result<model::ModelConfig> RandomConfig(const std::string& shape, const ModelOptions& options) {
  model::ModelConfig config = ShapeByName(shape);
  config.dtype = options.dtype == "auto" ? DType::kBF16 : *DTypeFromName(options.dtype);
  ASSIGN_OR_RETURN(const auto algo, options.quantization.Algo());
  config.quant_algo = algo.value_or(model::QuantAlgo::kNone);
  config.fp8_kv_cache = options.quantization.Fp8KvCache().value_or(false);
  config.quantize_lm_head = options.quantization.quantize_lm_head;
  return config;
}

Result<loader::Loaded> OpenRandom(const std::shared_ptr<Device>& device,
                                  const model::ModelConfig& config,
                                  const model::EngineLimits& limits, bool tune,
                                  const ModelOptions& options) {
  if (!options.draft_model.empty())
    return InvalidArgument(
        "--draft-model: a model of random weights has no use for it; leave it out");
  tune &= !options.executor.deterministic;  // it would not be looked at
  ASSIGN_OR_RETURN(auto engine, builder::Random(config, limits, /*seed=*/1, *device, tune));
  ASSIGN_OR_RETURN(const OpenOptions open, options.ToOpenOptions());
  return loader::Start(engine, device, open);
}

}  // namespace inflight::tool
