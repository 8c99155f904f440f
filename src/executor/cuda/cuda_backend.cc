// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda_backend.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "decoding/cuda/device_sampler.h"
#include "decoding/stop.h"
#include "executor/cuda/check_row.h"
#include "executor/cuda/debug_options.h"
#include "executor/cuda/draft_model.h"
#include "executor/cuda/front_stage.h"
#include "executor/cuda/held.h"
#include "executor/cuda/kv_copies.h"
#include "executor/cuda/logits_to_host.h"
#include "executor/cuda/stage_mail.h"
#include "executor/cuda/step_adapters.h"
#include "executor/cuda/step_graphs.h"
#include "executor/cuda/step_in_flight.h"
#include "executor/cuda/step_state.h"
#include "executor/cuda/step_times.h"
#include "executor/cuda/step_watch.h"
#include "executor/cuda/text_drafts.h"
#include "executor/cuda/tree_model.h"
#include "executor/cuda/weight_ring.h"
#include "executor/kv_storage.h"
#include "executor/prompt_tables.h"
#include "model/decoder.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/peers.h"

namespace inflight::executor {
namespace {

using cuda::Held;
using cuda::LogitsToHost;
using cuda::NowNs;
using cuda::StepGraphs;
using cuda::StepShape;
using cuda::StepState;
using cuda::StepVariant;
using inflight::cuda::ToStatus;

class CudaBackend : public CudaRank {
 public:
  // `mail` is that of the last of several stages; null: of one, or hosts tell what is drawn.
  CudaBackend(std::shared_ptr<const model::Engine> engine, Device& device, const MemoryPlan& plan,
              const cuda::StageMail* mail = nullptr)
      : mail_(mail),
        tells_drawn_(mail == nullptr && engine->config.part.pp_size > 1),
        device_index_(device.cuda().index),
        plan_(plan),
        debug_(cuda::DebugOptions::FromEnvironment()),
        times_(debug_.log_times) {
    info_ = BackendInfoOf(plan, engine->config.vocab_size, engine->limits.max_beam_width);
    held_->engine = std::move(engine);
    slots_.resize(static_cast<size_t>(info_.max_slots));
    in_flight_.resize(static_cast<size_t>(info_.depth));
    held_->to_host_steps.resize(in_flight_.size());
    for (StepInFlight& step : in_flight_)
      step.rows.reserve(static_cast<size_t>(info_.max_batch_size));
    result_.Reserve(info_.max_batch_size);
  }

  ~CudaBackend() override { FinishSteps(held_, device_index_, is_stuck_); }

  Status Load(const ops::OpTable& ops, ops::OpChoice choice, comm::RankGroups groups,
              Device& device);
  Status LoadDrafts(std::shared_ptr<const model::Engine> engine, const ops::OpTable& ops,
                    ops::OpChoice choice, Device& device) override;
  Status LoadTrees(std::shared_ptr<const model::EagleHead> eagle, const ops::OpTable& ops,
                   Device& device) override;
  Status WarmUp() override;
  Status JoinStages() override;
  Status AwaitSteps() override;
  std::span<const BeamMove> moves() const override { return moves_; }
  std::span<const DrawnToken> drawn() const override { return drawn_; }
  Status Draft(const StepPlan& plan) override;
  Result<Guesses> Guess(const StepPlan& plan) override;

  const BackendInfo& info() const override { return info_; }
  AdapterCache* adapters() override { return &held_->adapters->cache(); }
  Result<ReleasableParts> releasable() const override { return held_->releasable(); }
  Status SetupSlot(const SlotSetup& setup) override;
  void ReleaseSlot(SlotId slot) override { held_->to_host->rows().Release(slot); }
  Result<Ticket> Launch(const StepPlan& plan) override;
  Result<const StepResult*> Collect(Ticket ticket) override;

  std::vector<Beam> BestBeams(SlotId slot, bool is_last) const override {
    return held_->to_host->rows().BestBeams(slot, is_last);
  }

  Status ProvideLateInputs(Ticket ticket, const LateInputs& inputs) override;
  Result<std::span<const TokenId>> DraftsOf(Ticket ticket, SlotId slot) override;

