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

Result<std::vector<MemoryPlan>> PlanRanks(const RankEngines& engines,
                                          const std::vector<Device*>& devices,
                                          ExecutorOptions options, const RankEngines& drafts) {
  options.kv_cache_host_bytes /= engines.size();
  std::vector<MemoryPlan> plans;
  for (const bool is_final : {false, true}) {
    plans.clear();
    for (size_t r = 0; r < engines.size(); ++r) {
      const auto num_shares = static_cast<int>(std::ranges::count(devices, devices[r]));
      const DraftWeights draft = {.model = drafts.empty() ? nullptr : drafts[r], .eagle = nullptr};
      ASSIGN_OR_RETURN(plans.emplace_back(),
                       PlanShare(*engines[r], *devices[r], options, draft, num_shares));
      if (is_final) continue;
      const int64_t tokens = plans.back().kv_tokens();
      options.max_kv_tokens = std::min(options.max_kv_tokens.value_or(tokens), tokens);
    }
  }
  // An adapter has one place on all.
  const uint64_t adapter_bytes =
      std::ranges::min(plans, {}, &MemoryPlan::adapter_bytes).adapter_bytes;
  for (MemoryPlan& plan : plans) plan.adapter_bytes = adapter_bytes;
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
  ASSIGN_OR_RETURN(loaded.rank, LoadCudaRank(std::move(to_load.engine), device, to_load.plan, ops,
                                             choice, {.tensor = &to_load.communicator}));
  if (to_load.draft == nullptr) return loaded;
  RETURN_IF_ERROR(CheckDraftModel(*to_load.draft, vocab_size, to_load.plan));
  // Each rank drafts, and all have to draft the same.
  constexpr ops::OpChoice kSame = ops::OpChoice::kFixed;
  ASSIGN_OR_RETURN(
      const ops::OpTable draft_ops,
      ops::FindOps(device, model::KernelShape(to_load.draft->config), force_ops, kSame));
  RETURN_IF_ERROR(loaded.rank->LoadDrafts(std::move(to_load.draft), draft_ops, kSame, device));
  return loaded;
}

}  // namespace cuda

Status CheckCudaRanks(const model::RankPart& part) {
  if (part.pp_size > 1)
    return Unimplemented(fmt::format(
        "pipeline_parallel_size: got {}, GPUs have one stage; use tensor_parallel_size, or "
        "--device cpu",
        part.pp_size));
  return Status::Ok();
}

Result<LocalBackend> CreateCudaRanks(const RankEngines& engines,
                                     const std::vector<Device*>& devices,
                                     const ExecutorOptions& options, const std::string& force_ops,
                                     const RankEngines& drafts) {
  const model::ModelConfig& config = engines.front()->config;
  RETURN_IF_ERROR(CheckCudaRanks(config.part));
  const size_t num_ranks = engines.size();
  CHECK_EQ(num_ranks, devices.size());
  CHECK(drafts.empty() || drafts.size() == num_ranks);
  ASSIGN_OR_RETURN(std::vector<MemoryPlan> plans, PlanRanks(engines, devices, options, drafts));
  ASSIGN_OR_RETURN(auto group, cuda::GpuGroup::Create(devices, options.deterministic));
  std::vector<std::unique_ptr<CudaRank>> ranks;
  std::string ops_name;
  for (size_t r = 0; r < num_ranks; ++r) {
    ASSIGN_OR_RETURN(cuda::LoadedRank loaded,
                     cuda::LoadRank({.engine = engines[r],
                                     .device = *devices[r],
                                     .plan = plans[r],
                                     .draft = drafts.empty() ? nullptr : drafts[r],
                                     .communicator = group->rank(static_cast<int>(r))},
                                    options, force_ops));
    ranks.push_back(std::move(loaded.rank));
    ops_name = std::move(loaded.ops);
  }
  auto backend = std::make_unique<cuda::CudaRanksBackend>(
      std::move(group), std::move(ranks.front()), /*is_remote=*/false);
  for (size_t r = 1; r < num_ranks; ++r)
    backend->AddFollowers(std::make_unique<cuda::RankThread>(
        static_cast<int>(r), std::move(ranks[r]),
        [leader = backend.get()](const Status& why) { leader->Fail(why); }));
  backend->LeadAdapters();
  RETURN_IF_ERROR(backend->WarmUp());
  logging::Info("the model runs on several GPUs", {{"tensor_parallel_size", config.part.tp_size},
                                                   {"kv_tokens", plans.front().kv_tokens()}});
  return LocalBackend{
      .backend = std::move(backend), .plans = std::move(plans), .ops = std::move(ops_name)};
}

}  // namespace inflight::executor
