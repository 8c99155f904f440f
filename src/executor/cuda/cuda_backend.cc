// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda_backend.h"

#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "decoding/cuda/device_sampler.h"
#include "decoding/stop.h"
#include "executor/cuda/debug_options.h"
#include "executor/cuda/kv_copies.h"
#include "executor/cuda/logits_to_host.h"
#include "executor/cuda/step_graphs.h"
#include "executor/cuda/step_state.h"
#include "executor/cuda/step_times.h"
#include "executor/kv_storage.h"
#include "executor/prompt_tables.h"
#include "model/decoder.h"
#include "ops/cuda/cuda_stream.h"

namespace inflight::executor {
namespace {

using cuda::LogitsToHost;
using cuda::StepGraphs;
using cuda::StepShape;
using cuda::StepState;
using cuda::StepVariant;
using decoding::DeviceSampler;
using inflight::cuda::ToStatus;

constexpr int kDepth = kCudaDepth;

// Graphs are recorded at load for so long, the others when they are first used.
constexpr double kRecordingMs = 1500;
constexpr std::array kVariantsAtLoad = {StepVariant::kGreedy, StepVariant::kSampled};
// Between two questions to the runtime whether the stream has failed. It takes a lock and a
// microsecond, and most steps end before the first.
constexpr int64_t kQueryIntervalNs = 10'000'000;
constexpr int kPollsPerClock = 64;
constexpr int kLeastWarmUpTokens = 64;
constexpr int kStuckSeconds = 60;  // of an injected fault

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double MsSince(int64_t start_ns) { return static_cast<double>(NowNs() - start_ns) * 1e-6; }

uint64_t FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  return free_bytes;
}

// All that the GPU may still be using. Left to the process's end when the GPU hangs: freeing would
// wait for it.
struct Held {
  std::shared_ptr<const model::Engine> engine;
  MemoryShare graph_share;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<model::Decoder> decoder;
  std::unique_ptr<StepState> state;
  KvStorage kv;
  PinnedBuffer host_pool_memory;
  cuda::HostPool host_pool;
  std::unique_ptr<DeviceSampler> sampler;
  std::unique_ptr<PromptTables> prompt_tables;
  std::unique_ptr<LogitsToHost> to_host;
  std::array<LogitsToHost::Step, kDepth> to_host_steps;
  std::unique_ptr<StepGraphs> graphs;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(std::shared_ptr<const model::Engine> engine, Device& device, const MemoryPlan& plan)
      : device_index_(device.cuda().index),
        debug_(cuda::DebugOptions::FromEnvironment()),
        times_(debug_.log_times) {
    info_ = BackendInfoOf(plan, engine->config.vocab_size, engine->limits.max_beam_width);
    held_->engine = std::move(engine);
    slots_.resize(static_cast<size_t>(info_.max_slots));
    for (StepInFlight& step : in_flight_)
      step.rows.reserve(static_cast<size_t>(info_.max_batch_size));
    result_.Reserve(info_.max_batch_size);
  }

  ~CudaBackend() override {
    cudaSetDevice(device_index_);
    if (is_stuck_)
      (void)held_.release();
    else if (held_->stream != nullptr)
      cudaStreamSynchronize(handle());
  }

  Status Load(const ops::OpTable& ops, ops::OpChoice choice, const MemoryPlan& plan,
              Device& device);
  Status WarmUp(const MemoryPlan& plan);

  const BackendInfo& info() const override { return info_; }
  Status SetupSlot(const SlotSetup& setup) override;
  Result<Ticket> Launch(const StepPlan& plan) override;
  Result<const StepResult*> Collect(Ticket ticket) override;

  std::vector<Beam> BestBeams(SlotId slot, bool is_last) const override {
    return held_->to_host->rows().BestBeams(slot, is_last);
  }

  Status ProvideLateInputs(Ticket, const LateInputs&) override {
    return Unimplemented("late inputs: no row of this backend has any");
  }

  bool Ready(Ticket ticket) const override {
    CHECK_EQ(ticket, Oldest().ticket);
    return held_->state->num_done() > Oldest().step;
  }

 private:
  struct Slot {
    decoding::StopCriteria stop;
    float cum_log_prob = 0;
    int num_tokens = 0;  // known to the host
    bool is_greedy = true;
    bool device_reads_beams = false;  // of a search: the rule needs each beam's tokens
  };
  struct Row {
    SlotId slot = 0;
    int logit = -1;
    bool ends_prompt = false;
  };
  struct StepInFlight {
    Ticket ticket = 0;
    uint64_t step = 0;  // counted from 0 since the start, those of the warm-up too
    int num_tokens = 0;
    int64_t launch_ns = 0;
    std::vector<Row> rows;
    LogitsToHost::Step* to_host = nullptr;  // null: the host reads none of its logits
  };

