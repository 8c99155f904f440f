// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/front_stage.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "decoding/cuda/device_sampler.h"
#include "executor/cuda/check_row.h"
#include "executor/cuda/debug_options.h"
#include "executor/cuda/held.h"
#include "executor/cuda/step_watch.h"
#include "ops/cuda/cuda_stream.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::ToStatus;

// Its graphs are of the one variant that draws nothing.
constexpr std::array kForwardAlone = {StepVariant::kForward};

class FrontStage : public CudaRank {
 public:
  FrontStage(std::shared_ptr<const model::Engine> engine, Device& device, const MemoryPlan& plan,
             const StageMail* mail)
      : device_index_(device.cuda().index),
        plan_(plan),
        is_told_(mail == nullptr),
        mail_(is_told_ ? StageMail() : *mail),
        debug_(DebugOptions::FromEnvironment()),
        info_(BackendInfoOf(plan, engine->config.vocab_size, engine->limits.max_beam_width)) {
    held_->engine = std::move(engine);
    num_known_.resize(static_cast<size_t>(info_.max_slots));
    is_sampled_.resize(static_cast<size_t>(info_.max_slots));
    in_flight_.resize(static_cast<size_t>(info_.depth));
    for (StepInFlight& step : in_flight_)
      step.prompt_ends.reserve(static_cast<size_t>(info_.max_batch_size));
  }

  ~FrontStage() override { FinishSteps(held_, device_index_, is_stuck_); }

  Status Load(const ops::OpTable& ops, ops::OpChoice choice, comm::RankGroups groups,
              Device& device) {
    cudaSetDevice(device_index_);
    use_graphs_ = debug_.use_graphs && ops.can_capture;
    const LayersToLoad layers = {.plan = plan_,
                                 .ops = ops,
                                 .choice = choice,
                                 .groups = groups,
                                 .forced_acceptance = debug_.forced_acceptance};
    RETURN_IF_ERROR(
        LoadLayers(layers, info_, device, *held_,
                   [this](const StepShape& shape, StepVariant) { return Enqueue(shape); }));
    if (is_told_) RETURN_IF_ERROR(MakeBox(device));
    if (plan_.drafts == DraftSource::kSuffix || plan_.draft_tree) {
      ASSIGN_OR_RETURN(held_->guesses, GuessArenas::Create(plan_, device));
    }
    info_.pinned_memory_bytes = held_->pinned_bytes();
    return ToStatus(cudaStreamSynchronize(cudaStreamLegacy), "loading");
  }

  // Of the first stage, which hands the drafts on (stage_drafts.h).
  Status LoadDrafts(std::shared_ptr<const model::Engine> engine, const ops::OpTable& ops,
                    ops::OpChoice choice, Device& device) override {
    CHECK(held_->engine->config.part.is_first_stage());
    ASSIGN_OR_RETURN(held_->sampler,
                     decoding::DeviceSampler::Create(device, info_.max_slots, info_.vocab_size));
    RETURN_IF_ERROR(LoadDraftModel(std::move(engine), ops, choice, plan_, device, *held_));
    info_.pinned_memory_bytes = held_->pinned_bytes();
    return ToStatus(cudaStreamSynchronize(cudaStreamLegacy), "loading a draft model");
  }
  Status LoadTrees(std::shared_ptr<const model::EagleHead>, const ops::OpTable&, Device&) override {
    return Internal("a stage that draws no tokens has no trees");
  }

  // As many steps as the last stage's.
  Status WarmUp() override {
    cudaSetDevice(device_index_);
    RETURN_IF_ERROR(RunAllKinds(plan_.max_num_tokens, *held_->graphs,
                                [this](int num_tokens, const StepShape& shape, StepVariant) {
                                  return RunOnScratch(num_tokens, shape);
                                }));
    if (held_->drafts == nullptr) return Status::Ok();
    RETURN_IF_ERROR(held_->state->SetUpSlot(/*slot=*/0, /*num_tokens=*/1,
                                            /*prompt_table=*/nullptr, handle()));
    RETURN_IF_ERROR(held_->sampler->Setup(/*slot=*/0, /*rule=*/{}, /*tokens=*/{}, *held_->stream));
    return held_->drafts->WarmUp(use_graphs_, debug_.records_all, logging::Level::kInfo);
  }

