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
  const int64_t num_slots = plan.max_slots + 1;
  const int64_t q_width = int64_t{layer.num_heads} * layer.head_dim;
  const int64_t kv_width = int64_t{layer.num_kv_heads} * layer.head_dim;
  if (!config.target_layers.empty())
    out->kept = layout.Place(dtype, {tokens, config.feature_width()});
  out->ring = layout.Place(dtype, {num_slots * kEagleRing, config.feature_width()});
  for (TensorView* view : {&out->own_states, &out->delta, &out->normed})
    *view = layout.Place(dtype, {rows, hidden});
  for (TensorView* view : {&out->residual, &out->x}) *view = layout.Place(dtype, {tokens, hidden});
  out->wide = layout.Place(dtype, {tokens, 2 * hidden});
  out->qkv = layout.Place(dtype, {tokens, q_width + 2 * kv_width});
  if (const int row = model::KvRowDim(layer, DeviceKind::kCuda); row != layer.head_dim)
    out->q = layout.Place(dtype, {tokens, int64_t{layer.num_heads} * row});
  out->attention = layout.Place(dtype, {rows, q_width});
  out->gate_up = layout.Place(dtype, {rows, 2 * int64_t{layer.intermediate_size}});
  out->inner = layout.Place(dtype, {rows, layer.intermediate_size});
  out->cos_sin = layout.Place(DType::kF32, {plan.max_seq_len, 2, model::RotaryDim(layer) / 2});
  if (config.version == 3) out->logits = layout.Place(DType::kF32, {rows, config.draft_vocab_size});
  const auto best_bytes = static_cast<int64_t>(BestLogits::Bytes(MostChoicesOf(*plan.draft_tree)));
  out->best = layout.Place(DType::kU8, {rows * best_bytes});
  out->token_ids = layout.Place(DType::kI32, {config.draft_vocab_size});
  out->ids = layout.Place(DType::kI32, {tokens});
  out->slot_mapping = layout.Place(DType::kI64, {tokens});
  for (TensorView* view : {&out->positions, &out->feature_rows, &out->all, &out->none,
                           &out->seq_lens_kv, &out->table_rows})
    *view = layout.Place(DType::kI32, {rows});
  out->cu_seqlens_q = layout.Place(DType::kI32, {rows + 1});
  out->tree_shifts = layout.Place(DType::kU8, {rows, ops::kMaxTreeDepth});
  out->first_kept = layout.Place(DType::kI32, {num_slots});
  return layout.num_bytes();
}

uint64_t EagleModel::Bytes(const model::EagleConfig& config, const MemoryPlan& plan) {
  Arrays unused;
  return LayOut(config, plan, nullptr, &unused) +
         DeviceSampler::Bytes(/*max_slots=*/1, config.draft_vocab_size) +
         ops::StreamBytes(DeviceKind::kCuda, model::KernelShape(config.layer), plan.max_num_tokens,
                          plan.max_logits() + kFillRows);
}

EagleModel::EagleModel(const StepState& state, model::Decoder& decoder, inflight::Stream& beside,
                       const MemoryPlan& plan)
    : state_(state),
      decoder_(decoder),
      beside_(beside),
      tree_(*plan.draft_tree),
      pending_(plan.max_slots + 1, tree_, kEagleRing, MaxPassRows(plan), plan.window() > 0) {}