  cudaStream_t handle() const { return ops::cuda::AsCuda(*held_->stream).handle(); }
  StepInFlight& Oldest() { return in_flight_[static_cast<size_t>(first_in_flight_)]; }
  const StepInFlight& Oldest() const { return in_flight_[static_cast<size_t>(first_in_flight_)]; }

  Status Enqueue(const StepShape& shape, StepVariant variant);
  Status EnqueueSampling(const StepShape& shape, StepVariant variant,
                         const LogitsToHost::Step* to_host);
  Status EnqueueStep(const StepShape& shape, StepVariant variant,
                     const LogitsToHost::Step* to_host);
  Status RunOnScratch(int num_tokens, StepShape shape, StepVariant variant);
  Status RecordGraphs();
  Status CheckRow(const StepPlan& plan, int r) const;
  Status InjectFault(Ticket ticket);
  Status WaitFor(const StepInFlight& step);
  Status MakeHostPool(const MemoryPlan& plan, Device& device);
  Status SetUpRule(const SlotSetup& setup);
  void CountPinned();
  Status Take(const StepInFlight& step);
  void Append(int r, const Row& row, const cuda::StepOutputs& outputs);
  Status Advance(std::span<HostRows::Row> rows);

  const int device_index_;
  const cuda::DebugOptions debug_;
  const logging::Level level_ =  // of times
      debug_.log_times ? logging::Level::kWarning : logging::Level::kInfo;
  bool use_graphs_ = true;
  float* logits_ = nullptr;  // [max_batch_size, vocab_size] of the step that is computed
  cuda::StepTimes times_;
  BackendInfo info_;
  std::unique_ptr<Held> held_ = std::make_unique<Held>();
  std::vector<Slot> slots_;  // [max_slots]
  std::array<StepInFlight, kDepth> in_flight_;
  int first_in_flight_ = 0;
  int num_in_flight_ = 0;
  uint64_t num_launched_ = 0;
  bool is_stuck_ = false;
  std::vector<kv_cache::BlockCopy> copies_;  // of open blocks of beams
  StepResult result_;
};

Status CudaBackend::Load(const ops::OpTable& ops, ops::OpChoice choice, const MemoryPlan& plan,
                         Device& device) {
  const model::ModelConfig& config = held_->engine->config;
  cudaSetDevice(device_index_);
  use_graphs_ = debug_.use_graphs && ops.can_capture;
  ASSIGN_OR_RETURN(held_->graph_share, device.ledger().Take("graphs", plan.graph_bytes));
  ASSIGN_OR_RETURN(held_->stream, ops::MakeStream(device, model::KernelShape(config, plan.windows),
                                                  plan.max_num_tokens,
                                                  plan.max_batch_size + cuda::kFillRows, choice));
  RETURN_IF_ERROR(ops::LoadTuning(held_->engine->kernel_tuning, *held_->stream));
  ASSIGN_OR_RETURN(held_->decoder,
                   model::Decoder::Create(held_->engine, ops, device, plan.max_num_tokens,
                                          plan.max_batch_size, plan.windows));
  ASSIGN_OR_RETURN(held_->state, StepState::Create(plan, device));
  ASSIGN_OR_RETURN(held_->sampler,
                   DeviceSampler::Create(device, info_.max_slots, info_.vocab_size));
  ASSIGN_OR_RETURN(held_->kv, KvStorage::Create(KvShape(config, plan.block_size),
                                                plan.num_blocks + plan.num_scratch_blocks, device));
  RETURN_IF_ERROR(MakeHostPool(plan, device));
  held_->to_host = std::make_unique<LogitsToHost>(device, info_);
  held_->prompt_tables = std::make_unique<PromptTables>(device, plan.prompt_rows, info_.max_slots);
  CountPinned();
  held_->graphs = std::make_unique<StepGraphs>(
      cuda::GraphShapes(info_.max_batch_size, std::min(info_.max_num_tokens, info_.max_seq_len)),
      handle(),
      [this](const StepShape& shape, StepVariant variant) { return Enqueue(shape, variant); });
  // What was cleared and copied in the default stream, which ours does not wait for. Waiting for
  // the device would be refused while another executor records its steps.
  return ToStatus(cudaStreamSynchronize(cudaStreamLegacy), "loading");
}

Status CudaBackend::MakeHostPool(const MemoryPlan& plan, Device& device) {
  if (plan.num_host_blocks == 0) return Status::Ok();
  Result<PinnedBuffer> memory = PinnedBuffer::Allocate(device, plan.host_pool_bytes());
  if (!memory.ok()) {
    return memory.status()
        .WithPrefix("kv_cache_host_memory_bytes")
        .WithField("kv_cache_host_memory_bytes");
  }
  held_->host_pool_memory = *std::move(memory);
  ops::KvCacheView host = held_->kv.view();
  host.data = held_->host_pool_memory.data();
  host.num_blocks = plan.num_host_blocks;
  held_->host_pool = {.kv = held_->kv.view(),
                      .host = host,
                      .first_block = plan.num_scratch_blocks,
                      .num_blocks = static_cast<BlockId>(plan.num_blocks)};
  return Status::Ok();
}

void CudaBackend::CountPinned() {
  info_.pinned_memory_bytes =
      static_cast<int64_t>(held_->state->pinned_bytes() + held_->sampler->pinned_bytes() +
                           held_->to_host->pinned_bytes() + held_->prompt_tables->pinned_bytes() +
                           held_->host_pool_memory.size());
}

// One step, kernel by kernel. What is recorded into a graph is the same.
Status CudaBackend::Enqueue(const StepShape& shape, StepVariant variant) {
  StepState& state = *held_->state;
  RETURN_IF_ERROR(state.Begin(shape, handle()));
  ASSIGN_OR_RETURN(const TensorView logits,
                   held_->decoder->Forward(state.BatchOf(shape), held_->kv.view(), *held_->stream));
  logits_ = logits.as<float>();  // at one address always
  return variant == StepVariant::kForward ? Status::Ok() : EnqueueSampling(shape, variant, nullptr);
}

// What comes after the forward pass.
Status CudaBackend::EnqueueSampling(const StepShape& shape, StepVariant variant,
                                    const LogitsToHost::Step* to_host) {
  StepState& state = *held_->state;
  const cuda::SlotState& slots = state.slots();
  const cuda::StepTensors& tensors = state.tensors();
  const decoding::DeviceSampleParams params = {.row_slots = tensors.logit_slots,
                                               .num_rows = shape.num_logits,
                                               .logits = logits_,
                                               .any_row_samples = variant == StepVariant::kSampled,
                                               .tokens = slots.tokens,
                                               .num_tokens = slots.num_tokens,
                                               .max_seq_len = slots.max_tokens,
                                               .ids = tensors.sampled_ids,
                                               .log_probs = tensors.log_probs,
                                               .log_probs_all = tensors.log_probs_all};
  if (to_host != nullptr)
    RETURN_IF_ERROR(held_->to_host->CopyRows(*to_host, *held_->sampler, params, tensors.logit_slots,
                                             held_->stream.get()));
  RETURN_IF_ERROR(held_->sampler->Sample(params, *held_->stream));
  if (to_host != nullptr)
    RETURN_IF_ERROR(held_->to_host->CopyContext(*to_host, tensors.logit_rows, held_->decoder.get(),
                                                held_->stream.get()));
  return state.End(shape, handle());
}

// By a graph where there is one. A step whose logits the host reads has one of its forward pass,
// but not for logits of prompt tokens: the decoder's last Forward has to be this one.
Status CudaBackend::EnqueueStep(const StepShape& shape, StepVariant variant,
                                const LogitsToHost::Step* to_host) {
  const std::vector<StepShape>& shapes = held_->graphs->shapes();
  const size_t graph = held_->graphs->Find(shape);
  const bool has_graph =
      use_graphs_ && graph < shapes.size() && (to_host == nullptr || to_host->context.empty());
  if (to_host == nullptr)
    return has_graph ? held_->graphs->Launch(graph, variant) : Enqueue(shape, variant);
  RETURN_IF_ERROR(has_graph ? held_->graphs->Launch(graph, StepVariant::kForward)
                            : Enqueue(shape, StepVariant::kForward));
  return EnqueueSampling(has_graph ? shapes[graph] : shape, variant, to_host);
}

// Runs every kind of step once on the scratch slot: kernels are loaded, the library's algorithms
// chosen, and what cannot run here fails now and not beside requests.
Status CudaBackend::WarmUp(const MemoryPlan& plan) {
  cudaSetDevice(device_index_);
  const int64_t start_ns = NowNs();
  for (int num_tokens = plan.max_num_tokens; num_tokens > kLeastWarmUpTokens; num_tokens /= 2)
    RETURN_IF_ERROR(RunOnScratch(num_tokens, StepShape{}, StepVariant::kGreedy));
  RETURN_IF_ERROR(held_->state->SetUpSlot(/*slot=*/0, /*num_tokens=*/1,
                                          /*prompt_table=*/nullptr, handle()));
  RETURN_IF_ERROR(held_->sampler->Setup(/*slot=*/0, /*rule=*/{}, /*tokens=*/{}, *held_->stream));
  for (const StepShape& shape : held_->graphs->shapes()) {
    const int num_prefill_tokens = shape.has_prefill() ? shape.num_tokens : 0;
    RETURN_IF_ERROR(RunOnScratch(num_prefill_tokens, shape, StepVariant::kGreedy));
    RETURN_IF_ERROR(RunOnScratch(num_prefill_tokens, shape, StepVariant::kSampled));
  }
  logging::Log(level_, "steps ran for the first time",
               {{"ms", MsSince(start_ns)}, {"steps", num_launched_}});
  return use_graphs_ ? RecordGraphs() : Status::Ok();
}

// A step of prompts of `num_tokens` in all, filled up to `shape` where that is not empty.
Status CudaBackend::RunOnScratch(int num_tokens, StepShape shape, StepVariant variant) {
  scheduler::StepPlan plan;
  while (plan.num_tokens < num_tokens && plan.num_rows < info_.max_batch_size) {
    const int row_tokens = std::min(info_.max_seq_len, num_tokens - plan.num_tokens);
    plan.rows[static_cast<size_t>(plan.num_rows++)] = {.slot = held_->state->slots().scratch_slot(),
                                                       .num_query_tokens = row_tokens,
                                                       .is_prefill = 1,
                                                       .yields = 1};
    plan.num_tokens += row_tokens;
  }
  const StepShape packed = held_->state->Pack(plan, &held_->state->arena(num_launched_));
  RETURN_IF_ERROR(Enqueue(shape.num_rows > 0 ? shape : packed, variant));
  ++num_launched_;
  return ToStatus(cudaStreamSynchronize(handle()), "the first steps");
}

// The largest first: they save the most.
Status CudaBackend::RecordGraphs() {
  const int64_t start_ns = NowNs();
  const uint64_t free_before = FreeBytes();
  for (const StepVariant variant : kVariantsAtLoad) {
    for (size_t i = held_->graphs->shapes().size(); i-- > 0;) {
      if (MsSince(start_ns) > kRecordingMs && !debug_.records_all) break;
      RETURN_IF_ERROR(held_->graphs->Record(i, variant));
    }
  }
  RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(handle()), "recording steps"));
  const uint64_t free_after = FreeBytes();
  logging::Log(level_, "steps recorded as CUDA graphs",
               {{"graphs", held_->graphs->num_recorded()},
                {"of", held_->graphs->shapes().size() * kVariantsAtLoad.size()},
                {"ms", MsSince(start_ns)},
                {"bytes", free_before > free_after ? free_before - free_after : 0}});
  return Status::Ok();
}

