// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/eagle_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "decoding/best_logits.h"
#include "model/rope.h"
#include "ops/cuda/cuda_stream.h"
#include "tensor/tensor_layout.h"

namespace inflight::executor::cuda {
namespace {

using decoding::BestLogits;
using decoding::DeviceSampler;

constexpr int kNoRuleSlot = 0;  // the one slot of the sampler of the best tokens

// Rows of a pass: sequences, or nodes of one depth.
int MaxPassRows(const MemoryPlan& plan) { return plan.max_logits(); }

int MostChoicesOf(const decoding::DraftTree& tree) {
  int most = 0;
  for (int depth = 1; depth <= tree.Depth(tree.size()); ++depth)
    most = std::max(most, tree.NumChoices(depth, tree.size()));
  return most;
}

TensorView FirstOf(TensorView view, int64_t num_rows) {
  view.shape = view.shape.rank() == 1 ? Shape{num_rows} : Shape{num_rows, view.shape[1]};
  return view;
}

// model::KeptResiduals::copy.
Status KeepColumns(const TensorView& residual, const TensorView& states, int64_t column,
                   inflight::Stream& stream) {
  return CopyRows(residual, nullptr, FirstOf(states, residual.shape[0]), column,
                  ops::cuda::AsCuda(stream).handle());
}

}  // namespace

// Places the arrays from `base` on and returns their size; a null base only measures.
uint64_t EagleModel::LayOut(const model::EagleConfig& config, const MemoryPlan& plan,
                            std::byte* base, Arrays* out) {
  TensorLayout layout(base);
  const model::ModelConfig& layer = config.layer;
  const DType dtype = layer.dtype;
  const int64_t hidden = layer.hidden_size;
  const int64_t tokens = plan.max_num_tokens;
  const int64_t rows = MaxPassRows(plan);
  const int64_t step_rows = plan.max_logits() + kFillRows;
  const int64_t num_slots = plan.max_slots + 1;
  const int64_t q_width = int64_t{layer.num_heads} * layer.head_dim;
  const int64_t kv_width = int64_t{layer.num_kv_heads} * layer.head_dim;
  if (!config.target_layers.empty())
    out->kept = layout.Place(dtype, {tokens, config.feature_width()});
  out->last_states = layout.Place(dtype, {num_slots, hidden});
  out->own_states = layout.Place(dtype, {rows, hidden});
  for (TensorView* view : {&out->residual, &out->delta, &out->x})
    *view = layout.Place(dtype, {tokens, hidden});
  out->wide = layout.Place(dtype, {tokens, 2 * hidden});
  out->qkv = layout.Place(dtype, {tokens, q_width + 2 * kv_width});
  if (const int row = model::KvRowDim(layer, DeviceKind::kCuda); row != layer.head_dim)
    out->q = layout.Place(dtype, {tokens, int64_t{layer.num_heads} * row});
  out->attention = layout.Place(dtype, {tokens, q_width});
  out->gate_up = layout.Place(dtype, {tokens, 2 * int64_t{layer.intermediate_size}});
  out->inner = layout.Place(dtype, {tokens, layer.intermediate_size});
  out->normed = layout.Place(dtype, {std::max(num_slots, rows), hidden});
  out->cos_sin = layout.Place(DType::kF32, {plan.max_seq_len, 2, model::RotaryDim(layer) / 2});
  if (config.version == 3) out->logits = layout.Place(DType::kF32, {rows, config.draft_vocab_size});
  const auto best_bytes = static_cast<int64_t>(BestLogits::Bytes(MostChoicesOf(*plan.draft_tree)));
  out->best = layout.Place(DType::kU8, {rows * best_bytes});
  out->token_ids = layout.Place(DType::kI32, {config.draft_vocab_size});
  out->ids = layout.Place(DType::kI32, {tokens});
  out->slot_mapping = layout.Place(DType::kI64, {tokens});
  for (TensorView* view : {&out->positions, &out->feature_rows, &out->all, &out->none})
    *view = layout.Place(DType::kI32, {rows});
  out->cu_seqlens_q = layout.Place(DType::kI32, {rows + 1});
  out->seq_lens_kv = layout.Place(DType::kI32, {step_rows});
  out->table_rows = layout.Place(DType::kI32, {step_rows});
  out->tree_shifts = layout.Place(DType::kU8, {rows, ops::kMaxTreeDepth});
  return layout.num_bytes();
}

uint64_t EagleModel::Bytes(const model::EagleConfig& config, const MemoryPlan& plan) {
  Arrays unused;
  return LayOut(config, plan, nullptr, &unused) +
         DeviceSampler::Bytes(/*max_slots=*/1, config.draft_vocab_size) +
         ops::StreamBytes(DeviceKind::kCuda, model::KernelShape(config.layer), plan.max_num_tokens,
                          plan.max_logits() + kFillRows);
}

Result<std::unique_ptr<EagleModel>> EagleModel::Create(std::shared_ptr<const model::EagleHead> head,
                                                       const model::ModelConfig& target,
                                                       ops::OpTable ops, const MemoryPlan& plan,
                                                       model::Decoder& decoder,
                                                       inflight::Stream& beside,
                                                       const StepState& state, Device& device) {
  CHECK(plan.draft_tree.has_value());
  const model::EagleConfig& config = head->config;
  const model::ModelConfig& layer = config.layer;
  if (BytesOf(layer.dtype, layer.hidden_size) % sizeof(int4) != 0)
    return Unimplemented("draft_model",
                         fmt::format("a GPU moves states of 16 bytes, a hidden_size of {} has "
                                     "others; use --device cpu",
                                     layer.hidden_size));
  std::unique_ptr<EagleModel> made(new EagleModel(state, decoder, beside, *plan.draft_tree));
  Arrays& a = made->arrays_;
  ASSIGN_OR_RETURN(made->buffer_,
                   Buffer::Allocate(device, "EAGLE head", LayOut(config, plan, nullptr, &a)));
  LayOut(config, plan, made->buffer_.data(), &a);
  made->tensors_ = {.ids = a.ids.as<int32_t>(),
                    .positions = a.positions.as<int32_t>(),
                    .slot_mapping = a.slot_mapping.as<int64_t>(),
                    .cu_seqlens_q = a.cu_seqlens_q.as<int32_t>(),
                    .seq_lens_kv = a.seq_lens_kv.as<int32_t>(),
                    .table_rows = a.table_rows.as<int32_t>(),
                    .feature_rows = a.feature_rows.as<int32_t>(),
                    .all = a.all.as<int32_t>(),
                    .none = a.none.as<int32_t>(),
                    .tree_shifts = a.tree_shifts.as<uint8_t>()};
  if (!config.target_layers.empty())
    made->kept_ = {.layers = config.target_layers, .states = a.kept, .copy = KeepColumns};
  made->sliding_ = {.window = plan.window(),
                    .num_sinks = plan.window() == 0 ? 0 : plan.windows.num_sinks};
  const decoding::DraftTree& tree = made->tree_;
  for (int depth = 1; depth <= tree.Depth(tree.size()); ++depth)
    made->num_choices_.push_back(
        std::min(tree.NumChoices(depth, tree.size()), config.draft_vocab_size));
  CHECK_LE(made->num_choices_.size(), static_cast<size_t>(EagleArena::kMaxPasses));
  made->first_children_.assign(static_cast<size_t>(tree.size()), tree.size());
  for (int i = tree.size() - 1; i >= 0; --i)
    if (tree[i].parent >= 0) made->first_children_[static_cast<size_t>(tree[i].parent)] = i;
  const auto choice = target.part.is_whole() ? ops::OpChoice::kFastest : ops::OpChoice::kFixed;
  ASSIGN_OR_RETURN(made->stream_,
                   ops::cuda::CudaStream::Create(device, model::KernelShape(layer),
                                                 plan.max_num_tokens, plan.max_logits() + kFillRows,
                                                 choice, &ops::cuda::AsCuda(beside)));
  ASSIGN_OR_RETURN(made->kv_, KvStorage::Create(KvShape(layer, plan.block_size, DeviceKind::kCuda),
                                                plan.num_blocks + plan.num_scratch_blocks, device,
                                                plan.can_release));
  RETURN_IF_ERROR(model::FillRopeTable(layer, a.cos_sin, device));
  made->rope_ = {ops::RopeStyle::kNeox, model::RotaryDim(layer), a.cos_sin};
  made->attention_scale_ = 1.0F / std::sqrt(static_cast<float>(layer.head_dim));
  const std::vector<int32_t>& token_ids = head->weights.token_ids;
  if (!token_ids.empty())
    RETURN_IF_ERROR(
        device.Copy(a.token_ids.data, token_ids.data(), token_ids.size() * sizeof(int32_t)));
  ASSIGN_OR_RETURN(made->arenas_, PinnedBuffer::Allocate(device, kNumArenas * sizeof(EagleArena)));
  ASSIGN_OR_RETURN(made->best_sampler_,
                   DeviceSampler::Create(device, /*max_slots=*/1, config.draft_vocab_size));
  RETURN_IF_ERROR(made->best_sampler_->Setup(kNoRuleSlot, /*rule=*/{}, /*tokens=*/{}, beside));
  cudaStream_t const handle = ops::cuda::AsCuda(beside).handle();
  RETURN_IF_ERROR(FillRange(made->tensors_.all, 0, MaxPassRows(plan), handle));
  made->head_ = std::move(head);
  made->target_vocab_size_ = target.vocab_size;
  made->ops_ = std::move(ops);
  made->passes_ = std::make_unique<PassGraphs>(
      static_cast<int>(made->num_choices_.size()), MaxPassRows(plan), beside,
      [eagle = made.get()](int pass, int num_rows) { return eagle->Enqueue(pass, num_rows); });
  return made;
}

// From the pairs to arrays_.residual, and to what q, k and v are projected from: the same of
// version 1, arrays_.wide of version 3.
Status EagleModel::Enter(const TensorView& ids, const TensorView& features, const int32_t* rows,
                         bool are_own, int64_t num_tokens) {
  const model::EagleWeights& weights = head_->weights;
  cudaStream_t const handle = ops::cuda::AsCuda(*stream_).handle();
  const int64_t hidden = head_->config.layer.hidden_size;
  const TensorView residual = FirstOf(arrays_.residual, num_tokens);
  const TensorView wide = FirstOf(arrays_.wide, num_tokens);
  const TensorView x = FirstOf(arrays_.x, num_tokens);
  ASSIGN_OR_RETURN(const TensorView embedding, decoder_.Embed(ids, /*y=*/{}, beside_));
  const auto project = [&](const TensorView& input) {
    return ops_.linear(
        {.x = {.values = input}, .weight = weights.fc, .bias = weights.fc_bias, .y = residual},
        *stream_);
  };
  if (head_->config.version == 1) {
    RETURN_IF_ERROR(CopyRows(embedding, nullptr, wide, 0, handle));
    RETURN_IF_ERROR(CopyRows(features, rows, wide, hidden, handle));
    return project(wide);
  }
  if (are_own) {
    RETURN_IF_ERROR(CopyRows(features, rows, residual, 0, handle));
  } else {
    CHECK(rows == nullptr);
    RETURN_IF_ERROR(project(FirstOf(features, num_tokens)));
  }
  RETURN_IF_ERROR(ops_.add_norm(
      {.residual = embedding, .delta = {}, .norm = NormOf(weights.layer.input_norm_weight), .y = x},
      *stream_));
  RETURN_IF_ERROR(CopyRows(x, nullptr, wide, 0, handle));
  RETURN_IF_ERROR(ops_.add_norm(
      {.residual = residual, .delta = {}, .norm = NormOf(weights.hidden_norm), .y = x}, *stream_));
  return CopyRows(x, nullptr, wide, hidden, handle);
}

Status EagleModel::RunLayer(const ops::PagedBatch& paged) {
  const model::LayerWeights& layer = head_->weights.layer;
  const model::ModelConfig& dims = head_->config.layer;
  const int64_t n = paged.num_tokens;
  const TensorView residual = FirstOf(arrays_.residual, n);
  const TensorView delta = FirstOf(arrays_.delta, n);
  const TensorView x = FirstOf(arrays_.x, n);
  const TensorView qkv = FirstOf(arrays_.qkv, n);
  const TensorView attention = FirstOf(arrays_.attention, n);
  const TensorView inner = FirstOf(arrays_.inner, n);
  // In the first columns of qkv, unless its rows are wider than those of the head.
  const bool is_q_in_qkv = arrays_.q.empty();
  const TensorView q = {
      is_q_in_qkv ? qkv.data : arrays_.q.data, qkv.dtype, {n, dims.num_heads, kv_.view().row()}};
  const int64_t q_stride = is_q_in_qkv ? qkv.shape[1] : 0;
  RETURN_IF_ERROR(ops_.plan_attention(
      {.batch = paged, .kv = kv_.view(), .num_heads = dims.num_heads, .sliding = sliding_},
      *stream_));
  RETURN_IF_ERROR(ops_.qkv_rope_kv(
      {.x = {.values = head_->config.version == 1 ? residual : FirstOf(arrays_.wide, n)},
       .weight = layer.qkv,
       .bias = layer.qkv_bias,
       .num_heads = dims.num_heads,
       .q_norm = {},
       .k_norm = {},
       .rope = rope_,
       .batch = paged,
       .kv = kv_.view(),
       .layer = 0,
       .workspace = qkv,
       .q = q,
       .q_stride = q_stride},
      *stream_));
  RETURN_IF_ERROR(ops_.attention({.q = q,
                                  .q_stride = q_stride,
                                  .batch = paged,
                                  .kv = kv_.view(),
                                  .layer = 0,
                                  .scale = attention_scale_,
                                  .sliding = sliding_,
                                  .y = attention},
                                 *stream_));
  RETURN_IF_ERROR(ops_.linear(
      {.x = {.values = attention}, .weight = layer.dense, .bias = layer.dense_bias, .y = delta},
      *stream_));
  RETURN_IF_ERROR(ops_.add_norm(
      {.residual = residual, .delta = delta, .norm = NormOf(layer.post_norm_weight), .y = x},
      *stream_));
  RETURN_IF_ERROR(ops_.gated_linear({.x = {.values = x},
                                     .gate = layer.fc,  // the names cross: engine.h
                                     .up = layer.gate,
                                     .gate_bias = layer.fc_bias,
                                     .up_bias = layer.gate_bias,
                                     .activation = dims.activation,
                                     .y = inner,
                                     .workspace = FirstOf(arrays_.gate_up, n)},
                                    *stream_));
  RETURN_IF_ERROR(ops_.linear(
      {.x = {.values = inner}, .weight = layer.proj, .bias = layer.proj_bias, .y = delta},
      *stream_));
  return ops_.add_norm(
      {.residual = residual, .delta = delta, .norm = {ops::NormKind::kNone, {}, {}}, .y = residual},
      *stream_);
}

Status EagleModel::Forward(const TensorView& ids, const TensorView& features, const int32_t* rows,
                           bool are_own, const ops::PagedBatch& paged) {
  RETURN_IF_ERROR(Enter(ids, features, rows, are_own, paged.num_tokens));
  return RunLayer(paged);
}

Status EagleModel::Choose(int pass, const TensorView& states, const int32_t* rows, int num_rows) {
  const model::EagleConfig& config = head_->config;
  const SlotState& slots = state_.slots();
  const bool is_3 = config.version == 3;
  TensorView x = states;
  if (is_3) {
    x = FirstOf(arrays_.normed, states.shape[0]);
    RETURN_IF_ERROR(ops_.add_norm(
        {.residual = states, .delta = {}, .norm = NormOf(head_->weights.final_norm), .y = x},
        *stream_));
  }
  const TensorView places = {const_cast<int32_t*>(rows), DType::kI32, {num_rows}};
  TensorView logits;
  if (is_3) {
    logits = FirstOf(arrays_.logits, num_rows);
    RETURN_IF_ERROR(ops_.lm_head({.x = {.values = x},
                                  .rows = places,
                                  .weight = head_->weights.lm_head,
                                  .bias = {},
                                  .logits = logits},
                                 *stream_));
  } else {
    ASSIGN_OR_RETURN(logits, decoder_.HeadLogits(x, places, /*logits=*/{}, beside_));
  }
  const int count = num_choices_[static_cast<size_t>(pass)];
  auto* const best = reinterpret_cast<BestLogits*>(arrays_.best.data);
  RETURN_IF_ERROR(best_sampler_->FindBest({.row_slots = tensors_.none,
                                           .row_positions = tensors_.none,
                                           .num_rows = num_rows,
                                           .logits = logits.as<float>(),
                                           .tokens = slots.tokens,
                                           .num_tokens = slots.num_tokens,
                                           .max_seq_len = slots.max_tokens},
                                          count, best, *stream_));
  return PlaceChildren(
      reinterpret_cast<const EagleArena*>(arenas_.data()), pass, slots, best, count,
      head_->weights.token_ids.empty() ? nullptr : arrays_.token_ids.as<const int32_t>(), num_rows,
      ops::cuda::AsCuda(*stream_).handle());
}

Status EagleModel::Enqueue(int pass, int num_rows) {
  const SlotState& slots = state_.slots();
  cudaStream_t const handle = ops::cuda::AsCuda(*stream_).handle();
  RETURN_IF_ERROR(BeginEaglePass(reinterpret_cast<const EagleArena*>(arenas_.data()), pass, slots,
                                 tensors_, target_vocab_size_, num_rows, handle));
  if (pass == 0) return Choose(pass, arrays_.last_states, tensors_.feature_rows, num_rows);
  const ops::PagedBatch paged = {
      .num_rows = num_rows,
      .num_tokens = num_rows,
      .cu_seqlens_q = {tensors_.cu_seqlens_q, DType::kI32, {num_rows + 1}},
      .seq_lens_kv = {tensors_.seq_lens_kv, DType::kI32, {num_rows}},
      .positions = {tensors_.positions, DType::kI32, {num_rows}},
      .slot_mapping = {tensors_.slot_mapping, DType::kI64, {num_rows}},
      .block_tables = {slots.block_tables, DType::kI32, {slots.num_slots, slots.max_blocks}},
      .tree_shifts = {tensors_.tree_shifts, DType::kU8, {num_rows, ops::kMaxTreeDepth}},
      .num_decode_rows = num_rows,
      .table_rows = {tensors_.table_rows, DType::kI32, {num_rows}}};
  RETURN_IF_ERROR(Forward({tensors_.ids, DType::kI32, {num_rows}},
                          pass == 1 ? arrays_.last_states : arrays_.own_states,
                          tensors_.feature_rows, /*are_own=*/true, paged));
  const TensorView states = FirstOf(arrays_.own_states, num_rows);
  RETURN_IF_ERROR(CopyRows(FirstOf(arrays_.residual, num_rows), nullptr, states, 0, handle));
  return Choose(pass, states, tensors_.all, num_rows);
}

Status EagleModel::WarmUp(bool use_graphs, bool records_all, logging::Level level) {
  return passes_->WarmUp(use_graphs, records_all, level);
}

// A node's feature is in the row that its parent has in the pass before.
void EagleModel::Pack(const scheduler::StepPlan& plan, EagleArena* arena) {
  const auto rows = std::span(plan.rows).first(static_cast<size_t>(plan.num_decode_rows));
  int num_rows = 0;
  for (int pass = 0; pass < passes_->size(); ++pass) {
    const int begin = arena->begins[pass] = num_rows;
    size_t entry = 0;
    for (const scheduler::PlanRow& row : rows) {
      const int num_nodes = row.num_draft_tokens;
      if (num_nodes == 0) continue;
      if (entry == rows_of_.size()) rows_of_.emplace_back();
      auto& rows_of = rows_of_[entry++];
      const auto add = [&](int draft, int feature) {
        rows_of[static_cast<size_t>(draft)] = num_rows - begin;
        arena->rows[num_rows++] = {.slot = static_cast<uint16_t>(row.slot),
                                   .draft = static_cast<uint8_t>(draft),
                                   .num_nodes = static_cast<uint8_t>(num_nodes),
                                   .feature = feature};
      };
      if (pass == 0) add(/*draft=*/0, row.slot);
      for (int node = 0; node < num_nodes; ++node)
        if (tree_[node].depth == pass && first_children_[static_cast<size_t>(node)] < num_nodes)
          add(node + 1,
              pass == 1 ? row.slot : rows_of[static_cast<size_t>(tree_[node].parent + 1)]);
    }
  }
  arena->begins[passes_->size()] = num_rows;
}

Status EagleModel::Draft(const scheduler::StepPlan& plan, uint64_t step) {
  EagleArena& arena = reinterpret_cast<EagleArena*>(arenas_.data())[step % kNumArenas];
  Pack(plan, &arena);
  for (int pass = 0; pass < passes_->size(); ++pass) {
    const int num_rows = arena.begins[pass + 1] - arena.begins[pass];
    if (num_rows == 0) break;
    RETURN_IF_ERROR(passes_->Run(pass, num_rows));
  }
  return Status::Ok();
}

Status EagleModel::Settle(const KvStorage& kv, const TensorView& states, const StepShape& shape) {
  cudaStream_t const handle = ops::cuda::AsCuda(*stream_).handle();
  const SlotState& slots = state_.slots();
  const StepTensors& step = state_.tensors();
  if (shape.num_logits > 0) {
    RETURN_IF_ERROR(AcceptTrees(slots, step, shape.num_logits, handle));
    RETURN_IF_ERROR(MoveAcceptedOfAll(kv, state_, shape.num_logits, handle));
  }
  RETURN_IF_ERROR(BeginFollow(slots, step, tensors_, shape.num_decode_rows, shape.num_rows,
                              shape.num_tokens, target_vocab_size_, handle));
  ops::PagedBatch paged = state_.BatchOf(shape).paged;
  paged.seq_lens_kv.data = tensors_.seq_lens_kv;
  paged.slot_mapping.data = tensors_.slot_mapping;
  paged.table_rows.data = tensors_.table_rows;
  paged.tree_shifts = {};
  TensorView features = kept_.layers.empty() ? states : kept_.states;
  features.shape = {shape.num_tokens, features.shape[1]};
  RETURN_IF_ERROR(Forward({tensors_.ids, DType::kI32, {shape.num_tokens}}, features,
                          /*rows=*/nullptr, /*are_own=*/false, paged));
  if (shape.num_logits == 0) return Status::Ok();
  const auto row_bytes =
      static_cast<int64_t>(BytesOf(arrays_.last_states.dtype, arrays_.last_states.shape[1]));
  return KeepStates(step, shape.num_logits, arrays_.residual.as<const std::byte>(),
                    arrays_.last_states.as<std::byte>(), row_bytes, handle);
}

}  // namespace inflight::executor::cuda