Result<std::unique_ptr<EagleModel>> EagleModel::Create(std::shared_ptr<const model::EagleHead> head,
                                                       const model::ModelConfig& target,
                                                       ops::OpTable ops, const MemoryPlan& plan,
                                                       model::Decoder& decoder,
                                                       inflight::Stream& beside,
                                                       const StepState& state, Device& device) {
  CHECK(plan.draft_tree.has_value());
  const model::EagleConfig& config = head->config;
  CHECK(config.has_table || target.part.is_first_stage());
  const model::ModelConfig& layer = config.layer;
  if (BytesOf(layer.dtype, layer.hidden_size) % sizeof(int4) != 0)
    return Unimplemented("draft_model",
                         fmt::format("a GPU moves states of 16 bytes, a hidden_size of {} has "
                                     "others; use --device cpu",
                                     layer.hidden_size));
  std::unique_ptr<EagleModel> made(new EagleModel(state, decoder, beside, plan));
  Arrays& a = made->arrays_;
  ASSIGN_OR_RETURN(made->buffer_,
                   Buffer::Allocate(device, "EAGLE head", LayOut(config, plan, nullptr, &a)));
  LayOut(config, plan, made->buffer_.data(), &a);
  made->sliding_ = {.window = plan.window(),
                    .num_sinks = plan.window() == 0 ? 0 : plan.windows.num_sinks};
  made->tensors_ = {.ids = a.ids.as<int32_t>(),
                    .positions = a.positions.as<int32_t>(),
                    .slot_mapping = a.slot_mapping.as<int64_t>(),
                    .cu_seqlens_q = a.cu_seqlens_q.as<int32_t>(),
                    .seq_lens_kv = a.seq_lens_kv.as<int32_t>(),
                    .table_rows = a.table_rows.as<int32_t>(),
                    .feature_rows = a.feature_rows.as<int32_t>(),
                    .all = a.all.as<int32_t>(),
                    .none = a.none.as<int32_t>(),
                    .tree_shifts = a.tree_shifts.as<uint8_t>(),
                    .first_kept = a.first_kept.as<int32_t>(),
                    .sliding = made->sliding_};
  if (!config.target_layers.empty())
    made->kept_ = {.layers = config.target_layers, .states = a.kept, .copy = KeepColumns};
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
  RETURN_IF_ERROR(FillRange(made->tensors_.first_kept, 0, plan.max_slots + 1, handle));
  made->head_ = std::move(head);
  made->target_vocab_size_ = target.vocab_size;
  made->ops_ = std::move(ops);
  made->passes_ = std::make_unique<PassGraphs>(
      static_cast<int>(made->num_choices_.size()), MaxPassRows(plan), beside,
      [eagle = made.get()](int pass, int num_rows) { return eagle->Enqueue(pass, num_rows); });
  return made;
}

Result<TensorView> EagleModel::Embed(const TensorView& ids, const TensorView& y) {
  if (!head_->config.has_table) return decoder_.Embed(ids, /*y=*/{}, beside_);
  RETURN_IF_ERROR(ops_.embed(
      {.ids = ids, .positions = {}, .table = head_->weights.table, .position_table = {}, .y = y},
      *stream_));
  return y;
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
  ASSIGN_OR_RETURN(const TensorView embedding, Embed(ids, x));
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
  } else if (rows == nullptr) {
    RETURN_IF_ERROR(project(FirstOf(features, num_tokens)));
  } else {  // between steps nothing is kept of one
    const TensorView gathered = FirstOf(arrays_.kept, num_tokens);
    RETURN_IF_ERROR(CopyRows(features, rows, gathered, 0, handle));
    RETURN_IF_ERROR(project(gathered));
  }
  RETURN_IF_ERROR(ops_.add_norm(
      {.residual = embedding, .delta = {}, .norm = NormOf(weights.layer.input_norm_weight), .y = x},
      *stream_));
  RETURN_IF_ERROR(CopyRows(x, nullptr, wide, 0, handle));
  RETURN_IF_ERROR(ops_.add_norm(
      {.residual = residual, .delta = {}, .norm = NormOf(weights.hidden_norm), .y = x}, *stream_));
  return CopyRows(x, nullptr, wide, hidden, handle);
}

// In the first columns of qkv, unless its rows are wider than those of the head.
TensorView EagleModel::QueriesOf(int64_t num_tokens) const {
  const TensorView& q = arrays_.q.empty() ? arrays_.qkv : arrays_.q;
  return {q.data, q.dtype, {num_tokens, head_->config.layer.num_heads, kv_.view().row()}};
}

int64_t EagleModel::QueryStride() const { return arrays_.q.empty() ? arrays_.qkv.shape[1] : 0; }

// Of what Enter left.
Status EagleModel::WriteKv(const ops::PagedBatch& paged) {
  const model::LayerWeights& layer = head_->weights.layer;
  const int64_t n = paged.num_tokens;
  const bool is_1 = head_->config.version == 1;
  return ops_.qkv_rope_kv({.x = {.values = FirstOf(is_1 ? arrays_.residual : arrays_.wide, n)},
                           .weight = layer.qkv,
                           .bias = layer.qkv_bias,
                           .num_heads = head_->config.layer.num_heads,
                           .q_norm = {},
                           .k_norm = {},
                           .rope = rope_,
                           .batch = paged,
                           .kv = kv_.view(),
                           .layer = 0,
                           .workspace = FirstOf(arrays_.qkv, n),
                           .q = QueriesOf(n),
                           .q_stride = QueryStride()},
                          *stream_);
}

