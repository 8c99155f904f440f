// SPDX-License-Identifier: Apache-2.0
#include "executor/cpu_backend.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/status_macros.h"
#include "decoding/ngram_drafts.h"
#include "decoding/stop.h"
#include "executor/adapter_cache.h"
#include "executor/host_rows.h"
#include "executor/kv_storage.h"
#include "executor/prompt_tables.h"
#include "executor/step_inputs.h"
#include "model/decoder.h"

namespace inflight::executor {
namespace {

class CpuBackend : public Backend {
 public:
  CpuBackend(std::shared_ptr<const model::Engine> engine, Device& device, const MemoryPlan& plan,
             std::unique_ptr<ModelDrafts> drafts)
      : engine_(std::move(engine)),
        drafts_(std::move(drafts)),
        stream_(device),
        rows_(plan.max_batch_size, engine_->config.vocab_size, /*device_draws=*/false,
              device.cpu_pool().num_threads()),
        tables_(device, plan.prompt_rows, plan.max_slots) {
    info_ = BackendInfoOf(plan, engine_->config.vocab_size, engine_->limits.max_beam_width);
    slots_.resize(static_cast<size_t>(info_.max_slots));
    logit_tokens_.resize(static_cast<size_t>(info_.max_batch_size));
    if (info_.makes_drafts) plan_ = std::make_unique<StepPlan>();
    result_.Reserve(info_.max_batch_size);
  }

  Status Load(const ops::OpTable& ops, const MemoryPlan& plan, Device& device) {
    ASSIGN_OR_RETURN(decoder_, model::Decoder::Create(engine_, ops, device, plan.max_num_tokens,
                                                      plan.max_logits(), plan.windows));
    ASSIGN_OR_RETURN(inputs_, StepInputs::Create(plan, info_.max_slots, device));
    ASSIGN_OR_RETURN(sampler_share_, device.ledger().Take("sampler", plan.sampler_bytes));
    ASSIGN_OR_RETURN(adapters_, AdapterCache::Create(engine_, device,
                                                     {.num_bytes = plan.adapter_bytes,
                                                      .is_booked = plan.books_adapters}));
    ASSIGN_OR_RETURN(kv_, KvStorage::Create(KvShape(engine_->config, plan.block_size),
                                            plan.num_blocks + plan.num_host_blocks, device));
    return Status::Ok();
  }

  const BackendInfo& info() const override { return info_; }
  AdapterCache* adapters() override { return adapters_.get(); }

  Status SetupSlot(const SlotSetup& setup) override {
    slots_[static_cast<size_t>(setup.slot)] = {
        .stop = {.end_ids = setup.request->end_ids,
                 .stop_words = setup.request->stop_words,
                 .num_prompt_tokens = setup.num_prompt_tokens,
                 .max_seq_len = setup.max_seq_len},
        .cum_log_prob = setup.cum_log_prob};
    SetAdapter(setup.slot, setup);
    for (const SlotId beam : setup.beam_slots) SetAdapter(beam, setup);
    rows_.SetUp(setup);
    return tables_.SetUp(setup);
  }

  std::vector<Beam> BestBeams(SlotId slot, bool is_last) const override {
    return rows_.BestBeams(slot, is_last);
  }

  Result<Ticket> Launch(const StepPlan& planned) override {
    CHECK_EQ(outstanding_, 0);
    ASSIGN_OR_RETURN(const StepPlan* const drafted, Draft(planned));
    const StepPlan& plan = *drafted;
    kv_.CopyBlocks(std::span(plan.copies).first(static_cast<size_t>(plan.num_copies)),
                   stream_.cpu_pool());
    inputs_->tables().Apply(plan);
    ASSIGN_OR_RETURN(model::Batch batch, inputs_->Prepare(plan, rows_.tokens(), tables_));
    batch.adapters = FindAdapters(plan);
    ASSIGN_OR_RETURN(const TensorView logits, decoder_->Forward(batch, kv_.view(), stream_));
    for (const scheduler::PlanRow& row : std::span(plan.rows).first(plan.num_rows))
      if (row.is_prefill != 0 && row.yields != 0) tables_.Release(row.slot);  // its prompt is done
    result_.Clear(plan.num_rows);
    Decode(plan, logits);
    RETURN_IF_ERROR(KeepContextLogits(plan));
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
    const model::Adapter* adapter = nullptr;
    // Of the step that was computed last.
    std::vector<decoding::SampledToken> drawn;
    FinishReason finish_reason = FinishReason::kNotFinished;
  };