Status CudaBackend::SetupSlot(const SlotSetup& setup) {
  cudaSetDevice(device_index_);
  Slot& slot = slots_[static_cast<size_t>(setup.slot)];
  const std::span<int32_t> tokens = held_->state->host_tokens(setup.slot);
  CHECK_LE(setup.tokens.size(), tokens.size());
  std::ranges::copy(setup.tokens, tokens.begin());
  slot.stop = {.end_ids = setup.request->end_ids,
               .stop_words = setup.request->stop_words,
               .num_prompt_tokens = setup.num_prompt_tokens,
               .max_seq_len = setup.max_seq_len};
  slot.cum_log_prob = setup.cum_log_prob;
  slot.num_tokens = static_cast<int>(setup.tokens.size());
  RETURN_IF_ERROR(held_->to_host->SetUp(setup));
  RETURN_IF_ERROR(held_->prompt_tables->SetUp(setup));
  RETURN_IF_ERROR(held_->state->SetUpSlot(setup.slot, slot.num_tokens,
                                          held_->prompt_tables->Of(setup.slot), handle()));
  RETURN_IF_ERROR(SetUpRule(setup));
  CountPinned();
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
  CHECK_LE(num_in_flight_, kDepth - 1);
  const int64_t start_ns = times_.is_on() ? NowNs() : 0;
  cudaSetDevice(device_index_);
  RETURN_IF_ERROR(InjectFault(plan.step_id));
  const auto place = static_cast<size_t>((first_in_flight_ + num_in_flight_) % kDepth);
  StepInFlight& step = in_flight_[place];
  step.ticket = plan.step_id;
  step.step = num_launched_;
  step.rows.clear();
  StepVariant variant = StepVariant::kGreedy;
  int num_logits = 0;
  bool is_wanted = false;
  for (int r = 0; r < plan.num_rows; ++r) {
    RETURN_IF_ERROR(CheckRow(plan, r));
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    const bool yields = row.yields != 0;
    if (yields && !slots_[static_cast<size_t>(row.slot)].is_greedy) variant = StepVariant::kSampled;
    step.rows.push_back({.slot = row.slot,
                         .logit = yields ? num_logits++ : -1,
                         .ends_prompt = yields && row.is_prefill != 0});
    is_wanted |= held_->to_host->IsWanted(row.slot);
  }
  step.to_host = nullptr;
  if (is_wanted) {
    LogitsToHost::Step& to_host = held_->to_host_steps[place];
    held_->to_host->Find(plan, &to_host);
    if (!to_host.empty()) step.to_host = &to_host;
  }
  RETURN_IF_ERROR(cuda::CopyHostBlocks(
      held_->host_pool, std::span(plan.copies).first(static_cast<size_t>(plan.num_copies)),
      handle()));
  const StepShape shape = held_->state->Pack(plan, &held_->state->arena(num_launched_));
  RETURN_IF_ERROR(EnqueueStep(shape, variant, step.to_host));
  ++num_launched_;
  ++num_in_flight_;
  step.num_tokens = shape.num_tokens;
  step.launch_ns = times_.is_on() ? NowNs() - start_ns : 0;
  return plan.step_id;
}