  bool Ready(Ticket ticket) const override {
    CHECK_EQ(ticket, Oldest().ticket);
    return held_->state->num_done() > Oldest().step;
  }

 private:
  using Slot = cuda::SlotOnHost;
  using Row = cuda::RowInFlight;
  using StepInFlight = cuda::StepInFlight;

  // Of a sequence that ended, with its prompt.
  void KeepOutput(SlotId slot, std::span<const TokenId> tokens) {
    const int num_prompt_tokens = slots_[static_cast<size_t>(slot)].stop.num_prompt_tokens;
    if (held_->texts != nullptr)
      held_->texts->Keep(tokens.subspan(static_cast<size_t>(num_prompt_tokens)));
  }
  // Of a slot whose tokens the device draws.
  std::span<const TokenId> KnownTokens(SlotId slot) const {
    return held_->state->host_tokens(slot).first(
        static_cast<size_t>(slots_[static_cast<size_t>(slot)].num_tokens));
  }

  cudaStream_t handle() const { return ops::cuda::AsCuda(*held_->stream).handle(); }
  StepInFlight& Oldest() { return in_flight_[static_cast<size_t>(first_in_flight_)]; }
  const StepInFlight& Oldest() const { return in_flight_[static_cast<size_t>(first_in_flight_)]; }

  Guesses GuessTexts(const StepPlan& plan) const {
    const auto known = [this](SlotId slot) { return KnownTokens(slot); };
    return held_->texts == nullptr ? Guesses() : held_->texts->GuessAll(plan, num_launched_, known);
  }
  Status Record();
  Status Enqueue(const StepShape& shape, StepVariant variant);
  Status EnqueueSampling(const StepShape& shape, StepVariant variant,
                         const LogitsToHost::Step* to_host);
  Status EnqueueStep(const StepShape& shape, StepVariant variant, StepInFlight& step);
  Status RunOnScratch(int num_tokens, const StepShape& shape, StepVariant variant);
  int NumKnown(const scheduler::PlanRow& row) const {
    const Slot& slot = slots_[static_cast<size_t>(row.slot)];
    return row.is_prefill != 0 ? slot.num_tokens + slot.num_drafts
                               : held_->state->slots().max_tokens;
  }
  Status SetUpRule(const SlotSetup& setup);
  Status Take(StepInFlight& step);
  void Append(Row* row, const cuda::StepOutputs& outputs);
  void ReadRow(const StepInFlight& step, HostRows::Row* read);
  void Return(size_t r, const Row& row, const cuda::StepOutputs& outputs);
  Status Advance(std::span<HostRows::Row> rows);