  void SetAdapter(SlotId slot, const SlotSetup& setup) {
    slots_[static_cast<size_t>(slot)].adapter = setup.adapter;
  }

  // Those of the plan's rows; null where none has any.
  ops::LoraBatch* FindAdapters(const StepPlan& plan) {
    const auto rows = std::span(plan.rows).first(static_cast<size_t>(plan.num_rows));
    const auto adapter_of = [&](const scheduler::PlanRow& row) {
      return slots_[static_cast<size_t>(row.slot)].adapter;
    };
    if (std::ranges::none_of(rows, adapter_of)) return nullptr;
    step_adapters_.Clear(plan.num_tokens);
    int first_token = 0;
    for (const scheduler::PlanRow& row : rows) {
      const model::Adapter* const adapter = adapter_of(row);
      if (adapter != nullptr)
        step_adapters_.Add(&adapter->table, first_token, row.num_query_tokens);
      first_token += row.num_query_tokens;
    }
    step_adapters_.Group();
    return &step_adapters_;
  }

  // The plan with the drafts that its decode rows really have, which may be fewer than it allows.
  Result<const StepPlan*> Draft(const StepPlan& planned) {
    const auto rows = std::span(planned.rows).first(static_cast<size_t>(planned.num_decode_rows));
    const auto has_drafts = [](const scheduler::PlanRow& row) { return row.num_draft_tokens > 0; };
    if (!info_.makes_drafts || std::ranges::none_of(rows, has_drafts)) return &planned;
    if (drafts_ != nullptr) {
      RETURN_IF_ERROR(DraftByModel(rows));
    } else {
      DraftByText(rows);
    }
    *plan_ = planned;
    for (scheduler::PlanRow& row :
         std::span(plan_->rows).first(static_cast<size_t>(planned.num_decode_rows))) {
      if (row.num_draft_tokens == 0) continue;
      const auto num_drafts = static_cast<int>(rows_.drafts(row.slot).size());
      const int num_missing = row.num_draft_tokens - num_drafts;
      row.num_draft_tokens = static_cast<uint8_t>(num_drafts);
      row.num_query_tokens -= num_missing;
      plan_->num_tokens -= num_missing;
    }
    return plan_.get();
  }

  // Up to the first id that is none of the vocabulary.
  void DraftByText(std::span<const scheduler::PlanRow> rows) {
    stream_.cpu_pool().ParallelFor(std::ssize(rows), [&](int64_t r) {
      const scheduler::PlanRow& row = rows[static_cast<size_t>(r)];
      std::vector<TokenId>& drafts = rows_.drafts(row.slot);
      decoding::DraftByLookup(rows_.tokens()[static_cast<size_t>(row.slot)].tokens,
                              row.num_draft_tokens, &drafts);
      const auto is_foreign = [&](TokenId id) { return id < 0 || id >= info_.vocab_size; };
      drafts.erase(std::ranges::find_if(drafts, is_foreign), drafts.end());
    });
  }

  Status DraftByModel(std::span<const scheduler::PlanRow> rows) {
    asks_.clear();
    for (const scheduler::PlanRow& row : rows) {
      if (row.num_draft_tokens == 0) continue;
      asks_.push_back({.slot = row.slot,
                       .max_drafts = row.num_draft_tokens,
                       .tokens = &rows_.tokens()[static_cast<size_t>(row.slot)].tokens,
                       .drafts = &rows_.drafts(row.slot)});
    }
    return drafts_->Draft(asks_, rows_.sampler(), stream_);
  }

  // Draws the tokens of each row that yields, appends them to its slot, and judges whether the
  // sequence ends. Rows of a beam search give their best continuations, which it then chooses from.
  void Decode(const StepPlan& plan, const TensorView& logits) {
    const std::span<HostRows::Row> found = rows_.Find(plan, &found_rows_);
    stream_.cpu_pool().ParallelFor(std::ssize(found), [&](int64_t i) {
      HostRows::Row& row = found[static_cast<size_t>(i)];
      row.logits = logits.as<float>() + int64_t{row.logit} * info_.vocab_size;
      if (row.search == nullptr) {
        Draw(&row);
      } else {
        rows_.Read(&row);
      }
    });
    size_t next = 0;
    for (int r = 0; r < plan.num_rows; ++r) {
      if (plan.rows[static_cast<size_t>(r)].yields != 0) {
        HostRows::Row& row = found[next++];
        if (row.search == nullptr) {
          Collect(row);
          HostRows::Return(&row, &result_);
        } else if (row.beam == 0) {
          Advance(found.subspan(next - 1));
        }
      }
      result_.token_begin[static_cast<size_t>(r) + 1] =
          static_cast<int32_t>(result_.token_ids.size());
    }
  }