// kInternal when a row does not fit its slot: a defect of the planner.
Status CudaBackend::CheckRow(const StepPlan& plan, int r) const {
  const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
  const int end = row.first_position + row.num_query_tokens;
  const int known = row.is_prefill != 0 ? slots_[static_cast<size_t>(row.slot)].num_tokens
                                        : held_->state->slots().max_tokens;
  const bool fits = row.first_position >= 0 && end <= known &&
                    (row.is_prefill != 0 ? r >= plan.num_decode_rows
                                         : r < plan.num_decode_rows && row.num_query_tokens == 1 &&
                                               row.yields != 0);
  if (fits && plan.num_tokens <= info_.max_num_tokens && plan.num_rows <= info_.max_batch_size)
    return Status::Ok();
  return Internal(
      fmt::format("step {}: row {} of {} wants tokens [{}, {}) of slot {}, which knows {}",
                  plan.step_id, r, plan.num_rows, row.first_position, end, row.slot, known));
}

Status CudaBackend::InjectFault(Ticket ticket) {
  if (ticket != debug_.fault_step) return Status::Ok();
  switch (debug_.fault) {
    case cuda::Fault::kNone:
      return Status::Ok();
    case cuda::Fault::kLaunch:
      return cuda::LaunchBadly(handle());
    case cuda::Fault::kTrap:
      return cuda::LaunchTrap(handle());
    case cuda::Fault::kStuck:
      return cuda::LaunchSpin(kStuckSeconds, handle());
  }
  return Status::Ok();
}

