// SPDX-License-Identifier: Apache-2.0
#include "executor/local_backend.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "executor/cpu_backend.h"
#include "executor/cuda_backend.h"
#include "executor/eagle_drafts.h"
#include "executor/medusa_drafts.h"
#include "executor/memory_plan.h"
#include "executor/model_drafts.h"
#include "model/decoder.h"
#include "model/weight_stream.h"
#include "ops/backend.h"

namespace inflight::executor {
namespace {

model::EngineLimits LoweredLimits(model::EngineLimits limits, const ExecutorOptions& options) {
  limits.max_batch_size = options.max_batch_size.value_or(limits.max_batch_size);
  limits.max_num_tokens = options.max_num_tokens.value_or(limits.max_num_tokens);
  return limits;
}

// Where a plan is not what was asked for.
void WarnOf(const MemoryPlan& plan, const ExecutorOptions& options) {
  if (plan.engine_max_seq_len > 0) {
    logging::Warning(
        "KV cache holds less than one sequence of full length: max_seq_len lowered (free memory, "
        "raise kv_cache_free_memory_fraction or max_kv_tokens)",
        {{"engine_max_seq_len", plan.engine_max_seq_len}, {"max_seq_len", plan.max_seq_len}});
  }
  if (plan.max_kv_tokens_exceed_memory) {
    logging::Warning(
        "both max_kv_tokens and kv_cache_free_memory_fraction are set. The smaller value will be "
        "used.",
        {{"max_kv_tokens", *options.max_kv_tokens},
         {"kv_cache_free_memory_fraction", options.kv_cache_free_memory_fraction},
         {"kv_tokens", plan.kv_tokens()}});
  }
}

void LogTrees(const MemoryPlan& plan, const model::Engine& engine, const model::EagleHead* eagle) {
  if (plan.drafts == DraftSource::kEagle)
    logging::Info("a head of EAGLE proposes tokens", {{"version", eagle->config.version},
                                                      {"weight_bytes", eagle->weight_bytes},
                                                      {"num_nodes", plan.draft_tree->size()}});
  if (plan.drafts == DraftSource::kMedusa)
    logging::Info("Medusa's heads propose tokens",
                  {{"num_medusa_heads", engine.config.num_medusa_heads},
                   {"num_nodes", plan.draft_tree->size()}});
}

// On the CPU: who proposes drafts but for a draft model.
Result<DraftMakers> MakeDrafts(const std::shared_ptr<const model::Engine>& engine, Device& device,
                               const MemoryPlan& plan, const ops::OpTable& ops,
                               const ops::OpTable& draft_ops,
                               const std::shared_ptr<const model::EagleHead>& eagle,
                               RankLeader* leader) {
  DraftMakers drafts;
  if (plan.drafts == DraftSource::kSuffix) {
    constexpr int kTokens = MemoryPlan::kKeptOutputTokens;
    ASSIGN_OR_RETURN(drafts.texts_share,
                     device.ledger().Take("kept outputs", decoding::SuffixDrafts::Bytes(kTokens)));
    drafts.texts = std::make_unique<decoding::SuffixDrafts>(kTokens);
  }
  if (plan.drafts == DraftSource::kEagle) {
    ASSIGN_OR_RETURN(drafts.tree,
                     EagleDrafts::Create(eagle, engine, device, plan, draft_ops, leader));
  }
  if (plan.drafts == DraftSource::kMedusa) {
    ASSIGN_OR_RETURN(drafts.tree, MedusaDrafts::Create(engine, device, plan, ops));
  }
  LogTrees(plan, *engine, eagle.get());
  return drafts;
}

DraftModelCost CostOf(const DraftWeights& draft, const model::Engine& engine, DeviceKind device,
                      const ExecutorOptions& options) {
  if (draft.model == nullptr) return {};
  return CostOfDraftModel(draft.model->config, draft.model->limits, engine.limits, device, options);
}

// With weights that are taken, of `free_bytes`.
Result<MemoryPlan> PlanLocal(const model::Engine& engine, DeviceKind device,
                             const ExecutorOptions& options, const DraftWeights& draft,
                             uint64_t free_bytes) {
  const DraftModelCost cost = CostOf(draft, engine, device, options);
  return PlanMemory(engine.config, engine.limits, device,
                    engine.weight_bytes - engine.host_weight_bytes(), /*weights_are_taken=*/true,
                    options, free_bytes - std::min(free_bytes, cost.bytes),
                    {.ring_bytes = model::RingBytes(engine),
                     .host_bytes = engine.host_weight_bytes(),
                     .draft_kv_bytes_per_block = cost.kv_bytes_per_block,
                     .eagle = draft.eagle == nullptr ? nullptr : &draft.eagle->config});
}

}  // namespace

Result<MemoryPlan> PlanShare(const model::Engine& engine, Device& device,
                             const ExecutorOptions& options, const DraftWeights& draft,
                             int num_shares) {
  return PlanLocal(engine, device.kind(), options, draft,
                   device.FreeBytes() / static_cast<uint64_t>(num_shares));
}

DraftModelCost CostOfDraftModel(const model::ModelConfig& draft,
                                const model::EngineLimits& draft_limits,
                                const model::EngineLimits& limits, DeviceKind device,
                                const ExecutorOptions& options) {
  const model::EngineLimits lowered = LoweredLimits(limits, options);
  if (device == DeviceKind::kCpu)
    return {.bytes = ModelDrafts::Bytes(draft, draft_limits, lowered)};
  return {.bytes = CudaDraftBytes(draft, lowered),
          .kv_bytes_per_block = KvBytesPerBlock(KvShape(draft, options.block_size, device))};
}

Result<LocalBackend> CreateLocalBackend(std::shared_ptr<const model::Engine> engine, Device& device,
                                        const ExecutorOptions& options,
                                        const std::string& force_ops, const DraftWeights& draft,
                                        const MakeFollowers& make_followers) {
  const bool is_cuda = device.kind() == DeviceKind::kCuda;
  CHECK(engine->config.part.is_whole() || !is_cuda);
  std::unique_lock<std::mutex> sizing;
  if (!make_followers) sizing = device.ledger().LockSizing();
  ASSIGN_OR_RETURN(const MemoryPlan plan,
                   PlanLocal(*engine, device.kind(), options, draft, device.FreeBytes()));
  WarnOf(plan, options);
  const model::ModelConfig& config = engine->config;
  const auto choice = options.deterministic ? ops::OpChoice::kFixed : ops::OpChoice::kFastest;
  ASSIGN_OR_RETURN(const ops::OpTable ops,
                   ops::FindOps(device, model::KernelShape(config), force_ops, choice));
  if (const std::string note = model::QuantizationNote(config); !note.empty())
    logging::Info("weights are quantised",
                  {{"quant_algo", model::QuantAlgoName(config.quant_algo)}, {"computed", note}});
  ops::OpTable draft_ops;
  if (draft.eagle != nullptr) {
    ASSIGN_OR_RETURN(draft_ops, ops::FindOps(device, model::KernelShape(draft.eagle->config.layer),
                                             force_ops, choice));
  }
  if (draft.model != nullptr) {
    RETURN_IF_ERROR(CheckDraftModel(*draft.model, config.vocab_size, plan));
    ASSIGN_OR_RETURN(draft_ops, ops::FindOps(device, model::KernelShape(draft.model->config),
                                             force_ops, choice));
    logging::Info("a draft model proposes tokens",
                  {{"weight_bytes", draft.model->weight_bytes},
                   {"other_bytes", CostOf(draft, *engine, device.kind(), options).bytes},
                   {"max_draft_len", plan.max_draft_len}});
  }
  std::unique_ptr<Backend> backend;
  if (is_cuda) {
    LogTrees(plan, *engine, draft.eagle.get());
    ASSIGN_OR_RETURN(
        backend, CreateCudaBackend(std::move(engine), device, plan, ops, choice, draft, draft_ops));
  } else {
    RankMembership membership;
    if (make_followers) {
      ASSIGN_OR_RETURN(membership, make_followers(plan, ops));
    }
    ASSIGN_OR_RETURN(DraftMakers drafts, MakeDrafts(engine, device, plan, ops, draft_ops,
                                                    draft.eagle, membership.leader.get()));
    if (draft.model != nullptr) {
      ASSIGN_OR_RETURN(drafts.model, ModelDrafts::Create(draft.model, config.vocab_size, device,
                                                         plan, draft_ops));
    }
    ASSIGN_OR_RETURN(backend, CreateCpuBackend(std::move(engine), device, plan, ops,
                                               std::move(drafts), std::move(membership)));
  }
  logging::Info("memory planned", {{"device", device.name()},
                                   {"weight_bytes", plan.weight_bytes},
                                   {"weight_ring_bytes", plan.ring_bytes},
                                   {"weight_host_bytes", plan.host_weight_bytes},
                                   {"workspace_bytes", plan.workspace_bytes},
                                   {"kernel_bytes", plan.kernel_bytes},
                                   {"graph_bytes", plan.graph_bytes},
                                   {"step_input_bytes", plan.step_input_bytes},
                                   {"sampler_bytes", plan.sampler_bytes},
                                   {"adapter_bytes", plan.booked_adapter_bytes()},
                                   {"kv_bytes", plan.kv_bytes()},
                                   {"kv_blocks", plan.num_blocks},
                                   {"kv_tokens", plan.kv_tokens()},
                                   {"kv_groups", plan.num_groups()},
                                   {"kv_host_blocks", plan.num_host_blocks},
                                   {"kv_host_bytes", plan.host_pool_bytes()},
                                   {"attention_window", plan.window()},
                                   {"full_length_sequences", plan.full_length_sequences()}});
  return LocalBackend{.backend = std::move(backend), .plans = {plan}, .ops = ops.name};
}

}  // namespace inflight::executor
