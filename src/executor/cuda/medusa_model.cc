// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/medusa_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "decoding/best_logits.h"
#include "model/decoder.h"
#include "ops/cuda/cuda_stream.h"
#include "tensor/tensor_layout.h"

namespace inflight::executor::cuda {
namespace {

using decoding::BestLogits;
using decoding::DeviceSampler;

constexpr int kNoRule = 0;  // the one slot of the heads' sampler

// Sequences with a node each, at most.
int MaxHeadRows(const MemoryPlan& plan) { return std::min(plan.max_batch_size, plan.max_logits()); }

int MostChoices(const decoding::DraftTree& tree) {
  int most = 0;
  for (int depth = 1; depth <= tree.Depth(tree.size()); ++depth)
    most = std::max(most, tree.NumChoices(depth, tree.size()));
  return most;
}

struct HeadArrays {
  TensorView states, x, operand, delta, all, none, logits, best;
};

// Places the arrays from `base` on and returns their size; a null base only measures.
uint64_t PlaceHeads(const model::ModelConfig& config, const MemoryPlan& plan, std::byte* base,
                    HeadArrays* out) {
  TensorLayout layout(base);
  const DType dtype = config.dtype;
  const int64_t rows = MaxHeadRows(plan);
  const Shape hidden = {rows, config.hidden_size};
  out->states = layout.Place(dtype, {plan.max_slots + 1, config.hidden_size});
  out->x = layout.Place(DType::kF32, hidden);
  out->operand = layout.Place(dtype, hidden);
  out->delta = layout.Place(DType::kF32, hidden);
  out->all = layout.Place(DType::kI32, {rows});
  out->none = layout.Place(DType::kI32, {rows});
  out->logits = layout.Place(DType::kF32, {rows, config.vocab_size});
  const auto best_bytes = static_cast<int64_t>(BestLogits::Bytes(MostChoices(*plan.draft_tree)));
  out->best = layout.Place(DType::kU8, {rows * best_bytes});
  return layout.num_bytes();
}

TensorView RowsOf(TensorView view, int64_t num_rows) {
  view.shape = view.shape.rank() == 1 ? Shape{num_rows} : Shape{num_rows, view.shape[1]};
  return view;
}

}  // namespace

uint64_t MedusaModel::Bytes(const model::ModelConfig& config, const MemoryPlan& plan) {
  HeadArrays unused;
  const int max_rows = MaxHeadRows(plan);
  const uint64_t of_rank =
      config.part.is_whole()
          ? 0
          : ops::StreamBytes(DeviceKind::kCuda, model::KernelShape(config), max_rows, max_rows);
  return PlaceHeads(config, plan, nullptr, &unused) +
         DeviceSampler::Bytes(/*max_slots=*/1, config.vocab_size) + of_rank;
}

Result<std::unique_ptr<MedusaModel>> MedusaModel::Create(
    std::shared_ptr<const model::Engine> engine, ops::OpTable ops, const MemoryPlan& plan,
    inflight::Stream& stream, const StepState& state, Device& device) {
  CHECK(plan.draft_tree.has_value());
  const model::ModelConfig& config = engine->config;
  if (BytesOf(config.dtype, config.hidden_size) % sizeof(int4) != 0)
    return Unimplemented("speculation",
                         fmt::format("a GPU moves states of 16 bytes, a hidden_size of {} has "
                                     "others; use --speculation none",
                                     config.hidden_size));
  std::unique_ptr<MedusaModel> made(new MedusaModel(state, stream, *plan.draft_tree));
  const decoding::DraftTree& tree = made->tree_;
  const int max_rows = MaxHeadRows(plan);
  HeadArrays arrays;
  ASSIGN_OR_RETURN(made->buffer_, Buffer::Allocate(device, "Medusa's heads",
                                                   PlaceHeads(config, plan, nullptr, &arrays)));
  PlaceHeads(config, plan, made->buffer_.data(), &arrays);
  made->states_ = arrays.states;
  made->x_ = arrays.x;
  made->operand_ = arrays.operand;
  made->delta_ = arrays.delta;
  made->all_ = arrays.all;
  made->none_ = arrays.none;
  made->logits_ = arrays.logits;
  made->best_ = arrays.best.as<std::byte>();
  for (int depth = 1; depth <= tree.Depth(tree.size()); ++depth)
    made->num_choices_.push_back(std::min(tree.NumChoices(depth, tree.size()), config.vocab_size));
  ASSIGN_OR_RETURN(made->arenas_, PinnedBuffer::Allocate(device, kNumArenas * sizeof(MedusaArena)));
  ASSIGN_OR_RETURN(made->best_sampler_,
                   DeviceSampler::Create(device, /*max_slots=*/1, config.vocab_size));
  RETURN_IF_ERROR(made->best_sampler_->Setup(kNoRule, /*rule=*/{}, /*tokens=*/{}, stream));
  cudaStream_t const handle = ops::cuda::AsCuda(stream).handle();
  RETURN_IF_ERROR(FillRange(made->all_.as<int32_t>(), 0, max_rows, handle));
  if (!config.part.is_whole()) {
    ASSIGN_OR_RETURN(made->rank_stream_, ops::cuda::CudaStream::Create(
                                             device, model::KernelShape(config), max_rows, max_rows,
                                             ops::OpChoice::kFixed, &ops::cuda::AsCuda(stream)));
  }
  made->engine_ = std::move(engine);
  made->ops_ = std::move(ops);
  made->passes_ = std::make_unique<PassGraphs>(
      static_cast<int>(made->num_choices_.size()), max_rows, stream,
      [heads = made.get()](int head, int num_rows) { return heads->Enqueue(head, num_rows); });
  return made;
}

// Each of the heads begins with the states again.
Status MedusaModel::Enqueue(int head, int num_rows) {
  cudaStream_t const handle = ops::cuda::AsCuda(stream_).handle();
  const auto* const arenas = reinterpret_cast<const MedusaArena*>(arenas_.data());
  const SlotState& slots = state_.slots();
  const model::MedusaHeadWeights& weights =
      engine_->weights.medusa_heads[static_cast<size_t>(head)];
  const TensorView x = RowsOf(x_, num_rows);
  const TensorView operand = RowsOf(operand_, num_rows);
  const TensorView delta = RowsOf(delta_, num_rows);
  RETURN_IF_ERROR(GatherStates(arenas, slots, states_, x, operand, handle));
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    RETURN_IF_ERROR(ops_.linear({.x = {.values = operand},
                                 .weight = weights.layers[l],
                                 .bias = weights.layer_biases[l],
                                 .activation = ops::ActivationKind::kSilu,
                                 .y = delta},
                                stream()));
    RETURN_IF_ERROR(AddBlock(x, delta, operand, handle));
  }
  const TensorView logits = RowsOf(logits_, num_rows);
  RETURN_IF_ERROR(ops_.lm_head({.x = {.values = operand},
                                .rows = RowsOf(all_, num_rows),
                                .weight = weights.lm_head,
                                .bias = {},
                                .logits = logits},
                               stream()));
  const int count = num_choices_[static_cast<size_t>(head)];
  auto* const best = reinterpret_cast<BestLogits*>(best_);
  RETURN_IF_ERROR(best_sampler_->FindBest({.row_slots = none_.as<const int32_t>(),
                                           .row_positions = none_.as<const int32_t>(),
                                           .num_rows = num_rows,
                                           .logits = logits.as<float>(),
                                           .tokens = slots.tokens,
                                           .num_tokens = slots.num_tokens,
                                           .max_seq_len = slots.max_tokens},
                                          count, best, stream_));
  return PlaceNodes(arenas, slots, best, count, /*depth=*/head + 1, num_rows, handle);
}

