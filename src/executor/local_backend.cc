// SPDX-License-Identifier: Apache-2.0
#include "executor/local_backend.h"

#include <algorithm>

#include "base/log.h"
#include "base/status_macros.h"
#include "executor/cpu_backend.h"
#include "executor/cuda_backend.h"
#include "executor/memory_plan.h"
#include "executor/model_drafts.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::executor {
namespace {

model::EngineLimits LoweredLimits(model::EngineLimits limits, const ExecutorOptions& options) {
  limits.max_batch_size = options.max_batch_size.value_or(limits.max_batch_size);
  limits.max_num_tokens = options.max_num_tokens.value_or(limits.max_num_tokens);
  return limits;
}

}  // namespace

Result<LocalBackend> CreateLocalBackend(std::shared_ptr<const model::Engine> engine, Device& device,
                                        const ExecutorOptions& options,
                                        const std::string& force_ops,
                                        const std::shared_ptr<const model::Engine>& draft) {
  const bool is_cuda = device.kind() == DeviceKind::kCuda;
  const auto sizing = device.ledger().LockSizing();
  const uint64_t draft_bytes = draft == nullptr
                                   ? 0
                                   : ModelDrafts::Bytes(draft->config, draft->limits,
                                                        LoweredLimits(engine->limits, options));
  ASSIGN_OR_RETURN(const MemoryPlan plan,
                   PlanMemory(engine->config, engine->limits, device.kind(), engine->weight_bytes,
                              /*weights_are_taken=*/true, options,
                              device.FreeBytes() - std::min(device.FreeBytes(), draft_bytes)));
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
  const model::ModelConfig& config = engine->config;
  const auto choice = options.deterministic ? ops::OpChoice::kFixed : ops::OpChoice::kFastest;
  ASSIGN_OR_RETURN(const ops::OpTable ops,
                   ops::FindOps(device, model::KernelShape(config), force_ops, choice));
  if (const std::string_view note = model::QuantizationNote(config); !note.empty())
    logging::Info("weights are quantised",
                  {{"quant_algo", model::QuantAlgoName(config.quant_algo)}, {"computed", note}});
  std::unique_ptr<Backend> backend;
  if (is_cuda) {
    ASSIGN_OR_RETURN(backend, CreateCudaBackend(std::move(engine), device, plan, ops, choice));
  } else {
    std::unique_ptr<ModelDrafts> drafts;
    if (draft != nullptr) {
      ASSIGN_OR_RETURN(const ops::OpTable draft_ops,
                       ops::FindOps(device, model::KernelShape(draft->config), force_ops, choice));
      ASSIGN_OR_RETURN(
          drafts, ModelDrafts::Create(draft, engine->config.vocab_size, device, plan, draft_ops));
      logging::Info("a draft model proposes tokens", {{"weight_bytes", draft->weight_bytes},
                                                      {"other_bytes", draft_bytes},
                                                      {"max_draft_len", plan.max_draft_len}});
    }
    ASSIGN_OR_RETURN(backend,
                     CreateCpuBackend(std::move(engine), device, plan, ops, std::move(drafts)));
  }
  logging::Info("memory planned", {{"device", device.name()},
                                   {"weight_bytes", plan.weight_bytes},
                                   {"workspace_bytes", plan.workspace_bytes},
                                   {"kernel_bytes", plan.kernel_bytes},
                                   {"graph_bytes", plan.graph_bytes},
                                   {"step_input_bytes", plan.step_input_bytes},
                                   {"sampler_bytes", plan.sampler_bytes},
                                   {"adapter_bytes", plan.booked_adapter_bytes()},
                                   {"kv_bytes", plan.kv_bytes()},
                                   {"kv_blocks", plan.num_blocks},
                                   {"kv_tokens", plan.kv_tokens()},
                                   {"kv_host_blocks", plan.num_host_blocks},
                                   {"kv_host_bytes", plan.host_pool_bytes()},
                                   {"attention_window", plan.window()},
                                   {"full_length_sequences", plan.full_length_sequences()}});
  return LocalBackend{.backend = std::move(backend), .plan = plan};
}

}  // namespace inflight::executor
