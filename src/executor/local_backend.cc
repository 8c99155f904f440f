// SPDX-License-Identifier: Apache-2.0
#include "executor/local_backend.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "decoding/sampler.h"
#include "decoding/stop.h"
#include "executor/cuda_backend.h"
#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "executor/step_inputs.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::executor {
namespace {

class CpuBackend : public Backend {
 public:
  CpuBackend(std::shared_ptr<const model::Engine> engine, Device& device, const MemoryPlan& plan)
      : engine_(std::move(engine)),
        stream_(device),
        sampler_(plan.max_batch_size, engine_->config.vocab_size, device.cpu_pool().num_threads()) {
    info_ = {
        .depth = 1,
        .max_slots = plan.max_batch_size,
        .max_batch_size = plan.max_batch_size,
        .max_num_tokens = plan.max_num_tokens,
        .max_seq_len = plan.max_seq_len,
        .max_input_len = plan.max_input_len,
        .vocab_size = engine_->config.vocab_size,
        .kv_groups = {{.block_size = plan.block_size, .num_blocks = plan.num_blocks, .window = 0}},
        .cpu_memory_bytes = static_cast<int64_t>(plan.total_bytes())};
    tokens_.resize(static_cast<size_t>(info_.max_slots));
    slots_.resize(static_cast<size_t>(info_.max_slots));
    sampled_.resize(static_cast<size_t>(info_.max_batch_size));
    yield_rows_.reserve(static_cast<size_t>(info_.max_batch_size));
    result_.Reserve(info_.max_batch_size);
  }

  Status Load(const ops::OpTable& ops, const MemoryPlan& plan, Device& device,
              uint64_t mapped_bytes) {
    ASSIGN_OR_RETURN(mapped_weights_, device.ledger().Take("weights (mapped)", mapped_bytes));
    ASSIGN_OR_RETURN(decoder_, model::Decoder::Create(engine_, ops, device, plan.max_num_tokens,
                                                      plan.max_batch_size));
    ASSIGN_OR_RETURN(inputs_, StepInputs::Create(plan, info_.max_slots, device));
    ASSIGN_OR_RETURN(sampler_share_, device.ledger().Take("sampler", plan.sampler_bytes));
    ASSIGN_OR_RETURN(
        kv_, KvStorage::Create(KvShape(engine_->config, plan.block_size), plan.num_blocks, device));
    return Status::Ok();
  }

  const BackendInfo& info() const override { return info_; }

  Status SetupSlot(const SlotSetup& setup) override {
    std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(setup.slot)].tokens;
    tokens.reserve(static_cast<size_t>(setup.max_seq_len));
    tokens.assign(setup.tokens.begin(), setup.tokens.end());
    Slot& slot = slots_[static_cast<size_t>(setup.slot)];
    slot.stop = {.end_ids = setup.request->end_ids,
                 .stop_words = setup.request->stop_words,
                 .num_prompt_tokens = setup.num_prompt_tokens,
                 .max_seq_len = setup.max_seq_len};
    slot.cum_log_prob = setup.cum_log_prob;
    sampler_.Setup(setup.slot, decoding::MakeSamplingRule(*setup.request, setup.seed), setup.tokens,
                   setup.max_seq_len);
    return Status::Ok();
  }

  Result<Ticket> Launch(const StepPlan& plan) override {
    CHECK_EQ(outstanding_, 0);
    inputs_->ApplyBlockUpdates(plan);
    ASSIGN_OR_RETURN(const model::Batch batch, inputs_->Prepare(plan, tokens_));
    ASSIGN_OR_RETURN(const TensorView logits, decoder_->Forward(batch, kv_.view(), stream_));
    Decode(plan, logits);
    outstanding_ = plan.step_id;
    return plan.step_id;
  }

  Status ProvideLateInputs(Ticket, const LateInputs&) override {
    return Unimplemented("late inputs: no row of this backend has any");
  }

  bool Ready(Ticket) const override { return true; }

  Result<const StepResult*> Collect(Ticket ticket) override {
    CHECK_EQ(ticket, outstanding_);
    outstanding_ = 0;
    return &result_;
  }

 private:
  struct Slot {
    decoding::StopCriteria stop;
    float cum_log_prob = 0;
  };

