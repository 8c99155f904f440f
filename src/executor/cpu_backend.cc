// SPDX-License-Identifier: Apache-2.0
#include "executor/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "decoding/ngram_drafts.h"
#include "decoding/stop.h"
#include "executor/adapter_cache.h"
#include "executor/host_rows.h"
#include "executor/kv_storage.h"
#include "executor/prompt_tables.h"
#include "executor/stage_logits.h"
#include "executor/step_inputs.h"
#include "model/decoder.h"

namespace inflight::executor {
namespace {

class CpuBackend : public Backend {
 public:
  CpuBackend(std::shared_ptr<const model::Engine> engine, Device& device, const MemoryPlan& plan,
             DraftMakers drafts, RankMembership membership)
      : engine_(std::move(engine)),
        drafts_(std::move(drafts)),
        groups_(membership.groups),
        leader_(std::move(membership.leader)),
        stream_(device),
        rows_(plan.max_slots, engine_->config.vocab_size, /*device_draws=*/false,
              device.cpu_pool().num_threads()),
        tables_(device, plan.prompt_rows, plan.max_slots) {
    info_ = BackendInfoOf(plan, engine_->config.vocab_size, engine_->limits.max_beam_width);
    info_.cpu_memory_bytes += static_cast<int64_t>(membership.others_bytes);
    slots_.resize(static_cast<size_t>(info_.max_slots));
    logit_tokens_.resize(static_cast<size_t>(info_.max_batch_size));
    if (info_.makes_drafts) plan_ = std::make_unique<StepPlan>();
    if (drafts_.tree != nullptr) {
      const decoding::DraftTree& tree = drafts_.tree->tree();
      info_.draft_chances.clear();
      for (int i = 0; i < tree.size(); ++i) info_.draft_chances.push_back(tree[i].chance);
    }
    result_.Reserve(info_.max_batch_size);
    if (plan.num_stages > 1) steps_in_flight_.resize(static_cast<size_t>(plan.num_stages));
  }

  Status Load(const ops::OpTable& ops, const MemoryPlan& plan, Device& device) {
    ASSIGN_OR_RETURN(decoder_, model::Decoder::Create(engine_, ops, device, plan.max_num_tokens,
                                                      plan.max_logits(), plan.windows,
                                                      /*weight_stream=*/nullptr, groups_));
    decoder_->Bring(plan.head_inputs);
    ASSIGN_OR_RETURN(inputs_, StepInputs::Create(plan, info_.max_slots, device));
    ASSIGN_OR_RETURN(sampler_share_, device.ledger().Take("sampler", plan.sampler_bytes));
    ASSIGN_OR_RETURN(adapters_, AdapterCache::Create(engine_, device,
                                                     {.num_bytes = plan.adapter_bytes,
                                                      .is_booked = plan.books_adapters}));
    ASSIGN_OR_RETURN(kv_, KvStorage::CreateGroups(
                              KvShape(engine_->config, plan.block_size, DeviceKind::kCpu),
                              KvGroupSizes(engine_->config, plan), device, plan.can_release));
    if (!steps_in_flight_.empty())
      RETURN_IF_ERROR(LoadStages(plan.max_stage_logits(info_.max_beam_width), device));
    return Status::Ok();
  }

  const BackendInfo& info() const override { return info_; }
  AdapterCache* adapters() override { return adapters_.get(); }

  Result<ReleasableParts> releasable() const override {
    if (leader_ != nullptr)
      return Unimplemented("sleep",
                           "ranks of a model on CPUs do not sleep; serve it on one rank "
                           "(--tensor-parallel-size 1 --pipeline-parallel-size 1)");
    ReleasableParts parts;
    parts.weights = engine_->releasable;
    if (kv_.releasable() != nullptr) parts.kv_cache.push_back(kv_.releasable());
    return parts;
  }

