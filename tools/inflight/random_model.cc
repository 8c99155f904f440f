// SPDX-License-Identifier: Apache-2.0
#include "random_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/rank_source.h"
#include "loader/streaming.h"
#include "model/limits.h"

namespace inflight::tool {
namespace {

// config.json of openai/gpt-oss-20b.
model::ModelConfig GptOss20b() {
  model::ModelConfig config;
  config.architecture = "GptOssForCausalLM";
  config.vocab_size = 201088;
  config.hidden_size = 2880;
  config.num_layers = 24;
  config.num_heads = 64;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.intermediate_size = 2880;
  config.max_position_embeddings = 131072;
  config.norm_eps = 1e-5F;
  config.rope_theta = 150000;
  config.rope_scaling = {.kind = model::RopeScaling::Kind::kYarn,
                         .factor = 32,
                         .original_max_position_embeddings = 4096,
                         .truncate = false};
  config.qkv_bias = config.dense_bias = true;
  config.has_attention_sinks = true;
  config.sliding_window = 128;
  for (int layer = 0; layer < config.num_layers; ++layer)
    config.sliding_layers.push_back(layer % 2 == 0);
  config.num_experts = 32;
  config.experts_per_token = 4;
  config.expert_intermediate_size = 2880;
  config.has_expert_biases = true;
  config.expert_limit = 7;
  return config;
}

model::ModelConfig ShapeByName(const std::string& name) {
  if (name == "gpt-oss-20b") return GptOss20b();
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
  } else if (name == "llama-3-70b") {
    config.hidden_size = 8192;
    config.num_layers = 80;
    config.num_heads = 64;
    config.head_dim = 128;
    config.intermediate_size = 28672;
  } else if (name == "qwen3-30b-a3b") {
    config.architecture = "Qwen3MoeForCausalLM";
    config.vocab_size = 151936;
    config.hidden_size = 2048;
    config.num_layers = 48;
    config.num_kv_heads = 4;
    config.head_dim = 128;
    config.intermediate_size = 6144;  // of dense layers, of which it has none
    config.max_position_embeddings = 40960;
    config.rope_theta = 1000000;
    config.qk_norm = true;
    config.num_experts = 128;
    config.experts_per_token = 8;
    config.expert_intermediate_size = 768;
  } else if (name == "mixtral-8x7b") {
    config.architecture = "MixtralForCausalLM";
    config.vocab_size = 32000;
    config.hidden_size = 4096;
    config.num_layers = 32;
    config.head_dim = 128;
    config.intermediate_size = 14336;
    config.max_position_embeddings = 32768;
    config.rope_theta = 1000000;
    config.num_experts = 8;
    config.experts_per_token = 2;
    config.expert_intermediate_size = 14336;
  } else {  // llama-3-8b
    config.hidden_size = 4096;
    config.num_layers = 32;
    config.head_dim = 128;
    config.intermediate_size = 14336;
  }
  return config;
}

Result<std::shared_ptr<const model::Engine>> RandomDraft(const std::string& shape,
                                                         const model::ModelConfig& of_model,
                                                         const model::EngineLimits& limits,
                                                         Device& device) {
  if (std::ranges::count(kShapeNames, shape) == 0)
    return InvalidArgument(fmt::format(
        "--draft-model: got '{}', with --shape it is the name of a shape too: random weights",
        shape));
  model::ModelConfig config = ShapeByName(shape);
  config.dtype = of_model.dtype;
  return builder::Random(config, limits, /*seed=*/2, device, /*tune=*/false);
}

// Ranks of random weights, which are no parts of one model.
Result<loader::Loaded> OpenRandomRanks(const std::shared_ptr<Device>& device,
                                       const model::ModelConfig& config,
                                       const model::EngineLimits& limits, bool tune,
                                       const OpenOptions& open) {
  const int num_ranks = *open.tensor_parallel_size;
  const builder::Sharding sharding{.ranks = {.tp_size = num_ranks, .pp_size = 1},
                                   .use_parallel_embedding = true,
                                   .num_layers = {config.num_layers}};
  RETURN_IF_ERROR(builder::CheckSharding(config, sharding));
  std::vector<std::shared_ptr<Device>> devices;
  std::vector<std::shared_ptr<const model::Engine>> engines;
  for (int rank = 0; rank < num_ranks; ++rank) {
    devices.push_back(device);
    if (rank > 0 && device->kind() == DeviceKind::kCuda) {
      ASSIGN_OR_RETURN(devices.back(), Device::Cuda(device->cuda().index + rank));
    }
    ASSIGN_OR_RETURN(
        engines.emplace_back(),
        builder::Random(builder::ConfigOfRank(config, sharding, rank), limits,
                        /*seed=*/static_cast<uint64_t>(rank) + 1, *devices.back(), tune));
  }
  return loader::StartRanks(engines, devices, open);
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
  tune &= !options.executor.deterministic;  // it would not be looked at
  ASSIGN_OR_RETURN(OpenOptions open, options.ToOpenOptions());
  if (open.pipeline_parallel_size.value_or(1) > 1)
    return InvalidArgument("--pipeline-parallel-size: not with --shape; leave it out");
  if (open.tensor_parallel_size.value_or(1) > 1) {
    if (!options.draft_model.empty())
      return InvalidArgument("--draft-model: not with ranks of a --shape; leave one of both out");
    return OpenRandomRanks(device, config, limits, tune, open);
  }
  ASSIGN_OR_RETURN(const model::EngineLimits resolved, model::ResolveLimits(config, limits));
  std::shared_ptr<const model::Engine> draft;
  executor::DraftModelCost draft_cost;  // beside its weights, which are taken first
  if (!options.draft_model.empty()) {
    ASSIGN_OR_RETURN(draft, RandomDraft(options.draft_model.string(), config, limits, *device));
    draft_cost = executor::CostOfDraftModel(draft->config, draft->limits, resolved, device->kind(),
                                            open.executor);
    open.executor.drafts = DraftSource::kModel;
  }
  const executor::WeightSizes sizes = {.num_layers = config.num_layers,
                                       .total_bytes = builder::EngineBytes(config, device->kind()),
                                       .layer_bytes = builder::LayerBytes(config, device->kind())};
  ASSIGN_OR_RETURN(
      const loader::StreamingPlan plan,
      loader::PlanStreaming(config, resolved, *device, sizes, open.executor, draft_cost));
  ASSIGN_OR_RETURN(auto engine, builder::Random(config, limits, /*seed=*/1, *device, tune,
                                                plan.weights.streamed));
  if (!plan.weights.streamed.empty()) fmt::print("# {}", plan.ToString());
  return loader::Start(engine, device, open, {.model = draft});
}

}  // namespace inflight::tool