  const cuda::StageMail* const mail_;
  const bool tells_drawn_;
  const int device_index_;
  const MemoryPlan plan_;
  const cuda::DebugOptions debug_;
  const logging::Level level_ =  // of times
      debug_.log_times ? logging::Level::kWarning : logging::Level::kInfo;
  bool use_graphs_ = true;
  float* logits_ = nullptr;  // [max_batch_size, vocab_size] of the step that is computed
  cuda::StepTimes times_;
  BackendInfo info_;
  std::unique_ptr<Held> held_ = std::make_unique<Held>();
  std::vector<Slot> slots_;              // [max_slots]
  std::vector<StepInFlight> in_flight_;  // [depth], a ring
  int first_in_flight_ = 0;
  int num_in_flight_ = 0;
  uint64_t num_launched_ = 0;
  std::optional<StepShape> prepared_;  // of the step that is launched next, where Draft was asked
  bool is_stuck_ = false;
  std::vector<kv_cache::BlockCopy> copies_;  // of open blocks of beams
  std::vector<BeamMove> moves_;              // of the step collected last
  std::vector<DrawnToken> drawn_;            // the same
  StepResult result_;
};

Status CudaBackend::Load(const ops::OpTable& ops, ops::OpChoice choice, comm::RankGroups groups,
                         Device& device) {
  const MemoryPlan& plan = plan_;
  cudaSetDevice(device_index_);
  use_graphs_ = debug_.use_graphs && ops.can_capture;
  const cuda::LayersToLoad layers = {.plan = plan,
                                     .ops = ops,
                                     .choice = choice,
                                     .groups = groups,
                                     .forced_acceptance = debug_.forced_acceptance};
  RETURN_IF_ERROR(LoadLayers(
      layers, info_, device, *held_,
      [this](const StepShape& shape, StepVariant variant) { return Enqueue(shape, variant); }));
  RETURN_IF_ERROR(LoadSampling(plan, info_, device, *held_));
  info_.wants_guide_masks = true;
  info_.pinned_memory_bytes = held_->pinned_bytes();
  // What was cleared and copied in the default stream, which ours does not wait for. Waiting for
  // the device would be refused while another executor records its steps.
  return ToStatus(cudaStreamSynchronize(cudaStreamLegacy), "loading");
}

Status CudaBackend::LoadDrafts(std::shared_ptr<const model::Engine> engine, const ops::OpTable& ops,
                               ops::OpChoice choice, Device& device) {
  RETURN_IF_ERROR(LoadDraftModel(std::move(engine), ops, choice, plan_, device, *held_));
  info_.pinned_memory_bytes = held_->pinned_bytes();
  return ToStatus(cudaStreamSynchronize(cudaStreamLegacy), "loading a draft model");
}

Status CudaBackend::LoadTrees(std::shared_ptr<const model::EagleHead> eagle,
                              const ops::OpTable& ops, Device& device) {
  RETURN_IF_ERROR(LoadTreeModel(std::move(eagle), ops, plan_, device, *held_));
  info_.pinned_memory_bytes = held_->pinned_bytes();
  return ToStatus(cudaStreamSynchronize(cudaStreamLegacy), "loading what proposes trees");
}

// One step, kernel by kernel. What is recorded into a graph is the same.
Status CudaBackend::Enqueue(const StepShape& shape, StepVariant variant) {
  StepState& state = *held_->state;
  RETURN_IF_ERROR(state.Begin(shape, handle()));
  model::Batch batch = cuda::BatchOf(*held_, shape);
  ASSIGN_OR_RETURN(batch.adapters, held_->adapters->Find(shape, state, handle()));
  if (held_->trees != nullptr) batch.kept = held_->trees->residuals();
  ASSIGN_OR_RETURN(const TensorView logits,
                   held_->decoder->Forward(batch, held_->kv.view(), *held_->stream));
  logits_ = logits.as<float>();  // at one address always
  if (variant != StepVariant::kForward) RETURN_IF_ERROR(EnqueueSampling(shape, variant, nullptr));
  return held_->weight_ring->EndStep(*held_->stream);
}

// What comes after the forward pass.
Status CudaBackend::EnqueueSampling(const StepShape& shape, StepVariant variant,
                                    const LogitsToHost::Step* to_host) {
  StepState& state = *held_->state;
  const cuda::StepTensors& tensors = state.tensors();
  const auto params = cuda::SampleParamsOf(state, shape, variant, logits_);
  if (to_host != nullptr)
    RETURN_IF_ERROR(held_->to_host->CopyRows(*to_host, *held_->sampler, params, tensors.logit_slots,
                                             held_->stream.get()));
  RETURN_IF_ERROR(held_->masks->Apply(logits_, handle()));
  RETURN_IF_ERROR(held_->sampler->Sample(params, *held_->stream));
  if (to_host != nullptr)
    RETURN_IF_ERROR(held_->to_host->CopyContext(*to_host, tensors.context_rows,
                                                held_->decoder.get(), held_->stream.get()));
  if (held_->trees != nullptr)
    RETURN_IF_ERROR(held_->trees->Settle(held_->kv, held_->decoder->States(), shape));
  RETURN_IF_ERROR(state.End(shape, handle()));
  return mail_ == nullptr ? Status::Ok()
                          : SendDrawn(*mail_, state.slots(), tensors, shape.num_logits, handle());
}

// By a graph where there is one. A step whose logits the host reads, or that waits for late inputs,
// has one of its forward pass, but not for logits of prompt tokens: the decoder's last Forward has
// to be this one.
Status CudaBackend::EnqueueStep(const StepShape& shape, StepVariant variant, StepInFlight& step) {
  RETURN_IF_ERROR(TakeRows(*held_, shape));
  const LogitsToHost::Step* const to_host = step.to_host;
  const std::vector<StepShape>& shapes = held_->graphs->shapes();
  const size_t graph = held_->graphs->Find(shape);
  const bool has_graph =
      use_graphs_ && graph < shapes.size() && (to_host == nullptr || to_host->context.empty());
  if (to_host == nullptr && !step.waits)
    return has_graph ? held_->graphs->Launch(graph, variant) : Enqueue(shape, variant);
  RETURN_IF_ERROR(has_graph ? held_->graphs->Launch(graph, StepVariant::kForward)
                            : Enqueue(shape, StepVariant::kForward));
  step.sampled = has_graph ? shapes[graph] : shape;
  step.variant = variant;
  return step.waits ? Status::Ok() : EnqueueSampling(step.sampled, variant, to_host);
}

Status CudaBackend::ProvideLateInputs(Ticket ticket, const LateInputs& inputs) {
  StepInFlight& step = Oldest();
  CHECK_EQ(ticket, step.ticket);
  cudaSetDevice(device_index_);
  for (const LateInputs::Mask& mask : inputs.masks) {
    const auto row = std::ranges::find(step.rows, mask.slot, &Row::slot);
    CHECK(row != step.rows.end());
    held_->masks->Add(row->logit + mask.draft, mask.allowed_bits);
  }
  RETURN_IF_ERROR(held_->masks->Send());
  return EnqueueSampling(step.sampled, step.variant, step.to_host);
}

Result<std::span<const TokenId>> CudaBackend::DraftsOf(Ticket ticket, SlotId slot) {
  CHECK_EQ(ticket, Oldest().ticket);
  const auto have_come = [this] { return held_->sent_drafts->HaveCome(); };
  RETURN_IF_ERROR(cuda::WaitFor(have_come, ticket, debug_.watchdog_ms, handle(), &is_stuck_));
  return held_->sent_drafts->Of(slot);
}

// Runs every kind of step once on the scratch slot: kernels are loaded, the library's algorithms
// chosen, and what cannot run here fails now and not beside requests.
Status CudaBackend::WarmUp() {
  cudaSetDevice(device_index_);
  const int64_t start_ns = NowNs();
  RETURN_IF_ERROR(held_->state->SetUpSlot(/*slot=*/0, /*num_tokens=*/1,
                                          /*prompt_table=*/nullptr, handle()));
  RETURN_IF_ERROR(held_->sampler->Setup(/*slot=*/0, /*rule=*/{}, /*tokens=*/{}, *held_->stream));
  RETURN_IF_ERROR(
      cuda::RunAllKinds(plan_.max_num_tokens, *held_->graphs,
                        [this](int num_tokens, const StepShape& shape, StepVariant variant) {
                          return RunOnScratch(num_tokens, shape, variant);
                        }));
  if (held_->drafts != nullptr)
    RETURN_IF_ERROR(held_->drafts->WarmUp(use_graphs_, debug_.records_all, level_));
  if (held_->trees != nullptr)
    RETURN_IF_ERROR(held_->trees->WarmUp(use_graphs_, debug_.records_all, level_));
  logging::Log(level_, "steps ran for the first time",
               {{"ms", static_cast<double>(NowNs() - start_ns) * 1e-6}, {"steps", num_launched_}});
  return held_->engine->config.part.pp_size == 1 ? Record() : Status::Ok();
}

// A step that hands rows over, so that graphs can.
Status CudaBackend::JoinStages() {
  cudaSetDevice(device_index_);
  RETURN_IF_ERROR(RunOnScratch(0, held_->graphs->shapes().front(), StepVariant::kGreedy));
  return Record();
}

Status CudaBackend::Record() {
  ASSIGN_OR_RETURN(info_.least_step_ns, held_->weight_ring->Fill());
  return use_graphs_ ? held_->graphs->RecordAtLoad(debug_.records_all, level_) : Status::Ok();
}

Status CudaBackend::AwaitSteps() {
  if (num_in_flight_ == 0) return Status::Ok();
  cudaSetDevice(device_index_);
  return cuda::WaitForStep(*held_->state, {.step = num_launched_ - 1, .ticket = Oldest().ticket},
                           debug_.watchdog_ms, handle(), &is_stuck_);
}

Status CudaBackend::RunOnScratch(int num_tokens, const StepShape& shape, StepVariant variant) {
  const StepPlan plan = cuda::ScratchPlan(num_tokens, info_, held_->state->slots());
  const StepShape packed = held_->state->Pack(plan, &held_->state->arena(num_launched_));
  const StepShape& filled = shape.num_rows > 0 ? shape : packed;
  RETURN_IF_ERROR(TakeRows(*held_, filled));
  RETURN_IF_ERROR(Enqueue(filled, variant));
  ++num_launched_;
  return ToStatus(cudaStreamSynchronize(handle()), "the first steps");
}

Status CudaBackend::SetupSlot(const SlotSetup& setup) {
  cudaSetDevice(device_index_);
  held_->to_host->rows().Clear(setup.slot);
  Slot& slot = slots_[static_cast<size_t>(setup.slot)];
  const std::span<int32_t> tokens = held_->state->host_tokens(setup.slot);
  const std::vector<TokenId>& drafts = setup.request->draft_ids;
  CHECK_LE(setup.tokens.size() + drafts.size(), tokens.size());
  std::ranges::copy(drafts, std::ranges::copy(setup.tokens, tokens.begin()).out);
  slot.stop = {.end_ids = setup.request->end_ids,
               .stop_words = setup.request->stop_words,
               .num_prompt_tokens = setup.num_prompt_tokens,
               .max_seq_len = setup.max_seq_len};
  slot.cum_log_prob = setup.cum_log_prob;
  slot.num_tokens = static_cast<int>(setup.tokens.size());
  slot.num_drafts = static_cast<int>(drafts.size());
  RETURN_IF_ERROR(held_->to_host->SetUp(setup));
  if (held_->engine->config.part.is_first_stage())
    RETURN_IF_ERROR(held_->prompt_tables->SetUp(setup));
  if (held_->trees != nullptr) RETURN_IF_ERROR(held_->trees->SetUp(setup));
  RETURN_IF_ERROR(held_->state->SetUpSlot(setup.slot, slot.num_tokens + slot.num_drafts,
                                          held_->prompt_tables->Of(setup.slot), handle()));
  if (held_->drafts != nullptr) held_->drafts->SetUp(setup.slot);
  RETURN_IF_ERROR(SetUpRule(setup));
  RETURN_IF_ERROR(held_->adapters->SetUp(setup, handle()));
  info_.pinned_memory_bytes = held_->pinned_bytes();
  return Status::Ok();
}

// Of a beam search, for which nothing is drawn, only where the device chooses.
Status CudaBackend::SetUpRule(const SlotSetup& setup) {
  const decoding::SamplingRule rule =
      decoding::MakeSamplingRule(*setup.request, setup.seed, setup.num_prompt_tokens);
  Slot& slot = slots_[static_cast<size_t>(setup.slot)];
  slot.is_greedy = rule.greedy;
  if (setup.beam_slots.empty())
    return held_->sampler->Setup(setup.slot, rule, setup.tokens, *held_->stream);
  for (const SlotId beam : setup.beam_slots) slots_[static_cast<size_t>(beam)].is_greedy = true;
  const bool device_chooses = HostRows::NumBest(*setup.request) > 0;
  slot.device_reads_beams = device_chooses && (rule.has_penalties() || rule.has_bans());
  if (!device_chooses) return Status::Ok();
  for (const SlotId beam : setup.beam_slots)
    RETURN_IF_ERROR(held_->sampler->Setup(beam, rule, setup.tokens, *held_->stream));
  return Status::Ok();
}

Result<Ticket> CudaBackend::Launch(const StepPlan& plan) {
  CHECK_LE(num_in_flight_, info_.depth - 1);
  const int64_t start_ns = times_.is_on() ? NowNs() : 0;
  cudaSetDevice(device_index_);
  RETURN_IF_ERROR(cuda::InjectFault(debug_, plan.step_id, handle()));
  const auto place = static_cast<size_t>((first_in_flight_ + num_in_flight_) % info_.depth);
  StepInFlight& step = in_flight_[place];
  step.ticket = plan.step_id;
  step.step = num_launched_;
  step.rows.clear();
  step.waits = false;
  StepVariant variant = StepVariant::kGreedy;
  int num_logits = 0;
  bool is_wanted = false;
  for (int r = 0; r < plan.num_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    RETURN_IF_ERROR(cuda::CheckRow(plan, r, NumKnown(row), info_));
    const bool yields = row.yields != 0;
    if (yields && !slots_[static_cast<size_t>(row.slot)].is_greedy) variant = StepVariant::kSampled;
    step.rows.push_back({.slot = row.slot,
                         .logit = yields ? num_logits : -1,
                         .ends_prompt = yields && row.is_prefill != 0});
    if (yields) num_logits += 1 + row.num_draft_tokens;
    is_wanted |= held_->to_host->IsWanted(row.slot);
    step.waits |= row.has_late_inputs != 0;
  }
  step.to_host = nullptr;
  if (is_wanted) {
    LogitsToHost::Step& to_host = held_->to_host_steps[place];
    held_->to_host->Find(plan, &to_host);
    if (!to_host.empty()) step.to_host = &to_host;
    for (const HostRows::Row& read : to_host.rows) {
      Row& row = step.rows[static_cast<size_t>(read.plan_row)];
      row.is_read = true;
      row.host_draws = read.host_draws;
      row.is_beam = read.search != nullptr;
    }
  }
  if (!prepared_) RETURN_IF_ERROR(Draft(plan));
  const StepShape shape = *std::exchange(prepared_, std::nullopt);
  RETURN_IF_ERROR(held_->state->LookUpDrafts(plan, GuessTexts(plan), handle()));
  RETURN_IF_ERROR(TakeDrafts(*held_, plan));
  if (held_->drafts != nullptr)
    RETURN_IF_ERROR(held_->drafts->Draft(plan, num_launched_, variant == StepVariant::kGreedy));
  if (step.waits && held_->sent_drafts != nullptr)
    RETURN_IF_ERROR(held_->sent_drafts->SendWaiting(plan, held_->state->slots(), handle()));
  RETURN_IF_ERROR(EnqueueStep(shape, variant, step));
  if (held_->drafts != nullptr && shape.has_prefill())
    RETURN_IF_ERROR(held_->drafts->ComputePrompts(held_->state->BatchOf(shape)));
  ++num_launched_;
  ++num_in_flight_;
  step.num_tokens = shape.num_tokens;
  step.launch_ns = times_.is_on() ? NowNs() - start_ns : 0;
  return plan.step_id;
}

Status CudaBackend::Draft(const StepPlan& plan) {
  cudaSetDevice(device_index_);
  ASSIGN_OR_RETURN(prepared_, PrepareStep(*held_, plan, num_launched_));
  if (held_->tree_guesses == nullptr) return Status::Ok();
  return held_->tree_guesses->Send(plan, held_->state->slots(), handle());
}

Result<Guesses> CudaBackend::Guess(const StepPlan& plan) {
  if (held_->tree_guesses == nullptr || !prepared_) return GuessTexts(plan);
  const auto have_come = [this] { return held_->tree_guesses->HaveCome(); };
  RETURN_IF_ERROR(cuda::WaitFor(have_come, plan.step_id, debug_.watchdog_ms, handle(), &is_stuck_));
  const auto num_known = [this](SlotId slot) { return static_cast<int>(KnownTokens(slot).size()); };
  return held_->tree_guesses->GuessOf(plan, num_launched_, num_known);
}

Result<const StepResult*> CudaBackend::Collect(Ticket ticket) {
  StepInFlight& step = Oldest();
  CHECK_EQ(ticket, step.ticket);
  const int64_t start_ns = times_.is_on() ? NowNs() : 0;
  RETURN_IF_ERROR(cuda::WaitForStep(*held_->state, {.step = step.step, .ticket = ticket},
                                    debug_.watchdog_ms, handle(), &is_stuck_));
  const cuda::StepOutputs& outputs = held_->state->outputs(step.step);
  if (times_.is_on())
    times_.Add({.num_rows = static_cast<int>(step.rows.size()),
                .num_tokens = step.num_tokens,
                .begin_ns = static_cast<int64_t>(outputs.begin_ns),
                .end_ns = static_cast<int64_t>(outputs.end_ns),
                .launch_ns = step.launch_ns,
                .wait_ns = NowNs() - start_ns});
  RETURN_IF_ERROR(Take(step));
  result_.device_begin_ns = static_cast<int64_t>(outputs.begin_ns);
  result_.device_end_ns = static_cast<int64_t>(outputs.end_ns);
  first_in_flight_ = (first_in_flight_ + 1) % info_.depth;
  --num_in_flight_;
  return &result_;
}

// What each row drew, and what the host made of those whose logits it read.
Status CudaBackend::Take(StepInFlight& step) {
  const cuda::StepOutputs& outputs = held_->state->outputs(step.step);
  LogitsToHost& to_host = *held_->to_host;
  drawn_.clear();
  for (Row& row : step.rows)
    if (row.logit >= 0 && !row.is_beam && !row.host_draws) Append(&row, outputs);
  std::span<HostRows::Row> read;
  if (step.to_host != nullptr) {
    to_host.Read(*step.to_host, [&](HostRows::Row* found) { ReadRow(step, found); });
    read = step.to_host->rows;
  }
  result_.Clear(static_cast<int>(step.rows.size()));
  moves_.clear();
  for (size_t r = 0; r < step.rows.size(); ++r) {
    const Row& row = step.rows[r];
    if (row.ends_prompt) held_->prompt_tables->Release(row.slot);
    if (row.is_beam && read[0].beam == 0) RETURN_IF_ERROR(Advance(read));
    if (row.host_draws) {
      float& cum_log_prob = slots_[static_cast<size_t>(row.slot)].cum_log_prob;
      HostRows::ReturnDrawn(read[0], &cum_log_prob, &result_);
      KeepOutput(row.slot, to_host.rows().tokens()[static_cast<size_t>(row.slot)].tokens);
    } else if (row.logit >= 0 && !row.is_beam) {
      Return(r, row, outputs);
    }
    if (row.is_read && !row.is_beam) HostRows::Return(&read[0], &result_);
    if (row.is_read) read = read.subspan(1);
    result_.token_begin[r + 1] = static_cast<int32_t>(result_.token_ids.size());
  }
  if (step.to_host == nullptr) return Status::Ok();
  to_host.ReturnContext(*step.to_host, &result_);
  to_host.Release(step.to_host);
  return Status::Ok();
}

// One step of a search. No step in flight has rows of it: the next one is planned after this.
Status CudaBackend::Advance(std::span<HostRows::Row> rows) {
  const auto move = held_->to_host->rows().Advance(rows, &result_);
  if (!move) return Status::Ok();
  moves_.push_back(*move);
  const bool with_tokens = slots_[static_cast<size_t>(rows[0].slot)].device_reads_beams;
  if (with_tokens)
    for (const SlotId beam : move->slots)
      std::ranges::copy(held_->to_host->rows().tokens()[static_cast<size_t>(beam)].tokens,
                        held_->state->host_tokens(beam).begin());
  return PlaceBeams(*held_, *move, with_tokens, &copies_);
}

// What the device drew for a row joins what the host knows of its slot, up to where it ends.
void CudaBackend::Append(Row* row, const cuda::StepOutputs& outputs) {
  Slot& slot = slots_[static_cast<size_t>(row->slot)];
  const std::span<int32_t> tokens = held_->state->host_tokens(row->slot);
  const int num_drawn = info_.makes_drafts ? outputs.num_yielded[row->logit] : 1;
  if (held_->trees != nullptr) row->accepted = outputs.accepted[row->logit];
  for (int i = 0; tells_drawn_ && i < num_drawn; ++i)
    drawn_.push_back({static_cast<int16_t>(row->slot), row->KvShiftOf(i, num_drawn),
                      /*at=*/slot.num_tokens + i, outputs.ids[row->LogitOf(i)],
                      /*num_tokens=*/slot.num_tokens + num_drawn});
  do {
    tokens[static_cast<size_t>(slot.num_tokens++)] = outputs.ids[row->LogitOf(row->num_yielded++)];
    row->finish_reason =
        decoding::CheckStop(slot.stop, tokens.first(static_cast<size_t>(slot.num_tokens)));
  } while (row->num_yielded < num_drawn && row->finish_reason == FinishReason::kNotFinished);
  row->CutAccepted();
  if (row->finish_reason != FinishReason::kNotFinished)
    KeepOutput(row->slot, KnownTokens(row->slot));
}

void CudaBackend::ReadRow(const StepInFlight& step, HostRows::Row* read) {
  HostRows& rows = held_->to_host->rows();
  const Row& row = step.rows[static_cast<size_t>(read->plan_row)];
  const Slot& slot = slots_[static_cast<size_t>(row.slot)];
  if (row.is_beam) return rows.Read(read);
  if (row.host_draws) return rows.DrawTokens(read, slot.stop);
  const std::span<const int32_t> tokens = held_->state->host_tokens(row.slot);
  for (uint64_t left = row.accepted; left != 0; left &= left - 1)
    read->path.push_back(std::countr_zero(left));
  rows.ReadDrawn(read, tokens.subspan(static_cast<size_t>(slot.num_tokens - row.num_yielded),
                                      static_cast<size_t>(row.num_yielded)));
}

void CudaBackend::Return(size_t r, const Row& row, const cuda::StepOutputs& outputs) {
  Slot& slot = slots_[static_cast<size_t>(row.slot)];
  for (int i = 0; i < row.num_yielded; ++i) {
    const int logit = row.LogitOf(i);
    slot.cum_log_prob += outputs.log_probs_all[logit];
    result_.token_ids.push_back(outputs.ids[logit]);
    result_.log_probs.push_back(outputs.log_probs[logit]);
  }
  result_.cum_log_probs[r] = slot.cum_log_prob;
  result_.finish_reasons[r] = row.finish_reason;
  if (info_.makes_drafts) result_.num_drafted[r] = outputs.num_drafted[row.logit];
  result_.accepted_nodes[r] = row.accepted;
}

}  // namespace

Result<std::unique_ptr<Backend>> CreateCudaBackend(std::shared_ptr<const model::Engine> engine,
                                                   Device& device, const MemoryPlan& plan,
                                                   const ops::OpTable& ops, ops::OpChoice choice,
                                                   DraftWeights draft,
                                                   const ops::OpTable& draft_ops) {
  auto backend = std::make_unique<CudaBackend>(std::move(engine), device, plan);
  RETURN_IF_ERROR(backend->Load(ops, choice, {}, device));
  if (draft.model != nullptr)
    RETURN_IF_ERROR(backend->LoadDrafts(std::move(draft.model), draft_ops, choice, device));
  if (plan.draft_tree) {
    const ops::OpTable& of_heads = draft.eagle == nullptr ? ops : draft_ops;
    RETURN_IF_ERROR(backend->LoadTrees(std::move(draft.eagle), of_heads, device));
  }
  RETURN_IF_ERROR(backend->WarmUp());
  return std::unique_ptr<Backend>(std::move(backend));
}

Result<std::unique_ptr<CudaRank>> LoadCudaRank(std::shared_ptr<const model::Engine> engine,
                                               Device& device, const MemoryPlan& plan,
                                               const ops::OpTable& ops, ops::OpChoice choice,
                                               comm::RankGroups groups,
                                               const cuda::StageMail* mail) {
  if (!engine->config.part.is_last_stage())
    return cuda::LoadFrontStage(std::move(engine), device, plan, ops, choice, groups, mail);
  auto backend = std::make_unique<CudaBackend>(std::move(engine), device, plan, mail);
  RETURN_IF_ERROR(backend->Load(ops, choice, groups, device));
  return std::unique_ptr<CudaRank>(std::move(backend));
}

}  // namespace inflight::executor