  Status JoinStages() override {
    cudaSetDevice(device_index_);
    RETURN_IF_ERROR(RunOnScratch(0, held_->graphs->shapes().front()));
    ASSIGN_OR_RETURN(info_.least_step_ns, held_->weight_ring->Fill());
    if (!use_graphs_) return Status::Ok();
    return held_->graphs->RecordAtLoad(debug_.records_all, logging::Level::kInfo, kForwardAlone);
  }

  Status AwaitSteps() override {
    if (num_in_flight_ == 0) return Status::Ok();
    cudaSetDevice(device_index_);
    return WaitForStep(*held_->state, {.step = num_launched_ - 1, .ticket = Oldest().ticket},
                       debug_.watchdog_ms, handle(), &is_stuck_);
  }

  const BackendInfo& info() const override { return info_; }
  AdapterCache* adapters() override { return &held_->adapters->cache(); }
  Result<ReleasableParts> releasable() const override { return held_->releasable(); }

  Status SetupSlot(const SlotSetup& setup) override {
    cudaSetDevice(device_index_);
    const std::span<int32_t> tokens = held_->state->host_tokens(setup.slot);
    const std::vector<TokenId>& drafts = setup.request->draft_ids;
    CHECK_LE(setup.tokens.size() + drafts.size(), tokens.size());
    std::ranges::copy(drafts, std::ranges::copy(setup.tokens, tokens.begin()).out);
    int& num_known = num_known_[static_cast<size_t>(setup.slot)];
    num_known = static_cast<int>(setup.tokens.size() + drafts.size());
    if (held_->engine->config.part.is_first_stage())
      RETURN_IF_ERROR(held_->prompt_tables->SetUp(setup));
    RETURN_IF_ERROR(held_->state->SetUpSlot(setup.slot, num_known,
                                            held_->prompt_tables->Of(setup.slot), handle()));
    if (held_->drafts != nullptr) RETURN_IF_ERROR(SetUpDrafts(setup));
    RETURN_IF_ERROR(held_->adapters->SetUp(setup, handle()));
    info_.pinned_memory_bytes = held_->pinned_bytes();
    return Status::Ok();
  }

  Result<Ticket> Launch(const StepPlan& plan) override {
    CHECK_LT(num_in_flight_, info_.depth);
    cudaSetDevice(device_index_);
    StepInFlight& step =
        in_flight_[static_cast<size_t>((first_in_flight_ + num_in_flight_) % info_.depth)];
    step.ticket = plan.step_id;
    step.step = num_launched_;
    step.prompt_ends.clear();
    step.has_drafts = false;
    for (int r = 0; r < plan.num_rows; ++r) {
      const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
      const int num_known = row.is_prefill != 0 ? num_known_[static_cast<size_t>(row.slot)]
                                                : held_->state->slots().max_tokens;
      RETURN_IF_ERROR(CheckRow(plan, r, num_known, info_));
      if (row.is_prefill != 0 && row.yields != 0) step.prompt_ends.push_back(row.slot);
      step.has_drafts |= row.is_prefill == 0 && row.num_draft_tokens > 0;
    }
    ASSIGN_OR_RETURN(const StepShape shape, PrepareStep(*held_, plan, num_launched_));
    step.num_logits = shape.num_logits;
    RETURN_IF_ERROR(held_->state->LookUpDrafts(plan, std::exchange(guesses_, {}), handle()));
    if (held_->drafts != nullptr)
      RETURN_IF_ERROR(held_->drafts->Draft(plan, num_launched_, /*is_greedy=*/!Samples(plan)));
    RETURN_IF_ERROR(TakeDrafts(*held_, plan));
    // Before the rows of the step, which a graph may have. NCCL's sender may have to wait for the
    // next stage, so that there they go when the step is computed.
    if (!held_->moves_rows_apart) RETURN_IF_ERROR(HandDrafts(plan));
    RETURN_IF_ERROR(TakeRows(*held_, shape));
    const size_t graph = held_->graphs->Find(shape);
    const bool has_graph = use_graphs_ && graph < held_->graphs->shapes().size();
    RETURN_IF_ERROR(has_graph ? held_->graphs->Launch(graph, StepVariant::kForward)
                              : Enqueue(shape));
    if (held_->moves_rows_apart) RETURN_IF_ERROR(HandDrafts(plan));
    RETURN_IF_ERROR(HandRows(*held_, shape));
    if (held_->drafts != nullptr && shape.has_prefill())
      RETURN_IF_ERROR(held_->drafts->ComputePrompts(held_->state->BatchOf(shape)));
    ++num_launched_;
    ++num_in_flight_;
    return plan.step_id;
  }

