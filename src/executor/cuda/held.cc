// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/held.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "executor/cuda/kv_copies.h"
#include "ops/cuda/cuda_stream.h"

namespace inflight::executor::cuda {
namespace {

constexpr int kLeastWarmUpTokens = 64;

int NumFilledTokens(const StepGraphs& graphs, const StepShape& shape) {
  const size_t graph = graphs.Find(shape);
  return graph < graphs.shapes().size() ? graphs.shapes()[graph].num_tokens : shape.num_tokens;
}

}  // namespace

Status LoadLayers(const LayersToLoad& with, const BackendInfo& info, Device& device, Held& held,
                  StepGraphs::Enqueue enqueue) {
  const MemoryPlan& plan = with.plan;
  const model::ModelConfig& config = held.engine->config;
  ASSIGN_OR_RETURN(held.graph_share, device.ledger().Take("graphs", plan.graph_bytes));
  ASSIGN_OR_RETURN(held.stream, ops::MakeStream(device, model::KernelShape(config, plan.windows),
                                                plan.max_num_tokens, plan.max_logits() + kFillRows,
                                                with.choice));
  RETURN_IF_ERROR(ops::LoadTuning(held.engine->kernel_tuning, *held.stream));
  ASSIGN_OR_RETURN(held.weight_ring, WeightRing::Create(held.engine, device));
  ASSIGN_OR_RETURN(
      held.decoder,
      model::Decoder::Create(held.engine, with.ops, device, plan.max_num_tokens, plan.max_logits(),
                             plan.windows, held.weight_ring.get(), with.groups));
  ASSIGN_OR_RETURN(held.state, StepState::Create(plan, device, with.forced_acceptance));
  ASSIGN_OR_RETURN(held.kv,
                   KvStorage::CreateGroups(KvShape(config, plan.block_size, DeviceKind::kCuda),
                                           KvGroupSizes(config, plan), device, plan.can_release));
  ASSIGN_OR_RETURN(held.adapters, StepAdapters::Create(held.engine, device, plan));
  ASSIGN_OR_RETURN(held.host_blocks, HostBlocks::Create(plan, device));
  for (int g = 0; g < held.kv.num_groups(); ++g) held.host_blocks.Add(held.kv.view(g), g);
  held.prompt_tables = std::make_unique<PromptTables>(device, plan.prompt_rows, info.max_slots);
  std::vector<StepShape> shapes =
      GraphShapes(plan.max_logits(), std::min(info.max_num_tokens, info.max_seq_len));
  if (model::TakesAdapters(config)) shapes = WithAdapters(std::move(shapes));
  comm::Communicator* const pipeline = with.groups.pipeline;
  ASSIGN_OR_RETURN(held.stage_drafts, StageDrafts::Create(plan, config.part, pipeline, device));
  held.moves_rows_apart = pipeline != nullptr && !pipeline->may_be_recorded();
  held.graphs = std::make_unique<StepGraphs>(
      std::move(shapes), ops::cuda::AsCuda(*held.stream).handle(), std::move(enqueue));
  return Status::Ok();
}

Status LoadSampling(const MemoryPlan& plan, const BackendInfo& info, Device& device, Held& held) {
  ASSIGN_OR_RETURN(held.sampler,
                   decoding::DeviceSampler::Create(device, info.max_slots, info.vocab_size));
  ASSIGN_OR_RETURN(held.masks, LateMasks::Create(plan, device));
  held.to_host = std::make_unique<LogitsToHost>(device, info, plan.max_logits());
  if (plan.drafts != DraftSource::kNone) {
    ASSIGN_OR_RETURN(held.sent_drafts, DraftsToHost::Create(plan, device));
  }
  if (plan.drafts == DraftSource::kSuffix) {
    ASSIGN_OR_RETURN(held.texts, TextDrafts::Create(plan, device));
  }
  return Status::Ok();
}

Status LoadDraftModel(std::shared_ptr<const model::Engine> engine, const ops::OpTable& ops,
                      ops::OpChoice choice, const MemoryPlan& plan, Device& device, Held& held) {
  ASSIGN_OR_RETURN(held.drafts,
                   DraftModel::Create(std::move(engine), ops, choice, plan, *held.stream,
                                      *held.state, *held.sampler, device));
  held.host_blocks.Add(held.drafts->kv());
  return Status::Ok();
}

Status LoadTreeModel(std::shared_ptr<const model::EagleHead> eagle, const ops::OpTable& ops,
                     const MemoryPlan& plan, Device& device, Held& held) {
  ASSIGN_OR_RETURN(held.trees, MakeTreeModel(held.engine, std::move(eagle), ops, plan,
                                             *held.decoder, *held.stream, *held.state, device));
  if (held.trees->kv() != nullptr) held.host_blocks.Add(*held.trees->kv());
  const model::RankPart& part = held.engine->config.part;
  if (part.pp_size == 1 || part.tp_rank > 0) return Status::Ok();
  ASSIGN_OR_RETURN(held.tree_guesses, TreeGuesses::Create(plan, device));  // the leader's
  return Status::Ok();
}

ReleasableParts Held::releasable() const {
  ReleasableParts parts;
  parts.weights = engine->releasable;
  parts.kv_cache.push_back(kv.releasable());
  if (drafts != nullptr) {
    parts.draft_weights = drafts->engine().releasable;
    parts.kv_cache.push_back(drafts->kv_storage().releasable());
  }
  if (trees != nullptr) parts.kv_cache.push_back(trees->kv_memory());
  std::erase(parts.kv_cache, nullptr);
  return parts;
}

model::Batch BatchOf(const Held& held, const StepShape& shape) {
  model::Batch batch = held.state->BatchOf(shape);
  for (int g = 1; g < held.kv.num_groups(); ++g)
    batch.other_groups[static_cast<size_t>(g - 1)].kv = held.kv.view(g);
  batch.moves_rows = !held.moves_rows_apart;
  return batch;
}

Result<StepShape> PrepareStep(const Held& held, const StepPlan& plan, uint64_t step) {
  const cudaStream_t stream = ops::cuda::AsCuda(*held.stream).handle();
  if (held.trees != nullptr) RETURN_IF_ERROR(held.trees->Prepare(plan));
  const auto copies = std::span(plan.copies).first(static_cast<size_t>(plan.num_copies));
  RETURN_IF_ERROR(held.host_blocks.Copy(copies, stream));
  StepShape shape = held.state->Pack(plan, &held.state->arena(step));
  shape.has_adapters = held.adapters->AreIn(plan);
  if (held.trees != nullptr) RETURN_IF_ERROR(held.trees->Draft(plan, step));
  return shape;
}

Status TakeRows(const Held& held, const StepShape& shape) {
  if (!held.moves_rows_apart) return Status::Ok();
  return held.decoder->TakeRows(NumFilledTokens(*held.graphs, shape), *held.stream);
}

Status HandRows(const Held& held, const StepShape& shape) {
  if (!held.moves_rows_apart) return Status::Ok();
  return held.decoder->HandRows(NumFilledTokens(*held.graphs, shape), *held.stream);
}

Status TakeDrafts(const Held& held, const StepPlan& plan) {
  if (held.stage_drafts == nullptr) return Status::Ok();
  return held.stage_drafts->Take(plan, held.state->slots(), *held.stream);
}

decoding::DeviceSampleParams SampleParamsOf(const StepState& state, const StepShape& shape,
                                            StepVariant variant, float* logits) {
  const SlotState& slots = state.slots();
  const StepTensors& tensors = state.tensors();
  return {.row_slots = tensors.logit_slots,
          .row_positions = tensors.logit_positions,
          .row_shifts = tensors.tree_shifts,
          .num_rows = shape.num_logits,
          .logits = logits,
          .any_row_samples = variant == StepVariant::kSampled,
          .tokens = slots.tokens,
          .num_tokens = slots.num_tokens,
          .max_seq_len = slots.max_tokens,
          .ids = tensors.sampled_ids,
          .log_probs = tensors.log_probs,
          .log_probs_all = tensors.log_probs_all};
}

Status PlaceBeams(const Held& held, const BeamMove& move, bool with_tokens,
                  std::vector<kv_cache::BlockCopy>* copies) {
  const cudaStream_t stream = ops::cuda::AsCuda(*held.stream).handle();
  for (int g = 0; g < held.kv.num_groups(); ++g) {
    copies->clear();
    held.state->host_tables(g).Reorder(move.slots, move.parents, move.num_kv_tokens, copies);
    RETURN_IF_ERROR(CopyOpenBlocks(held.kv.view(g), *copies, stream));
  }
  return held.state->PlaceBeams(move.slots, move.tokens, move.num_kv_tokens + 1, with_tokens,
                                stream);
}

StepPlan ScratchPlan(int num_tokens, const BackendInfo& info, const SlotState& slots) {
  StepPlan plan;
  while (plan.num_tokens < num_tokens && plan.num_rows < info.max_batch_size) {
    const int row_tokens = std::min(info.max_seq_len, num_tokens - plan.num_tokens);
    plan.rows[static_cast<size_t>(plan.num_rows++)] = {
        .slot = slots.scratch_slot(), .num_query_tokens = row_tokens, .is_prefill = 1, .yields = 1};
    plan.num_tokens += row_tokens;
  }
  return plan;
}

Status RunAllKinds(int max_num_tokens, const StepGraphs& graphs, const RunOnScratch& run) {
  for (int num_tokens = max_num_tokens; num_tokens > kLeastWarmUpTokens; num_tokens /= 2)
    RETURN_IF_ERROR(run(num_tokens, StepShape{}, StepVariant::kGreedy));
  for (const StepShape& shape : graphs.shapes()) {
    // Kernels of adapters are those of a step of any size.
    if (shape.has_adapters && shape.num_tokens > kLeastWarmUpTokens) continue;
    const int num_prefill_tokens = shape.has_prefill() ? shape.num_tokens : 0;
    RETURN_IF_ERROR(run(num_prefill_tokens, shape, StepVariant::kGreedy));
    RETURN_IF_ERROR(run(num_prefill_tokens, shape, StepVariant::kSampled));
  }
  return Status::Ok();
}

void FinishSteps(std::unique_ptr<Held>& held, int device_index, bool is_stuck) {
  cudaSetDevice(device_index);
  if (is_stuck)
    (void)held.release();
  else if (held->stream != nullptr)
    cudaStreamSynchronize(ops::cuda::AsCuda(*held->stream).handle());
}

}  // namespace inflight::executor::cuda