  Status SetupSlot(const SlotSetup& setup) override {
    rows_.Clear(setup.slot);
    slots_[static_cast<size_t>(setup.slot)] = {
        .stop = {.end_ids = setup.request->end_ids,
                 .stop_words = setup.request->stop_words,
                 .num_prompt_tokens = setup.num_prompt_tokens,
                 .max_seq_len = setup.max_seq_len},
        .cum_log_prob = setup.cum_log_prob};
    if (leader_ != nullptr && setup.adapter != nullptr)
      RETURN_IF_ERROR(leader_->UseAdapter(*setup.adapter, *adapters_));
    SetAdapter(setup.slot, setup);
    for (const SlotId beam : setup.beam_slots) SetAdapter(beam, setup);
    if (drafts_.tree != nullptr) {
      RETURN_IF_ERROR(drafts_.tree->SetUp(setup.slot, *decoder_, stream_));
      for (const SlotId beam : setup.beam_slots)
        RETURN_IF_ERROR(drafts_.tree->SetUp(beam, *decoder_, stream_));
    }
    rows_.SetUp(setup);
    return tables_.SetUp(setup);
  }

  void ReleaseSlot(SlotId slot) override { rows_.Release(slot); }

  std::vector<Beam> BestBeams(SlotId slot, bool is_last) const override {
    return rows_.BestBeams(slot, is_last);
  }

  Result<Ticket> Launch(const StepPlan& planned) override {
    CHECK_LT(num_outstanding_, info_.depth);
    if (drafts_.tree != nullptr)
      RETURN_IF_ERROR(drafts_.tree->Prepare(planned, *decoder_, stream_));
    const auto copies = std::span(planned.copies).first(static_cast<size_t>(planned.num_copies));
    if (leader_ != nullptr) leader_->CopyBlocks(copies);
    kv_.CopyBlocks(copies, stream_.cpu_pool());
    if (drafts_.tree != nullptr) drafts_.tree->CopyBlocks(copies, stream_.cpu_pool());
    for (const SlotTables& tables : inputs_->all_tables()) tables.Apply(planned);
    ASSIGN_OR_RETURN(const StepPlan* const drafted, Draft(planned));
    const StepPlan& plan = *drafted;
    ASSIGN_OR_RETURN(model::Batch batch, inputs_->Prepare(plan, rows_.tokens(), tables_));
    for (int g = 1; g < kv_.num_groups(); ++g)
      batch.other_groups[static_cast<size_t>(g - 1)].kv = kv_.view(g);
    batch.adapters = FindAdapters(plan);
    if (drafts_.tree != nullptr) batch.kept = drafts_.tree->residuals();
    if (stage_logits_ != nullptr) {
      RETURN_IF_ERROR(BeginStages(plan, batch));
      ReleaseTables(plan);
      return Launched(plan);
    }
    ASSIGN_OR_RETURN(const TensorView logits, Forward(batch));
    ReleaseTables(plan);
    result_.Clear(plan.num_rows);
    Decode(plan, logits);
    if (drafts_.tree != nullptr) {
      KeepPaths(plan, batch.logit_rows.as<const int32_t>());
      RETURN_IF_ERROR(Follow(plan));
    }
    RETURN_IF_ERROR(KeepContextLogits(plan));
    return Launched(plan);
  }

  Status ProvideLateInputs(Ticket, const LateInputs&) override {
    return Unimplemented("late inputs: no row of this backend has any");
  }

  // Of stages never, so that plans do not depend on how fast they are.
  bool Ready(Ticket) const override { return stage_logits_ == nullptr; }

  Status status() const override { return leader_ == nullptr ? Status::Ok() : leader_->status(); }

  Result<const StepResult*> Collect(Ticket ticket) override {
    CHECK_EQ(ticket, newest_ - num_outstanding_ + 1);
    --num_outstanding_;
    if (stage_logits_ != nullptr) RETURN_IF_ERROR(EndStages(InFlight(ticket)));
    return &result_;
  }

 private:
  struct Slot {
    decoding::StopCriteria stop;
    float cum_log_prob = 0;
    const model::Adapter* adapter = nullptr;
    // Which token of that step's batch had the logits of the last drawn token.
    int64_t state_step = -1;
    int state = 0;
  };

