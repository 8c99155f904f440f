// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "executor/cuda/cuda_ranks_backend.h"
#include "executor/cuda/rank_thread.h"
#include "executor/model_drafts.h"
#include "model/supported.h"
#include "ops/backend.h"

namespace inflight::executor {
namespace {

// Of the rank's stage: a draft model is the first one's, a head of EAGLE the last one's.
DraftWeights DraftOf(const std::vector<DraftWeights>& drafts, const RankEngines& engines,
                     size_t rank) {
  if (drafts.empty()) return {};
  const model::RankPart& part = engines[rank]->config.part;
  return {.model = part.is_first_stage() ? drafts[rank].model : nullptr,
          .eagle = part.is_last_stage() ? drafts[rank].eagle : nullptr};
}

Result<std::vector<MemoryPlan>> PlanRanks(const RankEngines& engines,
                                          const std::vector<Device*>& devices,
                                          ExecutorOptions options,
                                          const std::vector<DraftWeights>& drafts) {
  options.kv_cache_host_bytes /= engines.size();
  std::vector<MemoryPlan> plans;
  for (const bool is_final : {false, true}) {
    plans.clear();
    for (size_t r = 0; r < engines.size(); ++r) {
      const auto num_shares = static_cast<int>(std::ranges::count(devices, devices[r]));
      ASSIGN_OR_RETURN(plans.emplace_back(), PlanShare(*engines[r], *devices[r], options,
                                                       DraftOf(drafts, engines, r), num_shares));
      if (is_final) continue;
      const int64_t tokens = plans.back().kv_tokens();
      options.max_kv_tokens = std::min(options.max_kv_tokens.value_or(tokens), tokens);
    }
  }
  // An adapter has one place on all.
  const uint64_t adapter_bytes =
      std::ranges::min(plans, {}, &MemoryPlan::adapter_bytes).adapter_bytes;
  // Nor has a block of the host pool, of which stages of fewer layers have room for more.
  const int64_t num_host_blocks =
      std::ranges::min(plans, {}, &MemoryPlan::num_host_blocks).num_host_blocks;
  for (MemoryPlan& plan : plans) {
    plan.adapter_bytes = adapter_bytes;
    plan.num_host_blocks = num_host_blocks;
  }
  return plans;
}

}  // namespace

namespace cuda {

Result<LoadedRank> LoadRank(RankToLoad to_load, const ExecutorOptions& options,
                            const std::string& force_ops) {
  Device& device = to_load.device;
  const auto choice = options.deterministic ? ops::OpChoice::kFixed : ops::OpChoice::kFastest;
  const int vocab_size = to_load.engine->config.vocab_size;
  ASSIGN_OR_RETURN(
      const ops::OpTable ops,
      ops::FindOps(device, model::KernelShape(to_load.engine->config), force_ops, choice));
  LoadedRank loaded{.rank = nullptr, .ops = ops.name};
  ASSIGN_OR_RETURN(loaded.rank, LoadCudaRank(to_load.engine, device, to_load.plan, ops, choice,
                                             to_load.groups, to_load.mail));
  DraftWeights& draft = to_load.draft;
  // Each rank of a stage that drafts does, and all have to draft the same.
  constexpr ops::OpChoice kSame = ops::OpChoice::kFixed;
  const auto ops_of = [&](const model::ModelConfig& config) {
    return ops::FindOps(device, model::KernelShape(config), force_ops, kSame);
  };
  if (draft.model != nullptr) {
    RETURN_IF_ERROR(CheckDraftModel(*draft.model, vocab_size, to_load.plan));
    ASSIGN_OR_RETURN(const ops::OpTable draft_ops, ops_of(draft.model->config));
    RETURN_IF_ERROR(loaded.rank->LoadDrafts(std::move(draft.model), draft_ops, kSame, device));
  }
  if (to_load.plan.draft_tree && to_load.engine->config.part.is_last_stage()) {
    ASSIGN_OR_RETURN(
        const ops::OpTable of_heads,
        ops_of(draft.eagle == nullptr ? to_load.engine->config : draft.eagle->config.layer));
    RETURN_IF_ERROR(loaded.rank->LoadTrees(std::move(draft.eagle), of_heads, device));
  }
  return loaded;
}

}  // namespace cuda

Status CheckCudaRanks(const model::RankPart& part) {
  if (part.pp_size <= kMaxCudaStages) return Status::Ok();
  return InvalidArgument("pipeline_parallel_size",
                         fmt::format("got {}, GPUs take at most {} stages; use a larger "
                                     "tensor_parallel_size",
                                     part.pp_size, kMaxCudaStages));
}

Result<LocalBackend> CreateCudaRanks(const RankEngines& engines,
                                     const std::vector<Device*>& devices,
                                     const ExecutorOptions& options, const std::string& force_ops,
                                     const std::vector<DraftWeights>& drafts) {
  const model::ModelConfig& config = engines.front()->config;
  const model::RankPart& part = config.part;
  RETURN_IF_ERROR(CheckCudaRanks(part));
  const size_t num_ranks = engines.size();
  CHECK_EQ(num_ranks, devices.size());
  CHECK(drafts.empty() || drafts.size() == num_ranks);
  ExecutorOptions planned = options;
  if (options.drafts == DraftSource::kAuto && !drafts.empty() && drafts.back().eagle != nullptr)
    planned.drafts = DraftSource::kEagle;  // for stages before the head's
  ASSIGN_OR_RETURN(std::vector<MemoryPlan> plans, PlanRanks(engines, devices, planned, drafts));
  ASSIGN_OR_RETURN(auto group,
                   cuda::GpuGroup::Create(devices, {.is_deterministic = options.deterministic,
                                                    .num_stages = part.pp_size,
                                                    .step_bytes = CudaStageBytes(
                                                        config, plans.front().max_num_tokens)}));
  std::vector<std::unique_ptr<CudaRank>> ranks;
  std::string ops_name;
  for (size_t r = 0; r < num_ranks; ++r) {
    ASSIGN_OR_RETURN(cuda::LoadedRank loaded,
                     cuda::LoadRank({.engine = engines[r],
                                     .device = *devices[r],
                                     .plan = plans[r],
                                     .draft = DraftOf(drafts, engines, r),
                                     .groups = group->groups(static_cast<int>(r)),
                                     .mail = group->mail(static_cast<int>(r))},
                                    options, force_ops));
    ranks.push_back(std::move(loaded.rank));
    ops_name = std::move(loaded.ops);
  }
  const auto leader = static_cast<size_t>(part.tp_size) * static_cast<size_t>(part.pp_size - 1);
  auto backend = std::make_unique<cuda::CudaRanksBackend>(
      std::move(group), std::move(ranks[leader]), /*is_remote=*/false);
  for (size_t r = 0; r < num_ranks; ++r)
    if (r != leader)
      backend->AddFollowers(std::make_unique<cuda::RankThread>(
          static_cast<int>(r), std::move(ranks[r]),
          [leader = backend.get()](const Status& why) { leader->Fail(why); }));
  backend->LeadAdapters();
  RETURN_IF_ERROR(backend->WarmUp());
  logging::Info("the model runs on several GPUs", {{"tensor_parallel_size", part.tp_size},
                                                   {"pipeline_parallel_size", part.pp_size},
                                                   {"kv_tokens", plans.front().kv_tokens()}});
  return LocalBackend{
      .backend = std::move(backend), .plans = std::move(plans), .ops = std::move(ops_name)};
}

}  // namespace inflight::executor
