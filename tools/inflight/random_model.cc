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
#include "model/supported.h"
#include "published_shapes.h"

namespace inflight::tool {
namespace {

Result<std::shared_ptr<const model::Engine>> RandomDraft(const std::string& shape,
                                                         const model::ModelConfig& of_model,
                                                         const model::EngineLimits& limits,
                                                         Device& device, bool can_release) {
  const std::vector<std::string> names = ShapeNames();
  if (shape.empty() || std::ranges::count(names, shape) == 0)
    return InvalidArgument(fmt::format(
        "--draft-model: got '{}', with --shape it is the name of a shape too: random weights",
        shape));
  ASSIGN_OR_RETURN(model::ModelConfig config, ShapeByName(shape));
  config.dtype = of_model.dtype;
  return builder::Random(config, limits, /*seed=*/2, device, /*tune=*/false,
                         /*streamed_layers=*/{}, can_release);
}

// Ranks of random weights, which are no parts of one model.
Result<loader::Loaded> OpenRandomRanks(const std::shared_ptr<Device>& device,
                                       model::ModelConfig config, const model::EngineLimits& limits,
                                       bool tune, const OpenOptions& open,
                                       const artifact::RankMapping& ranks) {
  if (config.tied_embeddings && ranks.pp_size > 1) builder::Untie(config);
  const builder::Sharding sharding{
      .ranks = ranks,
      .use_parallel_embedding = true,
      .num_layers = builder::EvenStages(config.num_layers, ranks.pp_size)};
  RETURN_IF_ERROR(builder::CheckSharding(config, sharding));
  const int num_ranks = ranks.num_ranks();
  std::vector<std::shared_ptr<Device>> devices;
  std::vector<std::shared_ptr<const model::Engine>> engines;
  for (int rank = 0; rank < num_ranks; ++rank) {
    devices.push_back(device);
    if (rank > 0 && device->kind() == DeviceKind::kCuda) {
      ASSIGN_OR_RETURN(devices.back(), Device::Cuda(device->cuda().index + rank));
    }
    ASSIGN_OR_RETURN(
        engines.emplace_back(),
        builder::Random(builder::ConfigOfRank(config, sharding, rank, device->kind()), limits,
                        /*seed=*/static_cast<uint64_t>(rank) + 1, *devices.back(), tune,
                        /*streamed_layers=*/{}, open.executor.enable_sleep));
  }
  return loader::StartRanks(engines, devices, open);
}

}  // namespace

Result<model::ModelConfig> RandomConfig(const std::string& shape, const ModelOptions& options,
                                        DeviceKind device) {
  ASSIGN_OR_RETURN(model::ModelConfig config, ShapeByName(shape));
  config.dtype = options.dtype == "auto" ? DType::kBF16 : *DTypeFromName(options.dtype);
  ASSIGN_OR_RETURN(const auto algo, options.quantization.Algo());
  if (algo || config.dtype == DType::kF32) {  // not in the form in which it is published
    config.quant_algo = algo.value_or(model::QuantAlgo::kNone);
    config.slot_forms.clear();
  }
  ASSIGN_OR_RETURN(const std::optional<int> group_size, options.quantization.GroupSize());
  if (HasGroups(config.quant_algo))
    config.group_size = group_size.value_or(model::kDefaultGroupSize);
  else if (group_size)
    return InvalidArgument("--group-size: only beside --quant-algo W4A16_GPTQ and W8A16_GPTQ");
  config.fp8_kv_cache = options.quantization.Fp8KvCache().value_or(false);
  model::SetHead(config, options.quantization.quantize_lm_head, model::FactsOf(device));
  return config;
}

Result<loader::Loaded> OpenRandom(const std::shared_ptr<Device>& device,
                                  const model::ModelConfig& config,
                                  const model::EngineLimits& limits, bool tune,
                                  const ModelOptions& options) {
  tune &= !options.executor.deterministic;  // it would not be looked at
  ASSIGN_OR_RETURN(OpenOptions open, options.ToOpenOptions());
  ASSIGN_OR_RETURN(const artifact::RankMapping ranks,
                   artifact::MakeMapping(loader::RankSizesOf(open)));
  if (ranks.num_ranks() > 1) {
    if (!options.draft_model.empty())
      return InvalidArgument("--draft-model: not with ranks of a --shape; leave one of both out");
    return OpenRandomRanks(device, config, limits, tune, open, ranks);
  }
  ASSIGN_OR_RETURN(const model::EngineLimits resolved, model::ResolveLimits(config, limits));
  std::shared_ptr<const model::Engine> draft;
  executor::DraftModelCost draft_cost;  // beside its weights, which are taken first
  if (!options.draft_model.empty()) {
    ASSIGN_OR_RETURN(draft, RandomDraft(options.draft_model.string(), config, limits, *device,
                                        open.executor.enable_sleep));
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
                                                plan.weights.streamed, open.executor.enable_sleep));
  if (!plan.weights.streamed.empty()) fmt::print("# {}", plan.ToString());
  return loader::Start(engine, device, open, {.model = draft});
}

}  // namespace inflight::tool