  // What was drawn is taken before anything that is told behind this: slots are set up anew, beams
  // are placed.
  Result<const StepResult*> Collect(Ticket ticket) override {
    const StepInFlight& step = Oldest();
    CHECK_EQ(ticket, step.ticket);
    cudaSetDevice(device_index_);
    RETURN_IF_ERROR(TakeDrawn(mail_, held_->state->slots(), step.step, handle()));
    if (plan_.draft_tree && step.has_drafts) RETURN_IF_ERROR(MoveDrawnOfAll(step));
    for (const SlotId slot : step.prompt_ends) held_->prompt_tables->Release(slot);
    first_in_flight_ = (first_in_flight_ + 1) % info_.depth;
    --num_in_flight_;
    return &nothing_;
  }

  Status HearGuesses(const Guesses& guesses) override {
    if (held_->guesses == nullptr || guesses.rows == nullptr) return Status::Ok();
    RETURN_IF_ERROR(held_->guesses->Copy(num_launched_, guesses));
    guesses_ = held_->guesses->guesses();
    return Status::Ok();
  }

  Status Hear(std::span<const DrawnToken> drawn) override {
    if (!is_told_) return Status::Ok();
    const SlotState& slots = held_->state->slots();
    for (const DrawnToken& token : drawn)
      if (token.slot < 0 || token.slot >= slots.scratch_slot() || token.at < 0 ||
          token.num_tokens > slots.max_tokens ||
          (token.kv_shift > 0 && token.at + token.kv_shift >= slots.max_blocks * slots.block_size))
        return DataLoss("a token of the last stage is of no slot, or behind its end");
    return WriteLetter(mail_, Oldest().step, drawn);
  }

  Status Follow(const BeamMove& move) override {
    cudaSetDevice(device_index_);
    return PlaceBeams(*held_, move, /*with_tokens=*/false, &copies_);
  }

  Status ProvideLateInputs(Ticket, const LateInputs&) override { return Status::Ok(); }
  bool Ready(Ticket) const override { return false; }

 private:
  struct StepInFlight {
    Ticket ticket = 0;
    uint64_t step = 0;  // as of StepState
    int num_logits = 0;
    bool has_drafts = false;          // of decode rows
    std::vector<SlotId> prompt_ends;  // whose last prompt tokens it has
  };

  cudaStream_t handle() const { return ops::cuda::AsCuda(*held_->stream).handle(); }
  const StepInFlight& Oldest() const { return in_flight_[static_cast<size_t>(first_in_flight_)]; }

  // Of a search there are no drafts.
  Status SetUpDrafts(const SlotSetup& setup) {
    held_->drafts->SetUp(setup.slot);
    uint8_t& is_sampled = is_sampled_[static_cast<size_t>(setup.slot)];
    is_sampled = 0;
    for (const SlotId beam : setup.beam_slots) is_sampled_[static_cast<size_t>(beam)] = 0;
    if (!setup.beam_slots.empty()) return Status::Ok();
    decoding::SamplingRule rule =
        decoding::MakeSamplingRule(*setup.request, setup.seed, setup.num_prompt_tokens);
    rule.bad_texts = nullptr;  // drafts do without: its tables would take memory beside steps
    is_sampled = rule.greedy ? 0 : 1;
    return held_->sampler->Setup(setup.slot, rule, setup.tokens, *held_->stream);
  }

  // Whether a row that yields draws at random.
  bool Samples(const StepPlan& plan) const {
    const auto rows = std::span(plan.rows).first(static_cast<size_t>(plan.num_rows));
    return std::ranges::any_of(rows, [this](const scheduler::PlanRow& row) {
      return row.yields != 0 && is_sampled_[static_cast<size_t>(row.slot)] != 0;
    });
  }