// Polls: waking up costs a small machine more than many steps wait.
Status CudaBackend::WaitFor(const StepInFlight& step) {
  int64_t start_ns = 0;
  int64_t queried_ns = 0;
  for (int polls = 1; held_->state->num_done() <= step.step; ++polls) {
    _mm_pause();
    if (polls % kPollsPerClock != 0) continue;
    const int64_t now_ns = NowNs();
    if (start_ns == 0) start_ns = queried_ns = now_ns;
    if (now_ns - queried_ns < kQueryIntervalNs) continue;
    queried_ns = now_ns;
    const cudaError_t state = cudaStreamQuery(handle());
    if (state == cudaErrorNotReady) {
      if (now_ns - start_ns < debug_.watchdog_ms * 1'000'000) continue;
      is_stuck_ = true;
      return Internal(
          fmt::format("step {}: the GPU has not finished it within {} ms; restart the "
                      "server (and reset the GPU if it stays busy)",
                      step.ticket, debug_.watchdog_ms));
    }
    if (state != cudaSuccess)
      return ToStatus(state, fmt::format("step {}: the GPU failed", step.ticket));
    if (held_->state->num_done() <= step.step)  // all ran, and the counter did not move
      return Internal(fmt::format("step {}: ended without its results", step.ticket));
  }
  return Status::Ok();
}