  // Draws one token for each row that yields, appends it to its slot, and judges whether the
  // sequence ends.
  void Decode(const StepPlan& plan, const TensorView& logits) {
    yield_rows_.clear();
    for (int r = 0; r < plan.num_rows; ++r)
      if (plan.rows[static_cast<size_t>(r)].yields != 0) yield_rows_.push_back(r);
    const int64_t vocab_size = info_.vocab_size;
    stream_.cpu_pool().ParallelFor(static_cast<int64_t>(yield_rows_.size()), [&](int64_t i) {
      const scheduler::SlotId slot =
          plan.rows[static_cast<size_t>(yield_rows_[static_cast<size_t>(i)])].slot;
      const auto position = static_cast<int64_t>(tokens_[static_cast<size_t>(slot)].tokens.size());
      sampled_[static_cast<size_t>(i)] =
          sampler_.Sample(slot, position, logits.as<float>() + i * vocab_size);
    });

    result_.Clear(plan.num_rows);
    size_t next = 0;
    for (int r = 0; r < plan.num_rows; ++r) {
      const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
      if (row.yields != 0) Append(r, row.slot, sampled_[next++]);
      result_.token_begin[static_cast<size_t>(r) + 1] =
          static_cast<int32_t>(result_.token_ids.size());
    }
  }

  void Append(int r, scheduler::SlotId slot_id, const decoding::SampledToken& token) {
    Slot& slot = slots_[static_cast<size_t>(slot_id)];
    std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(slot_id)].tokens;
    tokens.push_back(token.id);
    sampler_.Append(slot_id, token.id);
    slot.cum_log_prob += token.log_prob_all;
    result_.token_ids.push_back(token.id);
    result_.log_probs.push_back(token.log_prob);
    result_.cum_log_probs[static_cast<size_t>(r)] = slot.cum_log_prob;
    result_.finish_reasons[static_cast<size_t>(r)] = decoding::CheckStop(slot.stop, tokens);
  }

  std::shared_ptr<const model::Engine> engine_;
  MemoryShare mapped_weights_;
  Stream stream_;
  BackendInfo info_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<StepInputs> inputs_;
  KvStorage kv_;
  decoding::Sampler sampler_;
  MemoryShare sampler_share_;
  std::vector<SlotTokens> tokens_;  // [max_slots]
  std::vector<Slot> slots_;         // [max_slots]
  std::vector<int> yield_rows_;
  std::vector<decoding::SampledToken> sampled_;  // [max_batch_size], one per yielding row
  StepResult result_;
  Ticket outstanding_ = 0;
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateLocalBackend(std::shared_ptr<const model::Engine> engine,
                                                    Device& device, const ExecutorOptions& options,
                                                    const std::string& force_ops) {
  const bool is_cuda = device.kind() == DeviceKind::kCuda;
  uint64_t mapped_bytes = 0;  // of host memory
  if (!is_cuda)
    for (const MappedFile& mapping : engine->mappings) mapped_bytes += mapping.bytes().size();
  const auto sizing = device.ledger().LockSizing();
  const uint64_t free = device.FreeBytes();
  ASSIGN_OR_RETURN(const MemoryPlan plan,
                   PlanMemory(engine->config, engine->limits, device.kind(), engine->weight_bytes,
                              /*weights_are_taken=*/true, options,
                              free > mapped_bytes ? free - mapped_bytes : 0));
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
  ASSIGN_OR_RETURN(const ops::OpTable ops,
                   ops::FindOps(device, model::KernelShape(config), force_ops));
  if (const std::string_view note = model::QuantizationNote(config); !note.empty())
    logging::Info("weights are quantised",
                  {{"quant_algo", model::QuantAlgoName(config.quant_algo)}, {"computed", note}});
  std::unique_ptr<Backend> backend;
  if (is_cuda) {
    ASSIGN_OR_RETURN(backend, CreateCudaBackend(std::move(engine), device, plan, ops));
  } else {
    auto cpu = std::make_unique<CpuBackend>(std::move(engine), device, plan);
    RETURN_IF_ERROR(cpu->Load(ops, plan, device, mapped_bytes));
    backend = std::move(cpu);
  }
  logging::Info("memory planned", {{"device", device.name()},
                                   {"weight_bytes", plan.weight_bytes},
                                   {"workspace_bytes", plan.workspace_bytes},
                                   {"kernel_bytes", plan.kernel_bytes},
                                   {"graph_bytes", plan.graph_bytes},
                                   {"step_input_bytes", plan.step_input_bytes},
                                   {"sampler_bytes", plan.sampler_bytes},
                                   {"kv_bytes", plan.kv_bytes()},
                                   {"kv_blocks", plan.num_blocks},
                                   {"kv_tokens", plan.kv_tokens()},
                                   {"full_length_sequences", plan.full_length_sequences()}});
  return backend;
}

}  // namespace inflight::executor
