// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/draft_model.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "ops/cuda/cuda_stream.h"

namespace inflight::executor::cuda {
namespace {

constexpr uint64_t kArrayAlignment = 256;
// After a step with drafts: the newest token, and the last draft where all were accepted.
constexpr int kMissingAfterDrafts = 2;

// Places the arrays from `base` on and returns their size; a null base only measures.
uint64_t LayOutPass(int max_num_tokens, int max_rows, std::byte* base, StepTensors& tensors,
                    int32_t*& num_passes, int32_t*& prompt_ids) {
  uint64_t size = 0;
  const auto place = [&]<typename T>(T*& array, int64_t count) {
    array = base == nullptr ? nullptr : reinterpret_cast<T*>(base + size);
    size += (static_cast<uint64_t>(count) * sizeof(T) + kArrayAlignment - 1) / kArrayAlignment *
            kArrayAlignment;
  };
  const int64_t rows = max_rows;
  place(tensors.ids, rows);
  place(tensors.positions, rows);
  place(tensors.slot_mapping, rows);
  place(tensors.cu_seqlens_q, rows + 1);
  place(tensors.seq_lens_kv, rows);
  place(tensors.table_rows, rows);
  place(tensors.logit_rows, rows);
  place(tensors.logit_slots, rows);
  place(tensors.logit_positions, rows);
  place(tensors.sampled_ids, rows);
  place(tensors.log_probs, rows);
  place(tensors.log_probs_all, rows);
  place(num_passes, 1);
  place(prompt_ids, max_num_tokens);
  return size;
}

}  // namespace

uint64_t DraftModel::Bytes(const model::ModelConfig& config, int max_seq_len, int max_num_tokens,
                           int max_rows) {
  StepTensors tensors;
  int32_t* num_passes = nullptr;
  int32_t* prompt_ids = nullptr;
  return LayOutPass(max_num_tokens, max_rows, nullptr, tensors, num_passes, prompt_ids) +
         model::Decoder::WorkspaceBytes(config, DeviceKind::kCuda, max_seq_len, max_num_tokens,
                                        max_rows) +
         ops::StreamBytes(DeviceKind::kCuda, model::KernelShape(config), max_num_tokens, max_rows);
}

Result<std::unique_ptr<DraftModel>> DraftModel::Create(std::shared_ptr<const model::Engine> engine,
                                                       const ops::OpTable& ops,
                                                       ops::OpChoice choice, const MemoryPlan& plan,
                                                       Stream& beside, const StepState& state,
                                                       const decoding::DeviceSampler& sampler,
                                                       Device& device) {
  std::unique_ptr<DraftModel> made(new DraftModel(state, sampler));
  const model::ModelConfig& config = engine->config;
  // What the model forgets this one has no keys of either.
  model::AttentionWindows windows;
  if (plan.window() > 0)
    windows = {.windows = {plan.window()}, .num_sinks = plan.windows.num_sinks};
  windows = model::LayerWindows(config, windows);
  made->max_rows_ = plan.max_logits();
  ASSIGN_OR_RETURN(made->stream_,
                   ops::cuda::CudaStream::Create(device, model::KernelShape(config, windows),
                                                 plan.max_num_tokens, made->max_rows_, choice,
                                                 &ops::cuda::AsCuda(beside)));
  ASSIGN_OR_RETURN(made->decoder_, model::Decoder::Create(engine, ops, device, plan.max_num_tokens,
                                                          made->max_rows_, windows));
  ASSIGN_OR_RETURN(made->kv_, KvStorage::Create(KvShape(config, plan.block_size, DeviceKind::kCuda),
                                                plan.num_blocks + plan.num_scratch_blocks, device,
                                                plan.can_release));
  const auto lay_out = [&](std::byte* base) {
    return LayOutPass(plan.max_num_tokens, made->max_rows_, base, made->tensors_, made->num_passes_,
                      made->prompt_ids_);
  };
  ASSIGN_OR_RETURN(made->buffer_, Buffer::Allocate(device, "draft inputs", lay_out(nullptr)));
  lay_out(made->buffer_.data());
  ASSIGN_OR_RETURN(made->arenas_, PinnedBuffer::Allocate(device, kNumArenas * sizeof(DraftArena)));
  made->num_missing_.resize(static_cast<size_t>(plan.max_slots));
  made->newest_.resize(static_cast<size_t>(plan.max_slots));
  made->engine_ = std::move(engine);
  cudaStream_t const handle = ops::cuda::AsCuda(*made->stream_).handle();
  const auto graphs = [&](bool is_first) {
    return std::make_unique<StepGraphs>(
        GraphShapes(made->max_rows_, /*max_tokens=*/0), handle,
        [drafts = made.get(), is_first](const StepShape& shape, StepVariant variant) {
          return drafts->Enqueue(shape.num_rows, variant, is_first);
        });
  };
  made->first_ = graphs(/*is_first=*/true);
  made->next_ = graphs(/*is_first=*/false);
  return made;
}

model::Batch DraftModel::BatchOf(int num_rows) const {
  const SlotState& slots = state_.slots();
  return {.ids = {tensors_.ids, DType::kI32, {num_rows}},
          .paged = {.num_rows = num_rows,
                    .num_tokens = num_rows,
                    .cu_seqlens_q = {tensors_.cu_seqlens_q, DType::kI32, {num_rows + 1}},
                    .seq_lens_kv = {tensors_.seq_lens_kv, DType::kI32, {num_rows}},
                    .positions = {tensors_.positions, DType::kI32, {num_rows}},
                    .slot_mapping = {tensors_.slot_mapping, DType::kI64, {num_rows}},
                    .block_tables = {slots.block_tables,
                                     DType::kI32,
                                     {slots.num_slots, slots.max_blocks}},
                    .num_decode_rows = num_rows,
                    .table_rows = {tensors_.table_rows, DType::kI32, {num_rows}}},
          .logit_rows = {tensors_.logit_rows, DType::kI32, {num_rows}}};
}

Status DraftModel::Enqueue(int num_rows, StepVariant variant, bool is_first) {
  cudaStream_t const handle = ops::cuda::AsCuda(*stream_).handle();
  const SlotState& slots = state_.slots();
  const int vocab_size = engine_->config.vocab_size;
  RETURN_IF_ERROR(BeginDraftPass(reinterpret_cast<const DraftArena*>(arenas_.data()), slots,
                                 tensors_, num_passes_, is_first, vocab_size, num_rows, handle));
  ASSIGN_OR_RETURN(const TensorView logits,
                   decoder_->Forward(BatchOf(num_rows), kv_.view(), *stream_));
  RETURN_IF_ERROR(sampler_.Sample({.row_slots = tensors_.logit_slots,
                                   .row_positions = tensors_.logit_positions,
                                   .num_rows = num_rows,
                                   .logits = logits.as<float>(),
                                   .any_row_samples = variant == StepVariant::kSampled,
                                   .tokens = slots.tokens,
                                   .num_tokens = slots.num_tokens,
                                   .max_seq_len = slots.max_tokens,
                                   .ids = tensors_.sampled_ids,
                                   .log_probs = tensors_.log_probs,
                                   .log_probs_all = tensors_.log_probs_all},
                                  *stream_));
  return EndDraftPass(slots, tensors_, num_passes_, num_rows, handle);
}

Status DraftModel::Run(int num_rows, StepVariant variant, bool is_first) {
  StepGraphs& graphs = is_first ? *first_ : *next_;
  const StepShape shape = StepShape::Decode(num_rows);
  const size_t graph = graphs.Find(shape);
  if (use_graphs_ && graph < graphs.shapes().size()) return graphs.Launch(graph, variant);
  return Enqueue(num_rows, variant, is_first);
}

// On arenas that name nobody.
Status DraftModel::WarmUp(bool use_graphs, bool records_all, logging::Level level) {
  for (const StepShape& shape : first_->shapes()) {
    for (const StepVariant variant : {StepVariant::kGreedy, StepVariant::kSampled}) {
      RETURN_IF_ERROR(Enqueue(shape.num_rows, variant, /*is_first=*/true));
      RETURN_IF_ERROR(Enqueue(shape.num_rows, variant, /*is_first=*/false));
    }
  }
  use_graphs_ = use_graphs;
  RETURN_IF_ERROR(stream_->Synchronize());
  if (!use_graphs) return Status::Ok();
  RETURN_IF_ERROR(next_->RecordAtLoad(records_all, level));
  return first_->RecordAtLoad(records_all, level);
}

// Returns how many passes the step takes. A sequence of which more tokens are missing than there is
// room for has no drafts, but those that there is room for are computed.
int DraftModel::Pack(const scheduler::StepPlan& plan, DraftArena* arena) {
  arena->num_tokens = arena->num_entries = 0;
  const auto rows = std::span(plan.rows).first(static_cast<size_t>(plan.num_rows));
  for (const scheduler::PlanRow& row : rows) {
    int& num_missing = num_missing_[static_cast<size_t>(row.slot)];
    if (row.is_prefill != 0) {
      num_missing = row.yields != 0 ? 1 : 0;
      continue;
    }
    if (row.num_draft_tokens == 0) {
      ++num_missing;
      continue;
    }
    const int room = max_rows_ - arena->num_tokens;
    const int num_computed = std::min(num_missing, room);
    const bool is_whole = num_computed == num_missing && num_missing > 0;
    arena->entries[arena->num_entries++] = {
        .slot = static_cast<uint16_t>(row.slot),
        .num_drafts = is_whole ? row.num_draft_tokens : uint8_t{0},
        .num_planned = row.num_draft_tokens};
    for (int i = 0; i < num_computed; ++i)
      arena->tokens[arena->num_tokens++] = {.slot = static_cast<uint16_t>(row.slot),
                                            .back = num_missing - 1 - i};
    newest_[static_cast<size_t>(row.slot)] = arena->num_tokens - 1;
    num_missing = is_whole ? kMissingAfterDrafts : num_missing - num_computed + 1;
  }
  const std::span<DraftEntry> entries(arena->entries, static_cast<size_t>(arena->num_entries));
  std::ranges::stable_sort(entries, std::greater{}, &DraftEntry::num_drafts);
  for (size_t e = 0; e < entries.size() && entries[e].num_drafts > 0; ++e)
    arena->tokens[newest_[entries[e].slot]].logit = static_cast<int16_t>(e);
  return entries.empty() ? 0 : entries[0].num_drafts;
}

Status DraftModel::Draft(const scheduler::StepPlan& plan, uint64_t step, bool is_greedy) {
  DraftArena& arena = reinterpret_cast<DraftArena*>(arenas_.data())[step % kNumArenas];
  const int num_passes = Pack(plan, &arena);
  if (arena.num_entries == 0) return Status::Ok();
  cudaStream_t const handle = ops::cuda::AsCuda(*stream_).handle();
  RETURN_IF_ERROR(state_.ApplyTables(handle));
  const StepVariant variant = is_greedy ? StepVariant::kGreedy : StepVariant::kSampled;
  // Even where nothing is drafted: it marks the places of drafts as empty.
  RETURN_IF_ERROR(Run(std::max({arena.num_tokens, arena.num_entries, 1}), variant,
                      /*is_first=*/true));
  const std::span<const DraftEntry> entries(arena.entries, static_cast<size_t>(arena.num_entries));
  for (int pass = 1; pass < num_passes; ++pass) {
    const auto goes_on = [pass](const DraftEntry& entry) { return entry.num_drafts > pass; };
    const auto num_rows = static_cast<int>(std::ranges::count_if(entries, goes_on));
    RETURN_IF_ERROR(Run(num_rows, variant, /*is_first=*/false));
  }
  return Status::Ok();
}

Status DraftModel::ComputePrompts(const model::Batch& batch) {
  cudaStream_t const handle = ops::cuda::AsCuda(*stream_).handle();
  RETURN_IF_ERROR(CopyKnownIds(static_cast<const int32_t*>(batch.ids.data), prompt_ids_,
                               batch.paged.num_tokens, engine_->config.vocab_size, handle));
  model::Batch prompts = batch;
  prompts.ids.data = prompt_ids_;
  prompts.logit_rows = {};
  prompts.adapters = nullptr;
  prompts.prompt_rows = nullptr;
  return decoder_->Forward(prompts, kv_.view(), *stream_).status();
}

}  // namespace inflight::executor::cuda
