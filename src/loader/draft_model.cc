// SPDX-License-Identifier: Apache-2.0
#include "loader/draft_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "artifact/hub_cache.h"
#include "base/status_macros.h"
#include "builder/eagle_files.h"
#include "loader/loader.h"
#include "model/adapter_part.h"

namespace inflight::loader {
namespace {

namespace fs = std::filesystem;

// What proposes already, of sources that a draft model cannot stand beside.
std::string_view OtherProposer(DraftSource source) {
  switch (source) {
    case DraftSource::kNgram:
      return "n-grams";
    case DraftSource::kMedusa:
      return "Medusa's heads";
    case DraftSource::kSuffix:
      return "texts";
    default:
      return "";
  }
}

struct Named {
  fs::path dir;
  bool is_eagle = false;
};
// Of a model on a device.
Result<Named> Find(const model::ModelConfig& config, DeviceKind device,
                   const OpenOptions& options) {
  const DraftSource source = options.executor.drafts;
  if (const std::string_view other = OtherProposer(source); !other.empty())
    return InvalidArgument("draft_model",
                           fmt::format("{} propose tokens already; leave one of them out", other));
  Named named;
  ASSIGN_OR_RETURN(named.dir, artifact::ResolveModelDir(options.draft_model));
  named.is_eagle = builder::IsEagleHead(named.dir);
  if (named.is_eagle && device == DeviceKind::kCuda && config.dtype == DType::kF32)
    return Unimplemented("draft_model",
                         "got a head of EAGLE beside dtype float32, GPUs compute such heads in "
                         "bfloat16 and float16; use --dtype bfloat16, give a smaller model, or "
                         "--device cpu");
  if (!named.is_eagle && source == DraftSource::kEagle)
    return InvalidArgument("draft_model",
                           fmt::format("got {}, which is no head of EAGLE (its weights have no "
                                       "fc.weight); leave --speculation eagle out for a model",
                                       named.dir.string()));
  return named;
}

builder::EaglePlace PlaceOf(DeviceKind device, int num_stages) {
  return device == DeviceKind::kCuda && num_stages > 1 ? builder::EaglePlace::kLastStage
                                                       : builder::EaglePlace::kWithTable;
}

}  // namespace

Result<DraftPlan> PlanDrafts(const model::ModelConfig& config, const model::EngineLimits& limits,
                             const builder::OpenOptions& open, const OpenOptions& options) {
  DraftPlan plan{.source = options.executor.drafts, .cost = {}, .eagle = {}};
  if (options.draft_model.empty()) return plan;
  ASSIGN_OR_RETURN(const Named named, Find(config, open.target, options));
  if (named.is_eagle) {
    auto head = builder::DescribeEagleHead(named.dir, model::WholeConfig(config),
                                           PlaceOf(open.target, open.ranks.pp_size));
    if (!head.ok()) return head.status().WithPrefix("draft_model");
    plan.source = DraftSource::kEagle;
    plan.cost.bytes = plan.weight_bytes = builder::EagleHeadBytes(*head, open.target);
    plan.eagle = *std::move(head);
    return plan;
  }
  builder::OpenOptions whole = open;
  whole.ranks = {};  // the leader has all of it
  const auto draft = builder::Describe(named.dir, whole);
  if (!draft.ok()) return draft.status().WithPrefix("draft_model");
  plan.source = DraftSource::kModel;
  plan.cost = executor::CostOfDraftModel(draft->config, draft->limits, limits, open.target,
                                         options.executor);
  plan.weight_bytes = draft->weight_bytes;
  plan.cost.bytes += plan.weight_bytes;
  return plan;
}

Result<OpenedDrafts> OpenDrafts(const model::Engine& engine, Device& device,
                                const OpenOptions& options) {
  OpenedDrafts opened{.source = options.executor.drafts, .weights = {}};
  if (options.draft_model.empty()) return opened;
  const model::RankPart& part = engine.config.part;
  ASSIGN_OR_RETURN(const Named named, Find(engine.config, device.kind(), options));
  if (named.is_eagle) {
    opened.source = DraftSource::kEagle;
    if (device.kind() == DeviceKind::kCuda && !part.is_last_stage()) return opened;
    auto head = builder::OpenEagleHead(named.dir, model::WholeConfig(engine.config), device,
                                       PlaceOf(device.kind(), part.pp_size));
    if (!head.ok()) return head.status().WithPrefix("draft_model");
    opened.weights.eagle = *std::move(head);
    return opened;
  }
  opened.source = DraftSource::kModel;
  // Of stages on GPUs the first one drafts.
  if (device.kind() == DeviceKind::kCuda && !part.is_first_stage()) return opened;
  OpenOptions of_draft = options;
  of_draft.quant_algo = "auto";
  of_draft.group_size = std::nullopt;
  of_draft.tensor_parallel_size = of_draft.pipeline_parallel_size = 1;
  of_draft.moe_ep_size = of_draft.moe_tp_size = std::nullopt;
  auto open = BuilderOptions(named.dir, of_draft);
  if (!open.ok()) return open.status().WithPrefix("draft_model");
  open->can_release = options.executor.enable_sleep;
  auto draft = builder::Open(named.dir, device, *open);
  if (!draft.ok()) return draft.status().WithPrefix("draft_model");
  opened.weights.model = *std::move(draft);
  return opened;
}

}  // namespace inflight::loader