Result<const StepResult*> CudaBackend::Collect(Ticket ticket) {
  const StepInFlight& step = Oldest();
  CHECK_EQ(ticket, step.ticket);
  const int64_t start_ns = times_.is_on() ? NowNs() : 0;
  RETURN_IF_ERROR(WaitFor(step));
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
  first_in_flight_ = (first_in_flight_ + 1) % kDepth;
  --num_in_flight_;
  return &result_;
}

// What each row drew, and what the host made of those whose logits it read.
Status CudaBackend::Take(const StepInFlight& step) {
  const cuda::StepOutputs& outputs = held_->state->outputs(step.step);
  LogitsToHost& to_host = *held_->to_host;
  std::span<HostRows::Row> read;
  if (step.to_host != nullptr) {
    to_host.Read(*step.to_host);
    read = step.to_host->rows;
  }
  result_.Clear(static_cast<int>(step.rows.size()));
  for (size_t r = 0; r < step.rows.size(); ++r) {
    const Row& row = step.rows[r];
    const bool is_read = !read.empty() && read[0].plan_row == static_cast<int>(r);
    const bool is_beam = is_read && read[0].search != nullptr;
    if (row.ends_prompt) held_->prompt_tables->Release(row.slot);
    if (is_beam && read[0].beam == 0) RETURN_IF_ERROR(Advance(read));
    if (row.logit >= 0 && !is_beam) Append(static_cast<int>(r), row, outputs);
    if (is_read && !is_beam) {
      to_host.rows().Append(row.slot, outputs.ids[row.logit]);
      HostRows::Return(&read[0], &result_);
    }
    if (is_read) read = read.subspan(1);
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
  StepState& state = *held_->state;
  copies_.clear();
  state.host_tables().Reorder(move->slots, move->parents, move->num_kv_tokens, &copies_);
  RETURN_IF_ERROR(cuda::CopyOpenBlocks(held_->kv.view(), copies_, handle()));
  const int num_tokens = move->num_kv_tokens + 1;
  const bool with_tokens = slots_[static_cast<size_t>(rows[0].slot)].device_reads_beams;
  if (with_tokens)
    for (const SlotId beam : move->slots)
      std::ranges::copy(held_->to_host->rows().tokens()[static_cast<size_t>(beam)].tokens,
                        state.host_tokens(beam).begin());
  return state.PlaceBeams(move->slots, move->tokens, num_tokens, with_tokens, handle());
}

// The token that the row drew joins what the host knows of its slot.
void CudaBackend::Append(int r, const Row& row, const cuda::StepOutputs& outputs) {
  const TokenId id = outputs.ids[row.logit];
  Slot& slot = slots_[static_cast<size_t>(row.slot)];
  const std::span<int32_t> tokens = held_->state->host_tokens(row.slot);
  const auto num_tokens = static_cast<size_t>(++slot.num_tokens);
  tokens[num_tokens - 1] = id;
  slot.cum_log_prob += outputs.log_probs_all[row.logit];
  result_.token_ids.push_back(id);
  result_.log_probs.push_back(outputs.log_probs[row.logit]);
  result_.cum_log_probs[static_cast<size_t>(r)] = slot.cum_log_prob;
  result_.finish_reasons[static_cast<size_t>(r)] =
      decoding::CheckStop(slot.stop, tokens.first(num_tokens));
}

}  // namespace

Result<std::unique_ptr<Backend>> CreateCudaBackend(std::shared_ptr<const model::Engine> engine,
                                                   Device& device, const MemoryPlan& plan,
                                                   const ops::OpTable& ops, ops::OpChoice choice) {
  auto backend = std::make_unique<CudaBackend>(std::move(engine), device, plan);
  RETURN_IF_ERROR(backend->Load(ops, choice, plan, device));
  RETURN_IF_ERROR(backend->WarmUp(plan));
  return std::unique_ptr<Backend>(std::move(backend));
}

uint64_t CudaStepBytes(const MemoryPlan& plan) { return StepState::Bytes(plan); }

}  // namespace inflight::executor
