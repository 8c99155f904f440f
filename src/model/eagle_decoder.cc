// SPDX-License-Identifier: Apache-2.0
#include "model/eagle_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "model/decoder.h"
#include "model/rope.h"
#include "tensor/element.h"
#include "tensor/tensor_layout.h"

namespace inflight::model {
namespace {

// Row rows[t] of `from` becomes the elements of row t of `to` from `column` on. A null `rows`: row
// t.
void Gather(const TensorView& from, const int32_t* rows, const TensorView& to, int64_t column,
            CpuPool& pool) {
  const int64_t width = from.shape[1];
  const int64_t stride = to.shape[1];
  pool.ParallelFor(to.shape[0], [&](int64_t t) {
    const int64_t begin = (rows == nullptr ? t : rows[t]) * width;
    if (from.dtype == to.dtype) {
      std::memcpy(to.as<std::byte>() + BytesOf(to.dtype, t * stride + column),
                  from.as<const std::byte>() + BytesOf(from.dtype, begin),
                  BytesOf(from.dtype, width));
      return;
    }
    for (int64_t i = 0; i < width; ++i)
      StoreFloat(to.data, to.dtype, t * stride + column + i,
                 LoadFloat(from.data, from.dtype, begin + i));
  });
}

// Of the model's own head, which the head's first version multiplies by, in int8 where it is of
// integers. A part of a model leaves that to its target.
size_t HeadScratchBytes(const EagleConfig& config, const ModelConfig& model, int max_logits) {
  if (config.version != 1 || !model.part.is_whole()) return 0;
  const LinearForm form = FormOfTable(model, model.tied_embeddings ? kEmbeddingStem : kHeadStem);
  return ops::LinearScratchBytes(form.dtype, max_logits, model.hidden_size, form.group_size);
}

// `view`, whose rows have room for more, as `num_rows` rows of `width`.
TensorView As(TensorView view, int64_t num_rows, int64_t width) {
  CHECK_LE(num_rows * width, view.num_elements());
  view.shape = {num_rows, width};
  return view;
}

}  // namespace

struct EagleDecoder::Workspace {
  // "operand" is what linears read: bfloat16 of such a model, else float32.
  TensorView embedding;  // [max_num_tokens, hidden_size] float32
  TensorView residual;   // [max_num_tokens, hidden_size] float32
  TensorView delta;      // [max_num_tokens, hidden_size] float32
  TensorView wide;       // [max_num_tokens, widest input of fc and qkv] operand
  TensorView x;          // [max_num_tokens, hidden_size] operand
  TensorView qkv;        // [max_num_tokens, (num_heads + 2 num_kv_heads) * head_dim] float32
  TensorView q;          // [max_num_tokens, num_heads, head_dim] float32
  TensorView attention;  // [max_num_tokens, num_heads * head_dim] operand
  TensorView inner;      // [max_num_tokens, intermediate_size] operand
  TensorView states;     // [max_logits, hidden_size] float32: whose logits are wanted
  TensorView head_x;     // [max_logits, hidden_size] operand
  TensorView all;        // [max_logits] int32: 0, 1, ...
  TensorView logits;     // [max_logits, draft_vocab_size] float32
  TensorView scratch;    // of the engine's lm_head, where it is of integers; else empty
  TensorView cos_sin;    // [max_seq_len, 2, RotaryDim / 2] float32
};

EagleDecoder::~EagleDecoder() = default;

// Places the workspace from `base` on and returns its size; a null base only measures.
uint64_t EagleDecoder::LayOut(const EagleConfig& config, const ModelConfig& model, int max_seq_len,
                              int max_num_tokens, int max_logits, std::byte* base, Workspace& out) {
  TensorLayout layout(base);
  const ModelConfig& layer = config.layer;
  const DType operand = ActivationDType(layer, DeviceKind::kCpu);
  const int64_t q_width = int64_t{layer.num_heads} * layer.head_dim;
  const int64_t kv_width = int64_t{layer.num_kv_heads} * layer.head_dim;
  out.embedding = layout.Place(DType::kF32, {max_num_tokens, layer.hidden_size});
  out.residual = layout.Place(DType::kF32, {max_num_tokens, layer.hidden_size});
  out.delta = layout.Place(DType::kF32, {max_num_tokens, layer.hidden_size});
  out.wide =
      layout.Place(operand, {max_num_tokens, std::max(config.fc_width(), config.qkv_width())});
  out.x = layout.Place(operand, {max_num_tokens, layer.hidden_size});
  out.qkv = layout.Place(DType::kF32, {max_num_tokens, q_width + 2 * kv_width});
  out.q = layout.Place(DType::kF32, {max_num_tokens, layer.num_heads, layer.head_dim});
  out.attention = layout.Place(operand, {max_num_tokens, q_width});
  out.inner = layout.Place(operand, {max_num_tokens, layer.intermediate_size});
  out.states = layout.Place(DType::kF32, {max_logits, layer.hidden_size});
  out.head_x = layout.Place(operand, {max_logits, layer.hidden_size});
  out.all = layout.Place(DType::kI32, {max_logits});
  out.logits = layout.Place(DType::kF32, {max_logits, config.draft_vocab_size});
  if (const size_t num_bytes = HeadScratchBytes(config, model, max_logits); num_bytes > 0)
    out.scratch = layout.Place(DType::kU8, {static_cast<int64_t>(num_bytes)});
  out.cos_sin = layout.Place(DType::kF32, {max_seq_len, 2, RotaryDim(layer) / 2});
  return layout.num_bytes();
}

uint64_t EagleDecoder::Bytes(const EagleConfig& config, const ModelConfig& model, int max_seq_len,
                             int max_num_tokens, int max_logits) {
  Workspace unused;
  return LayOut(config, model, max_seq_len, max_num_tokens, max_logits, nullptr, unused);
}

Result<std::unique_ptr<EagleDecoder>> EagleDecoder::Create(std::shared_ptr<const EagleHead> head,
                                                           std::shared_ptr<const Engine> engine,
                                                           ops::OpTable ops, Device& device,
                                                           int max_seq_len, int max_num_tokens,
                                                           int max_logits, EagleTarget* target) {
  CHECK(target != nullptr || engine->config.part.is_whole());
  const EagleConfig& config = head->config;
  std::unique_ptr<EagleDecoder> made(new EagleDecoder());
  ASSIGN_OR_RETURN(made->buffer_, Buffer::Allocate(device, "EAGLE head",
                                                   Bytes(config, engine->config, max_seq_len,
                                                         max_num_tokens, max_logits)));
  made->workspace_ = std::make_unique<Workspace>();
  Workspace& w = *made->workspace_;
  LayOut(config, engine->config, max_seq_len, max_num_tokens, max_logits, made->buffer_.data(), w);
  std::iota(w.all.as<int32_t>(), w.all.as<int32_t>() + max_logits, 0);
  RETURN_IF_ERROR(FillRopeTable(config.layer, w.cos_sin, device));
  made->rope_ = {ops::RopeStyle::kNeox, RotaryDim(config.layer), w.cos_sin};
  made->attention_scale_ = 1.0F / std::sqrt(static_cast<float>(config.layer.head_dim));
  made->head_ = std::move(head);
  made->engine_ = std::move(engine);
  made->target_ = target;
  made->ops_ = std::move(ops);
  return made;
}

ops::Norm EagleDecoder::NormOf(const TensorView& weight) const {
  return {ops::NormKind::kRmsNorm, weight, {}, config().layer.norm_eps};
}

// From the pairs to w.residual, and to what q, k and v are projected from: w.x of version 1, w.wide
// of version 3.
Status EagleDecoder::Enter(const EagleBatch& batch, const Workspace& w, Stream& stream) const {
  const EagleWeights& weights = head_->weights;
  const int64_t n = batch.paged.num_tokens;
  const int64_t hidden = config().layer.hidden_size;
  const auto* const rows = batch.rows.as<const int32_t>();
  CpuPool& pool = stream.cpu_pool();
  const TensorView embedding = As(w.embedding, n, hidden);
  const TensorView residual = As(w.residual, n, hidden);
  const TensorView x = As(w.x, n, hidden);
  RETURN_IF_ERROR(target_ != nullptr ? target_->Embed(batch.ids, embedding, stream)
                                     : ops_.embed({.ids = batch.ids,
                                                   .positions = batch.paged.positions,
                                                   .table = engine_->weights.vocab_embedding,
                                                   .position_table = {},
                                                   .y = embedding},
                                                  stream));
  const auto project = [&](const TensorView& input) {
    return ops_.linear(
        {.x = {.values = input}, .weight = weights.fc, .bias = weights.fc_bias, .y = residual},
        stream);
  };
  if (config().version == 1) {
    const TensorView input = As(w.wide, n, 2 * hidden);
    Gather(embedding, nullptr, input, 0, pool);
    Gather(batch.features, rows, input, hidden, pool);
    RETURN_IF_ERROR(project(input));
    Gather(residual, nullptr, x, 0, pool);
    return Status::Ok();
  }
  if (batch.are_own) {
    Gather(batch.features, rows, residual, 0, pool);
  } else {
    const TensorView input = As(w.wide, n, config().fc_width());
    Gather(batch.features, rows, input, 0, pool);
    RETURN_IF_ERROR(project(input));
  }
  const TensorView input = As(w.wide, n, 2 * hidden);
  RETURN_IF_ERROR(ops_.add_norm(
      {.residual = embedding, .delta = {}, .norm = NormOf(weights.layer.input_norm_weight), .y = x},
      stream));
  Gather(x, nullptr, input, 0, pool);
  RETURN_IF_ERROR(ops_.add_norm(
      {.residual = residual, .delta = {}, .norm = NormOf(weights.hidden_norm), .y = x}, stream));
  Gather(x, nullptr, input, hidden, pool);
  return Status::Ok();
}

TensorView EagleDecoder::QueriesOf(int64_t num_tokens) const {
  TensorView q = workspace_->q;
  q.shape = {num_tokens, config().layer.num_heads, config().layer.head_dim};
  return q;
}

Status EagleDecoder::WriteKv(const EagleBatch& batch, const ops::KvCacheView& kv, Stream& stream) {
  const Workspace& w = *workspace_;
  const LayerWeights& layer = head_->weights.layer;
  const ModelConfig& dims = config().layer;
  const int64_t n = batch.paged.num_tokens;
  RETURN_IF_ERROR(Enter(batch, w, stream));
  return ops_.qkv_rope_kv(
      {.x = {.values = config().version == 1 ? As(w.x, n, dims.hidden_size)
                                             : As(w.wide, n, 2 * int64_t{dims.hidden_size})},
       .weight = layer.qkv,
       .bias = layer.qkv_bias,
       .num_heads = dims.num_heads,
       .q_norm = {},
       .k_norm = {},
       .rope = rope_,
       .batch = batch.paged,
       .kv = kv,
       .layer = 0,
       .workspace = As(w.qkv, n, w.qkv.shape[1]),
       .q = QueriesOf(n)},
      stream);
}

Result<TensorView> EagleDecoder::Forward(const EagleBatch& batch, const ops::KvCacheView& kv,
                                         Stream& stream) {
  const Workspace& w = *workspace_;
  const LayerWeights& layer = head_->weights.layer;
  const ModelConfig& dims = config().layer;
  const int64_t n = batch.paged.num_tokens;
  RETURN_IF_ERROR(WriteKv(batch, kv, stream));
  const TensorView residual = As(w.residual, n, dims.hidden_size);
  const TensorView delta = As(w.delta, n, dims.hidden_size);
  const TensorView x = As(w.x, n, dims.hidden_size);
  const TensorView attention = As(w.attention, n, w.attention.shape[1]);
  const TensorView inner = As(w.inner, n, dims.intermediate_size);
  RETURN_IF_ERROR(ops_.attention({.q = QueriesOf(n),
                                  .batch = batch.paged,
                                  .kv = kv,
                                  .layer = 0,
                                  .scale = attention_scale_,
                                  .sliding = batch.sliding,
                                  .y = attention},
                                 stream));
  RETURN_IF_ERROR(ops_.linear(
      {.x = {.values = attention}, .weight = layer.dense, .bias = layer.dense_bias, .y = delta},
      stream));
  RETURN_IF_ERROR(ops_.add_norm(
      {.residual = residual, .delta = delta, .norm = NormOf(layer.post_norm_weight), .y = x},
      stream));
  RETURN_IF_ERROR(ops_.gated_linear({.x = {.values = x},
                                     .gate = layer.fc,  // the names cross: engine.h
                                     .up = layer.gate,
                                     .gate_bias = layer.fc_bias,
                                     .up_bias = layer.gate_bias,
                                     .activation = dims.activation,
                                     .y = inner},
                                    stream));
  RETURN_IF_ERROR(ops_.linear(
      {.x = {.values = inner}, .weight = layer.proj, .bias = layer.proj_bias, .y = delta}, stream));
  stream.cpu_pool().ParallelFor(n, [&](int64_t t) {
    for (int64_t i = t * dims.hidden_size; i < (t + 1) * dims.hidden_size; ++i)
      delta.as<float>()[i] += residual.as<const float>()[i];
  });
  return delta;
}

Result<TensorView> EagleDecoder::Logits(const TensorView& states, const TensorView& rows,
                                        Stream& stream) {
  const Workspace& w = *workspace_;
  const int64_t n = rows.shape[0];
  const int64_t hidden = config().layer.hidden_size;
  const TensorView x = As(w.head_x, n, hidden);
  if (config().version == 1) {
    Gather(states, rows.as<const int32_t>(), x, 0, stream.cpu_pool());
  } else {
    const TensorView picked = As(w.states, n, hidden);
    Gather(states, rows.as<const int32_t>(), picked, 0, stream.cpu_pool());
    RETURN_IF_ERROR(ops_.add_norm(
        {.residual = picked, .delta = {}, .norm = NormOf(head_->weights.final_norm), .y = x},
        stream));
  }
  TensorView all = w.all;
  all.shape = {n};
  const TensorView logits = As(w.logits, n, config().draft_vocab_size);
  if (config().version == 1 && target_ != nullptr) {
    RETURN_IF_ERROR(target_->HeadLogits(x, logits, stream));
    return logits;
  }
  RETURN_IF_ERROR(ops_.lm_head(
      {.x = {.values = x},
       .rows = all,
       .weight = config().version == 1 ? engine_->weights.lm_head : head_->weights.lm_head,
       .bias = config().version == 1 ? engine_->weights.lm_head_bias : TensorView{},
       .logits = logits,
       .scratch = w.scratch},
      stream));
  return logits;
}

}  // namespace inflight::model