  // A step that the stages behind this one compute.
  struct StepInFlight {
    StepPlan plan;
    TensorView logits;  // [max_stage_logits, vocab_size]
    std::vector<HostRows::Context> context;
    std::vector<LogitsRows> context_logits;  // of each of them
    int64_t num_awaited = 0;                 // messages of the last stage up to its last one
  };
  StepInFlight& InFlight(Ticket ticket) {
    return steps_in_flight_[static_cast<size_t>(ticket % info_.depth)];
  }

  Ticket Launched(const StepPlan& plan) {
    ++num_outstanding_;
    return newest_ = plan.step_id;
  }

  Status LoadStages(int max_logits, Device& device) {
    const int64_t rows = max_logits;
    const size_t bytes = BytesOf(DType::kF32, rows * info_.vocab_size);
    ASSIGN_OR_RETURN(stage_buffer_,
                     Buffer::Allocate(device, "logits of stages", bytes * steps_in_flight_.size()));
    for (size_t i = 0; i < steps_in_flight_.size(); ++i)
      steps_in_flight_[i].logits = {
          stage_buffer_.data() + i * bytes, DType::kF32, {rows, info_.vocab_size}};
    stage_logits_ = std::make_unique<StageLogits>(*groups_.pipeline, device);
    return Status::Ok();
  }

  // Computes this stage; what comes of the last one is received meanwhile. What prompts want of it
  // is asked for behind the step, before the next one takes its place there.
  Status BeginStages(const StepPlan& plan, const model::Batch& batch) {
    StepInFlight& step = InFlight(plan.step_id);
    step.plan = plan;
    const int64_t num_logits = batch.logit_rows.empty() ? 0 : batch.logit_rows.shape[0];
    if (num_logits > step.logits.shape[0])
      return Internal(fmt::format("step {} wants {} rows of logits, a stage has room for {}",
                                  plan.step_id, num_logits, step.logits.shape[0]));
    RETURN_IF_ERROR(leader_->Forward(batch, adapter_rows_));
    model::Batch own = batch;
    own.logit_rows = {};  // another stage has them
    if (const auto done = decoder_->Forward(own, kv_.view(), stream_); !done.ok()) {
      leader_->Abort(done.status());
      return done.status();
    }
    // Nothing is awaited that the last stage cannot make: without this stage's part it never comes.
    AwaitLogits(step.logits.as<float>(), num_logits, &step);
    rows_.FindContext(plan, &step.context);
    step.context_logits.resize(step.context.size());
    for (size_t i = 0; i < step.context.size(); ++i)
      RETURN_IF_ERROR(AskForContext(step.context[i], &step.context_logits[i], &step));
    return Status::Ok();
  }

  void AwaitLogits(float* values, int64_t num_rows, StepInFlight* step) {
    if (num_rows == 0) return;
    step->num_awaited = stage_logits_->Await({values, DType::kF32, {num_rows, info_.vocab_size}});
  }

  Status AskForContext(const HostRows::Context& context, LogitsRows* out, StepInFlight* step) {
    out->num_rows = context.num_tokens;
    out->vocab_size = info_.vocab_size;
    out->values.resize(static_cast<size_t>(context.num_tokens) *
                       static_cast<size_t>(info_.vocab_size));
    for (int done = 0; done < context.num_tokens;) {
      const int n = std::min(context.num_tokens - done, info_.max_batch_size);
      std::iota(logit_tokens_.begin(), logit_tokens_.begin() + n, context.first_token + done);
      RETURN_IF_ERROR(leader_->Logits({logit_tokens_.data(), DType::kI32, {n}}));
      AwaitLogits(out->values.data() + int64_t{done} * info_.vocab_size, n, step);
      done += n;
    }
    return Status::Ok();
  }

  Status EndStages(StepInFlight& step) {
    RETURN_IF_ERROR(stage_logits_->Wait(step.num_awaited));
    result_.Clear(step.plan.num_rows);
    Decode(step.plan, step.logits);
    for (size_t i = 0; i < step.context.size(); ++i)
      result_.LogitsOf(step.context[i].plan_row).context = std::move(step.context_logits[i]);
    return Status::Ok();
  }