  // One token after another, as if each had come in a step of its own: a draft is accepted when it
  // is the very token that comes in its place, and the logits behind it are then those of the next.
  void Draw(HostRows::Row* row) {
    Slot& slot = slots_[static_cast<size_t>(row->slot)];
    slot.drawn.clear();
    for (int& i = row->num_read;; ++i) {
      rows_.Read(row);
      slot.drawn.push_back(row->token);
      slot.finish_reason = decoding::CheckStop(slot.stop, rows_.Append(row->slot, row->token.id));
      if (slot.finish_reason != FinishReason::kNotFinished || i == row->num_drafts ||
          row->token.id != rows_.drafts(row->slot)[static_cast<size_t>(i)])
        return;
      row->logits += info_.vocab_size;
    }
  }

  void Collect(const HostRows::Row& row) {
    const auto r = static_cast<size_t>(row.plan_row);
    Slot& slot = slots_[static_cast<size_t>(row.slot)];
    for (const decoding::SampledToken& token : slot.drawn) {
      slot.cum_log_prob += token.log_prob_all;
      result_.token_ids.push_back(token.id);
      result_.log_probs.push_back(token.log_prob);
    }
    result_.cum_log_probs[r] = slot.cum_log_prob;
    result_.finish_reasons[r] = slot.finish_reason;
    result_.num_drafted[r] = row.num_drafts;
  }

  void Advance(std::span<HostRows::Row> rows) {
    const auto move = rows_.Advance(rows, &result_);
    if (!move) return;
    copies_.clear();
    inputs_->tables().Reorder(move->slots, move->parents, move->num_kv_tokens, &copies_);
    kv_.Copy(copies_, stream_.cpu_pool());
  }

  // Those of prompt tokens that this step computed. Overwrites the step's other logits.
  Status KeepContextLogits(const StepPlan& plan) {
    rows_.FindContext(plan, &context_);
    for (const HostRows::Context& context : context_) {
      RETURN_IF_ERROR(Compute(context.first_token, context.num_tokens,
                              &result_.LogitsOf(context.plan_row).context));
    }
    return Status::Ok();
  }

  // Logits of tokens [first, first + num_tokens) of the packed batch, as many at a time as the
  // decoder has room for.
  Status Compute(int first, int num_tokens, LogitsRows* out) {
    out->values.reserve(static_cast<size_t>(num_tokens) * static_cast<size_t>(info_.vocab_size));
    while (num_tokens > 0) {
      const int n = std::min(num_tokens, info_.max_batch_size);
      std::iota(logit_tokens_.begin(), logit_tokens_.begin() + n, first);
      ASSIGN_OR_RETURN(const TensorView logits,
                       decoder_->Logits({logit_tokens_.data(), DType::kI32, {n}}, stream_));
      AppendRows(logits.as<float>(), n, info_.vocab_size, out);
      first += n;
      num_tokens -= n;
    }
    return Status::Ok();
  }

  std::shared_ptr<const model::Engine> engine_;
  const std::unique_ptr<ModelDrafts> drafts_;  // null: out of the text
  Stream stream_;
  BackendInfo info_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<StepInputs> inputs_;
  KvStorage kv_;
  std::unique_ptr<AdapterCache> adapters_;
  ops::LoraBatch step_adapters_;
  HostRows rows_;
  PromptTables tables_;
  MemoryShare sampler_share_;
  std::vector<Slot> slots_;            // [max_slots]
  std::vector<int32_t> logit_tokens_;  // [max_batch_size]
  std::vector<HostRows::Row> found_rows_;
  std::vector<HostRows::Context> context_;
  std::vector<kv_cache::BlockCopy> copies_;
  std::vector<ModelDrafts::Ask> asks_;
  std::unique_ptr<StepPlan> plan_;  // with its drafts; where there are any
  StepResult result_;
  Ticket outstanding_ = 0;
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateCpuBackend(std::shared_ptr<const model::Engine> engine,
                                                  Device& device, const MemoryPlan& plan,
                                                  const ops::OpTable& ops,
                                                  std::unique_ptr<ModelDrafts> drafts) {
  auto backend = std::make_unique<CpuBackend>(std::move(engine), device, plan, std::move(drafts));
  RETURN_IF_ERROR(backend->Load(ops, plan, device));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace inflight::executor