Status MedusaModel::WarmUp(bool use_graphs, bool records_all, logging::Level level) {
  return passes_->WarmUp(use_graphs, records_all, level);
}

Status MedusaModel::Draft(const scheduler::StepPlan& plan, uint64_t step) {
  MedusaArena& arena = reinterpret_cast<MedusaArena*>(arenas_.data())[step % kNumArenas];
  arena.num_entries = 0;
  int num_nodes = 0;
  for (int r = 0; r < plan.num_decode_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    if (row.num_draft_tokens == 0) continue;
    arena.entries[arena.num_entries++] = {.slot = static_cast<uint16_t>(row.slot),
                                          .num_nodes = row.num_draft_tokens};
    num_nodes = std::max(num_nodes, int{row.num_draft_tokens});
  }
  if (arena.num_entries == 0) return Status::Ok();
  for (int head = 0; head < tree_.Depth(num_nodes); ++head)
    RETURN_IF_ERROR(passes_->Run(head, arena.num_entries));
  return Status::Ok();
}

Status MedusaModel::Settle(const KvStorage& kv, const TensorView& states, const StepShape& shape) {
  const int num_logits = shape.num_logits;
  if (num_logits == 0) return Status::Ok();
  CHECK(states.dtype == states_.dtype);
  cudaStream_t const handle = ops::cuda::AsCuda(stream_).handle();
  const StepTensors& tensors = state_.tensors();
  const auto row_bytes = static_cast<int64_t>(BytesOf(states_.dtype, states_.shape[1]));
  RETURN_IF_ERROR(AcceptTrees(state_.slots(), tensors, num_logits, handle));
  RETURN_IF_ERROR(MoveAcceptedOfAll(kv, state_, num_logits, handle));
  return KeepStates(tensors, num_logits, states.as<const std::byte>(), states_.as<std::byte>(),
                    row_bytes, handle);
}

}  // namespace inflight::executor::cuda