  // The last stage did so behind its sampling.
  Status MoveDrawnOfAll(const StepInFlight& step) {
    for (int g = 0; g < held_->kv.num_groups(); ++g)
      RETURN_IF_ERROR(MoveDrawn(mail_, held_->kv.view(g), g, held_->state->slots(), step.step,
                                step.num_logits, handle()));
    return Status::Ok();
  }

  Status HandDrafts(const StepPlan& plan) {
    if (held_->stage_drafts == nullptr) return Status::Ok();
    return held_->stage_drafts->Hand(plan, held_->state->slots(), *held_->stream);
  }

  // Where the host writes what it is told.
  Status MakeBox(Device& device) {
    static_assert(kMaxCudaStages < kNumArenas, "a letter is read before its place is written anew");
    constexpr size_t kLetterBytes = kNumArenas * sizeof(StageLetter);
    ASSIGN_OR_RETURN(held_->letters,
                     PinnedBuffer::Allocate(device, kLetterBytes + sizeof(uint32_t)));
    mail_.boxes[mail_.num_boxes++] = reinterpret_cast<StageLetter*>(held_->letters.data());
    mail_.abort = reinterpret_cast<const uint32_t*>(held_->letters.data() + kLetterBytes);
    return Status::Ok();
  }

  Status RunOnScratch(int num_tokens, const StepShape& shape) {
    const StepPlan plan = ScratchPlan(num_tokens, info_, held_->state->slots());
    const StepShape packed = held_->state->Pack(plan, &held_->state->arena(num_launched_));
    const StepShape& filled = shape.num_rows > 0 ? shape : packed;
    RETURN_IF_ERROR(TakeRows(*held_, filled));
    RETURN_IF_ERROR(Enqueue(filled));
    RETURN_IF_ERROR(HandRows(*held_, filled));
    ++num_launched_;
    return ToStatus(cudaStreamSynchronize(handle()), "the first steps");
  }

  Status Enqueue(const StepShape& shape) {
    StepState& state = *held_->state;
    RETURN_IF_ERROR(state.Begin(shape, handle()));
    model::Batch batch = BatchOf(*held_, shape);
    ASSIGN_OR_RETURN(batch.adapters, held_->adapters->Find(shape, state, handle()));
    RETURN_IF_ERROR(held_->decoder->Forward(batch, held_->kv.view(), *held_->stream).status());
    StepShape without_logits = shape;
    without_logits.num_logits = 0;
    RETURN_IF_ERROR(state.End(without_logits, handle()));
    return held_->weight_ring->EndStep(*held_->stream);
  }

  const int device_index_;
  const MemoryPlan plan_;
  const bool is_told_;  // what is drawn, by the host
  StageMail mail_;
  const DebugOptions debug_;
  bool use_graphs_ = true;
  BackendInfo info_;
  std::unique_ptr<Held> held_ = std::make_unique<Held>();
  std::vector<int> num_known_;           // [max_slots] tokens, with the client's drafts, at set-up
  std::vector<uint8_t> is_sampled_;      // [max_slots] where drafts are drawn: not greedy
  Guesses guesses_;                      // of the step that is launched next
  std::vector<StepInFlight> in_flight_;  // [depth], a ring
  int first_in_flight_ = 0;
  int num_in_flight_ = 0;
  uint64_t num_launched_ = 0;
  bool is_stuck_ = false;
  std::vector<kv_cache::BlockCopy> copies_;
  const StepResult nothing_;
};

}  // namespace

Result<std::unique_ptr<CudaRank>> LoadFrontStage(std::shared_ptr<const model::Engine> engine,
                                                 Device& device, const MemoryPlan& plan,
                                                 const ops::OpTable& ops, ops::OpChoice choice,
                                                 comm::RankGroups groups, const StageMail* mail) {
  auto stage = std::make_unique<FrontStage>(std::move(engine), device, plan, mail);
  RETURN_IF_ERROR(stage->Load(ops, choice, groups, device));
  return std::unique_ptr<CudaRank>(std::move(stage));
}

}  // namespace inflight::executor::cuda