  // Of prompts that are done.
  void ReleaseTables(const StepPlan& plan) {
    for (const scheduler::PlanRow& row : std::span(plan.rows).first(plan.num_rows))
      if (row.is_prefill != 0 && row.yields != 0) tables_.Release(row.slot);
  }

  // On all ranks.
  Result<TensorView> Forward(const model::Batch& batch) {
    if (leader_ == nullptr) return decoder_->Forward(batch, kv_.view(), stream_);
    RETURN_IF_ERROR(leader_->Forward(batch, adapter_rows_));
    Result<TensorView> logits = decoder_->Forward(batch, kv_.view(), stream_);
    if (!logits.ok()) leader_->Abort(logits.status());
    return logits;
  }
  Result<TensorView> Logits(const TensorView& rows) {
    if (leader_ != nullptr) RETURN_IF_ERROR(leader_->Logits(rows));
    return decoder_->Logits(rows, stream_);
  }

  void SetAdapter(SlotId slot, const SlotSetup& setup) {
    slots_[static_cast<size_t>(slot)].adapter = setup.adapter;
  }

  // Those of the plan's rows; null where none has any.
  ops::LoraBatch* FindAdapters(const StepPlan& plan) {
    const auto rows = std::span(plan.rows).first(static_cast<size_t>(plan.num_rows));
    const auto adapter_of = [&](const scheduler::PlanRow& row) {
      return slots_[static_cast<size_t>(row.slot)].adapter;
    };
    adapter_rows_.clear();
    if (std::ranges::none_of(rows, adapter_of)) return nullptr;
    step_adapters_.Clear(plan.num_tokens);
    int first_token = 0;
    for (const scheduler::PlanRow& row : rows) {
      const model::Adapter* const adapter = adapter_of(row);
      if (adapter != nullptr) {
        step_adapters_.Add(&adapter->table, first_token, row.num_query_tokens);
        adapter_rows_.push_back({adapter->serial, first_token, row.num_query_tokens});
      }
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
    if (drafts_.tree != nullptr) {
      RETURN_IF_ERROR(DraftTrees(rows));
    } else if (drafts_.model != nullptr) {
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

  // Up to the first id that is none of the vocabulary, or that the slot's guide forbids.
  void DraftByText(std::span<const scheduler::PlanRow> rows) {
    stream_.cpu_pool().ParallelFor(std::ssize(rows), [&](int64_t r) {
      const scheduler::PlanRow& row = rows[static_cast<size_t>(r)];
      std::vector<TokenId>& drafts = rows_.drafts(row.slot);
      const std::vector<TokenId>& tokens = rows_.tokens()[static_cast<size_t>(row.slot)].tokens;
      if (drafts_.texts != nullptr) {
        drafts_.texts->Draft(tokens, row.num_draft_tokens, &drafts);
      } else {
        decoding::DraftByLookup(tokens, row.num_draft_tokens, &drafts);
      }
      const auto is_foreign = [&](TokenId id) { return id < 0 || id >= info_.vocab_size; };
      drafts.erase(std::ranges::find_if(drafts, is_foreign), drafts.end());
      if (const decoding::GuidedSlot* const guide = rows_.sampler().guide(row.slot))
        drafts.resize(guide->NumThatMayCome(drafts));
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
    return drafts_.model->Draft(asks_, rows_.sampler(), stream_);
  }

  Status DraftTrees(std::span<const scheduler::PlanRow> rows) {
    tree_asks_.clear();
    for (const scheduler::PlanRow& row : rows) {
      if (row.num_draft_tokens == 0) continue;
      const Slot& slot = slots_[static_cast<size_t>(row.slot)];
      rows_.SetTree(row.slot, &drafts_.tree->tree());
      tree_asks_.push_back({.slot = row.slot,
                            .num_nodes = row.num_draft_tokens,
                            .tokens = &rows_.tokens()[static_cast<size_t>(row.slot)].tokens,
                            .blocks = inputs_->tables().Of(row.slot),
                            .state = slot.state_step == last_step_ ? slot.state : -1,
                            .guide = rows_.sampler().guide(row.slot),
                            .drafts = &rows_.drafts(row.slot)});
    }
    return drafts_.tree->Draft(tree_asks_, *decoder_, stream_);
  }

  // Where the keys and values of accepted nodes stand, those of their siblings stood before: they
  // move behind each other, as plain steps would have written them. What the last token was drawn
  // from is kept for the next trees. `logit_tokens`: of the step's logits.
  void KeepPaths(const StepPlan& plan, const int32_t* logit_tokens) {
    path_moves_.clear();
    last_step_ = plan.step_id;
    for (const HostRows::Row& row : found_) {
      if (row.search != nullptr) continue;
      Slot& slot = slots_[static_cast<size_t>(row.slot)];
      const int last = row.path.empty() ? 0 : row.path.back() + 1;
      slot.state_step = plan.step_id;
      slot.state = logit_tokens[row.logit + last];
      const bool is_tree = rows_.tokens()[static_cast<size_t>(row.slot)].tree != nullptr;
      // The root was the newest token before the row's were drawn.
      const auto known = static_cast<int>(
          rows_.tokens()[static_cast<size_t>(row.slot)].tokens.size() - row.drawn.size());
      for (size_t i = 0; i < row.path.size() && is_tree; ++i) {
        result_.accepted_nodes[static_cast<size_t>(row.plan_row)] |= uint64_t{1} << row.path[i];
        const int from = known + row.path[i];
        const int to = known + static_cast<int>(i);
        if (from != to) path_moves_.push_back({.slot = row.slot, .from = from, .to = to});
      }
    }
    for (int g = 0; g < kv_.num_groups(); ++g) {
      moves_.clear();
      for (const auto& [slot, from, to] : path_moves_)
        moves_.push_back({.from = PlaceOf(g, slot, from), .to = PlaceOf(g, slot, to)});
      if (leader_ != nullptr) leader_->Move(g, moves_);
      kv_.Move(g, moves_, stream_.cpu_pool());
    }
  }

  // Tells the trees' source what became of each sequence. Beams have no drafts, but their prompts
  // may be others' beginnings.
  Status Follow(const StepPlan& plan) {
    steps_.clear();
    size_t next = 0;  // of found_
    int first_token = 0;
    for (int r = 0; r < plan.num_rows; ++r) {
      const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
      const HostRows::Row* const found = row.yields != 0 ? &found_[next++] : nullptr;
      const int num_known = row.num_query_tokens - row.num_draft_tokens;
      const std::vector<TokenId>& tokens = rows_.tokens()[static_cast<size_t>(row.slot)].tokens;
      if (row.is_prefill != 0 || found->search == nullptr)
        steps_.push_back(
            {.slot = row.slot,
             .first_place = row.is_prefill != 0
                                ? row.first_position
                                : static_cast<int>(tokens.size() - found->drawn.size()) - num_known,
             .first_token = first_token,
             .num_known = num_known,
             .path = found != nullptr ? std::span<const int>(found->path) : std::span<const int>(),
             .tokens = &tokens,
             .blocks = inputs_->tables().Of(row.slot)});
      first_token += row.num_query_tokens;
    }
    return drafts_.tree->Follow(steps_, *decoder_, stream_);
  }

  // In the pool of a KV group.
  int64_t PlaceOf(int group, SlotId slot, int place) const {
    const int block_size = kv_.view().block_size;
    return int64_t{inputs_->tables(group).Of(slot)[place / block_size]} * block_size +
           place % block_size;
  }

  // Draws the tokens of each row that yields, appends them to its slot, and judges whether the
  // sequence ends. Rows of a beam search give their best continuations, which it then chooses from.
  void Decode(const StepPlan& plan, const TensorView& logits) {
    found_ = rows_.Find(plan, &found_rows_);
    const std::span<HostRows::Row> found = found_;
    stream_.cpu_pool().ParallelFor(std::ssize(found), [&](int64_t i) {
      HostRows::Row& row = found[static_cast<size_t>(i)];
      row.logits = logits.as<float>() + int64_t{row.logit} * info_.vocab_size;
      if (row.search == nullptr) {
        rows_.DrawTokens(&row, slots_[static_cast<size_t>(row.slot)].stop);
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

  void Collect(const HostRows::Row& row) {
    Slot& slot = slots_[static_cast<size_t>(row.slot)];
    HostRows::ReturnDrawn(row, &slot.cum_log_prob, &result_);
    if (drafts_.texts == nullptr || row.finish_reason == FinishReason::kNotFinished) return;
    const std::vector<TokenId>& tokens = rows_.tokens()[static_cast<size_t>(row.slot)].tokens;
    drafts_.texts->Keep(
        std::span(tokens).subspan(static_cast<size_t>(slot.stop.num_prompt_tokens)));
  }

  void Advance(std::span<HostRows::Row> rows) {
    const auto move = rows_.Advance(rows, &result_);
    if (!move) return;
    for (int g = 0; g < kv_.num_groups(); ++g) {
      copies_.clear();
      inputs_->tables(g).Reorder(move->slots, move->parents, move->num_kv_tokens, &copies_);
      if (leader_ != nullptr) leader_->Copy(g, copies_);
      kv_.Copy(g, copies_, stream_.cpu_pool());
    }
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
      ASSIGN_OR_RETURN(const TensorView logits, Logits({logit_tokens_.data(), DType::kI32, {n}}));
      AppendRows(logits.as<float>(), n, info_.vocab_size, out);
      first += n;
      num_tokens -= n;
    }
    return Status::Ok();
  }

  std::shared_ptr<const model::Engine> engine_;
  const DraftMakers drafts_;
  const comm::RankGroups groups_;
  const std::unique_ptr<RankLeader> leader_;  // null: there is one rank
  Stream stream_;
  BackendInfo info_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<StepInputs> inputs_;
  KvStorage kv_;
  std::unique_ptr<AdapterCache> adapters_;
  ops::LoraBatch step_adapters_;
  std::vector<RankLeader::AdapterRow> adapter_rows_;  // the same, for other ranks
  HostRows rows_;
  PromptTables tables_;
  MemoryShare sampler_share_;
  std::vector<Slot> slots_;            // [max_slots]
  std::vector<int32_t> logit_tokens_;  // [max_batch_size]
  std::vector<HostRows::Row> found_rows_;
  std::span<HostRows::Row> found_;  // of the last step
  std::vector<HostRows::Context> context_;
  std::vector<kv_cache::BlockCopy> copies_;
  std::vector<ModelDrafts::Ask> asks_;
  std::vector<TreeSource::Ask> tree_asks_;
  std::vector<TreeSource::Step> steps_;
  struct PathMove {  // of a slot's token, by its places in the text
    SlotId slot = 0;
    int from = 0, to = 0;
  };
  std::vector<PathMove> path_moves_;
  std::vector<TokenMove> moves_;
  int64_t last_step_ = 0;
  std::unique_ptr<StepPlan> plan_;  // with its drafts; where there are any
  StepResult result_;
  Ticket newest_ = 0;
  int num_outstanding_ = 0;  // steps up to the newest
  // Of the leader of several stages that are busy at once.
  std::vector<StepInFlight> steps_in_flight_;  // [depth]
  Buffer stage_buffer_;
  std::unique_ptr<StageLogits> stage_logits_;  // the first to go
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateCpuBackend(std::shared_ptr<const model::Engine> engine,
                                                  Device& device, const MemoryPlan& plan,
                                                  const ops::OpTable& ops, DraftMakers drafts,
                                                  RankMembership membership) {
  auto backend = std::make_unique<CpuBackend>(std::move(engine), device, plan, std::move(drafts),
                                              std::move(membership));
  RETURN_IF_ERROR(backend->Load(ops, plan, device));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace inflight::executor