Status EagleModel::RunLayer(const ops::PagedBatch& paged) {
  const model::LayerWeights& layer = head_->weights.layer;
  const model::ModelConfig& dims = head_->config.layer;
  const int64_t n = paged.num_tokens;
  const TensorView residual = FirstOf(arrays_.residual, n);
  const TensorView delta = FirstOf(arrays_.delta, n);
  const TensorView x = FirstOf(arrays_.x, n);
  const TensorView attention = FirstOf(arrays_.attention, n);
  const TensorView inner = FirstOf(arrays_.inner, n);
  RETURN_IF_ERROR(ops_.plan_attention(
      {.batch = paged, .kv = kv_.view(), .num_heads = dims.num_heads, .sliding = sliding_},
      *stream_));
  RETURN_IF_ERROR(WriteKv(paged));
  RETURN_IF_ERROR(ops_.attention({.q = QueriesOf(n),
                                  .q_stride = QueryStride(),
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

Status EagleModel::WritePairs(const TensorView& ids, const TensorView& features,
                              const int32_t* rows, const ops::PagedBatch& paged) {
  RETURN_IF_ERROR(Enter(ids, features, rows, /*are_own=*/false, paged.num_tokens));
  return WriteKv(paged);
}

// The tokens of a pass.
ops::PagedBatch EagleModel::TokensOf(int num_tokens) const {
  const SlotState& slots = state_.slots();
  return {.num_rows = num_tokens,
          .num_tokens = num_tokens,
          .cu_seqlens_q = {tensors_.cu_seqlens_q, DType::kI32, {num_tokens + 1}},
          .seq_lens_kv = {tensors_.seq_lens_kv, DType::kI32, {num_tokens}},
          .positions = {tensors_.positions, DType::kI32, {num_tokens}},
          .slot_mapping = {tensors_.slot_mapping, DType::kI64, {num_tokens}},
          .block_tables = {slots.block_tables, DType::kI32, {slots.num_slots, slots.max_blocks}},
          .tree_shifts = {tensors_.tree_shifts, DType::kU8, {num_tokens, ops::kMaxTreeDepth}},
          .num_decode_rows = num_tokens,
          .table_rows = {tensors_.table_rows, DType::kI32, {num_tokens}}};
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

Status EagleModel::WriteLastPairs(const LastPairs& pairs, int num_rows) {
  RETURN_IF_ERROR(BeginLastPairs(pairs, state_.slots(), tensors_, target_vocab_size_, num_rows,
                                 ops::cuda::AsCuda(*stream_).handle()));
  return WritePairs({tensors_.ids, DType::kI32, {num_rows}}, arrays_.ring, tensors_.feature_rows,
                    TokensOf(num_rows));
}

Status EagleModel::WriteLastPairs(std::span<const PendingPairs::OfSlot> pairs) {
  LastPairs some;
  const auto write = [&]() -> Status {
    if (some.num_slots == 0) return Status::Ok();
    RETURN_IF_ERROR(WriteLastPairs(some, some.num_rows()));
    some.num_slots = 0;
    return Status::Ok();
  };
  for (const auto& [slot, num_pairs] : pairs) {
    for (int left = num_pairs; left > 0;) {
      if (some.num_slots == LastPairs::kMaxSlots || some.num_rows() == max_rows())
        RETURN_IF_ERROR(write());
      const int count = std::min(left, max_rows() - some.num_rows());
      left -= count;
      const int end = some.num_rows() + count;
      some.slots[some.num_slots++] = {.slot = static_cast<uint16_t>(slot),
                                      .end = static_cast<uint16_t>(end),
                                      .back = static_cast<uint16_t>(left)};
    }
  }
  return write();
}

Status EagleModel::Enqueue(int pass, int num_rows) {
  const SlotState& slots = state_.slots();
  cudaStream_t const handle = ops::cuda::AsCuda(*stream_).handle();
  RETURN_IF_ERROR(BeginEaglePass(reinterpret_cast<const EagleArena*>(arenas_.data()), pass, slots,
                                 tensors_, target_vocab_size_, num_rows, handle));
  RETURN_IF_ERROR(Forward({tensors_.ids, DType::kI32, {num_rows}},
                          pass == 0 ? arrays_.ring : arrays_.own_states, tensors_.feature_rows,
                          /*are_own=*/pass > 0, TokensOf(num_rows)));
  const TensorView states = FirstOf(arrays_.own_states, num_rows);
  RETURN_IF_ERROR(CopyRows(FirstOf(arrays_.residual, num_rows), nullptr, states, 0, handle));
  return Choose(pass, states, tensors_.all, num_rows);
}

Status EagleModel::WarmUp(bool use_graphs, bool records_all, logging::Level level) {
  for (int num_rows = max_rows(); num_rows > 0; num_rows /= 2)
    RETURN_IF_ERROR(WriteLastPairs(LastPairs{}, num_rows));
  return passes_->WarmUp(use_graphs, records_all, level);
}

Status EagleModel::SetUp(const SlotSetup& setup) {
  std::vector<PendingPairs::OfSlot> left;
  const auto set_up = [&](scheduler::SlotId slot) {
    const int num_pairs = pending_.SetUp(slot, /*is_followed=*/setup.beam_slots.empty());
    if (num_pairs > 0) left.push_back({slot, num_pairs});
  };
  if (setup.beam_slots.empty()) set_up(setup.slot);
  for (const scheduler::SlotId beam : setup.beam_slots) set_up(beam);
  return WriteLastPairs(left);
}

Status EagleModel::Prepare(const scheduler::StepPlan& plan) {
  return WriteLastPairs(pending_.Plan(plan));
}

// A node's feature is in the row that its parent has in the pass before.
void EagleModel::Pack(const scheduler::StepPlan& plan, EagleArena* arena) {
  const auto rows = std::span(plan.rows).first(static_cast<size_t>(plan.num_decode_rows));
  int num_rows = 0;
  const auto add = [&](const scheduler::PlanRow& row, int draft, int num_nodes, int feature) {
    arena->rows[num_rows++] = {.slot = static_cast<uint16_t>(row.slot),
                               .draft = static_cast<uint8_t>(draft),
                               .num_nodes = static_cast<uint8_t>(num_nodes),
                               .feature = feature};
  };
  for (int pass = 0; pass < passes_->size(); ++pass) {
    const int begin = arena->begins[pass] = num_rows;
    size_t entry = 0;
    for (const scheduler::PlanRow& row : rows) {
      const int num_nodes = row.num_draft_tokens;
      if (num_nodes == 0) continue;
      if (entry == rows_of_.size()) rows_of_.emplace_back();
      auto& rows_of = rows_of_[entry++];
      if (pass == 0) {
        rows_of[0] = num_rows - begin;
        add(row, /*draft=*/0, num_nodes, /*feature=*/0);
      }
      for (int node = 0; node < num_nodes; ++node) {
        if (tree_[node].depth != pass || first_children_[static_cast<size_t>(node)] >= num_nodes)
          continue;
        rows_of[static_cast<size_t>(node + 1)] = num_rows - begin;
        add(row, node + 1, num_nodes, rows_of[static_cast<size_t>(tree_[node].parent + 1)]);
      }
    }
    if (pass > 0) continue;
    for (const scheduler::PlanRow& row : rows)
      for (int back = row.num_draft_tokens == 0 ? 0 : pending_.Before(row.slot); back > 0; --back)
        add(row, /*draft=*/0, /*num_nodes=*/0, back);
  }
  arena->begins[passes_->size()] = num_rows;
}

Status EagleModel::Draft(const scheduler::StepPlan& plan, uint64_t step) {
  EagleArena& arena = reinterpret_cast<EagleArena*>(arenas_.data())[step % kNumArenas];
  Pack(plan, &arena);
  pending_.Settle(plan);
  // A node's key may be the first of a block.
  if (arena.begins[1] > 0 && plan.num_updates > 0)
    RETURN_IF_ERROR(state_.ApplyTables(ops::cuda::AsCuda(*stream_).handle()));
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
  const TensorView& features = kept_.layers.empty() ? states : kept_.states;
  RETURN_IF_ERROR(KeepFeatures(slots, step, tensors_, features, arrays_.ring, shape.num_decode_rows,
                               shape.num_rows, handle));
  if (!shape.has_prefill()) return Status::Ok();
  RETURN_IF_ERROR(BeginPrompts(slots, step, tensors_, shape.num_decode_rows, shape.num_rows,
                               shape.num_tokens, target_vocab_size_, handle));
  ops::PagedBatch paged = state_.BatchOf(shape).paged;
  paged.slot_mapping.data = tensors_.slot_mapping;
  paged.tree_shifts = {};
  return WritePairs({tensors_.ids, DType::kI32, {shape.num_tokens}},
                    FirstOf(features, shape.num_tokens), /*rows=*/nullptr, paged);
}

}  // namespace inflight::executor::cuda
