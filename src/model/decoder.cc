// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "model/rope.h"

namespace inflight::model {
namespace {

constexpr uint64_t kAlignment = 64;

// What one step computes in, reused by every layer. Views of the largest step; Rows() cuts them.
struct Workspace {
  TensorView residual;   // [max_num_tokens, hidden_size] float32
  TensorView delta;      // [max_num_tokens, hidden_size] float32
  TensorView x;          // [max_num_tokens, hidden_size] activation dtype
  TensorView qkv;        // [max_num_tokens, (num_heads + 2 num_kv_heads) * head_dim] float32
  TensorView q;          // [max_num_tokens, num_heads, head_dim] float32
  TensorView attention;  // [max_num_tokens, num_heads * head_dim] activation dtype
  TensorView inner;      // [max_num_tokens, intermediate_size] activation dtype
  TensorView logits;     // [max_logits, vocab_size] float32
  TensorView scratch;    // [LinearScratchBytes of the widest linear] uint8; empty for float weights
  TensorView cos_sin;    // [max_seq_len, 2, head_dim / 2] float32; rotary models only
};

// What linear operators read beside weights of `dtype` (ops/linear.h); int8 ones read it too.
DType ActivationDType(DType dtype) { return dtype == DType::kBF16 ? DType::kBF16 : DType::kF32; }

// Places the workspace from `base` on and returns its size; a null base only measures.
uint64_t LayOut(const ModelConfig& config, int max_seq_len, int max_num_tokens, int max_logits,
                std::byte* base, Workspace& out) {
  uint64_t size = 0;
  const auto place = [&](DType dtype, Shape shape) {
    TensorView view{base == nullptr ? nullptr : base + size, dtype, shape};
    size += (view.num_bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return view;
  };
  const DType activation = ActivationDType(config.dtype);
  const int64_t tokens = max_num_tokens;
  const int64_t q_width = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.num_kv_heads} * config.head_dim;
  out.residual = place(DType::kF32, {tokens, config.hidden_size});
  out.delta = place(DType::kF32, {tokens, config.hidden_size});
  out.x = place(activation, {tokens, config.hidden_size});
  out.qkv = place(DType::kF32, {tokens, q_width + 2 * kv_width});
  out.q = place(DType::kF32, {tokens, config.num_heads, config.head_dim});
  out.attention = place(activation, {tokens, q_width});
  out.inner = place(activation, {tokens, config.intermediate_size});
  out.logits = place(DType::kF32, {max_logits, config.vocab_size});
  const int64_t widest =
      std::max({int64_t{config.hidden_size}, q_width, int64_t{config.intermediate_size}});
  const size_t scratch = ops::LinearScratchBytes(LinearDType(config), tokens, widest);
  if (scratch > 0) out.scratch = place(DType::kU8, {static_cast<int64_t>(scratch)});
  if (config.position != PositionKind::kLearnedAbsolute)
    out.cos_sin = place(DType::kF32, {max_seq_len, 2, config.head_dim / 2});
  return size;
}

// The first `n` rows of `view`.
TensorView Rows(TensorView view, int64_t n) {
  CHECK_LE(n, view.shape[0]);
  view.shape =
      view.shape.rank() == 3 ? Shape{n, view.shape[1], view.shape[2]} : Shape{n, view.shape[1]};
  return view;
}

ops::RopeStyle StyleOf(PositionKind kind) {
  switch (kind) {
    case PositionKind::kRopeNeox:
      return ops::RopeStyle::kNeox;
    case PositionKind::kRopeGptj:
      return ops::RopeStyle::kGptj;
    case PositionKind::kLearnedAbsolute:
      break;
  }
  return ops::RopeStyle::kNone;
}

}  // namespace

struct Decoder::Impl {
  std::shared_ptr<const Engine> engine;
  ops::OpTable ops;
  Buffer buffer;
  Workspace workspace;
  ops::Rope rope;

  const ModelConfig& config() const { return engine->config; }
  ops::Norm NormOf(const TensorView& weight, const TensorView& bias) const {
    return {config().norm, weight, bias, config().norm_eps};
  }
  ops::Norm InputNorm(size_t layer) const;
  Workspace ForTokens(int64_t num_tokens) const;
  Status RunLayer(size_t idx, const Batch& batch, const ops::KvCacheView& kv, const Workspace& w,
                  Stream& stream) const;
  Status RunMlp(const LayerWeights& layer, const Workspace& w, Stream& stream) const;
};

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

uint64_t Decoder::workspace_bytes() const { return impl_->buffer.size(); }

uint64_t Decoder::WorkspaceBytes(const ModelConfig& config, int max_seq_len, int max_num_tokens,
                                 int max_logits) {
  Workspace unused;
  return LayOut(config, max_seq_len, max_num_tokens, max_logits, nullptr, unused);
}

Result<std::unique_ptr<Decoder>> Decoder::Create(std::shared_ptr<const Engine> engine,
                                                 ops::OpTable ops, Device& device,
                                                 int max_num_tokens, int max_logits) {
  const ModelConfig& config = engine->config;
  const int max_seq_len = engine->limits.max_seq_len;
  auto impl = std::make_unique<Impl>();
  ASSIGN_OR_RETURN(impl->buffer, Buffer::Allocate(device, "workspace",
                                                  WorkspaceBytes(config, max_seq_len,
                                                                 max_num_tokens, max_logits)));
  LayOut(config, max_seq_len, max_num_tokens, max_logits, impl->buffer.data(), impl->workspace);
  if (config.position != PositionKind::kLearnedAbsolute) {
    FillRopeTable(config, impl->workspace.cos_sin, device.cpu_pool());
    impl->rope = {StyleOf(config.position), config.head_dim, impl->workspace.cos_sin};
  }
  impl->engine = std::move(engine);
  impl->ops = std::move(ops);
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Result<TensorView> Decoder::Forward(const Batch& batch, const ops::KvCacheView& kv,
                                    Stream& stream) {
  const Impl& m = *impl_;
  const DecoderWeights& weights = m.engine->weights;
  const Workspace w = m.ForTokens(batch.paged.num_tokens);
  RETURN_IF_ERROR(m.ops.embed({.ids = batch.ids,
                               .positions = batch.paged.positions,
                               .table = weights.vocab_embedding,
                               .position_table = weights.position_embedding,
                               .y = w.residual},
                              stream));
  RETURN_IF_ERROR(m.ops.add_norm(
      {.residual = w.residual, .delta = {}, .norm = m.InputNorm(0), .y = w.x}, stream));
  for (size_t i = 0; i < weights.layers.size(); ++i)
    RETURN_IF_ERROR(m.RunLayer(i, batch, kv, w, stream));

  const int64_t num_logits = batch.logit_rows.empty() ? 0 : batch.logit_rows.shape[0];
  const TensorView logits = Rows(w.logits, num_logits);
  if (num_logits == 0) return logits;
  RETURN_IF_ERROR(m.ops.lm_head({.x = {.values = w.x},
                                 .rows = batch.logit_rows,
                                 .weight = weights.lm_head,
                                 .bias = {},
                                 .logits = logits},
                                stream));
  return logits;
}

// The norm that layer `layer` reads through; past the last one, the final norm.
ops::Norm Decoder::Impl::InputNorm(size_t layer) const {
  const DecoderWeights& weights = engine->weights;
  if (layer == weights.layers.size())
    return NormOf(weights.final_norm_weight, weights.final_norm_bias);
  return NormOf(weights.layers[layer].input_norm_weight, weights.layers[layer].input_norm_bias);
}

Workspace Decoder::Impl::ForTokens(int64_t num_tokens) const {
  Workspace w = workspace;
  for (TensorView* view : {&w.residual, &w.delta, &w.x, &w.qkv, &w.q, &w.attention, &w.inner})
    *view = Rows(*view, num_tokens);
  return w;
}

// w.x enters as this layer's normed input and leaves as the next one's:
//   h = h + Dense(Attention(x));  h = h + Mlp(PostNorm(h));  x = NextNorm(h)      h in w.residual
Status Decoder::Impl::RunLayer(size_t idx, const Batch& batch, const ops::KvCacheView& kv,
                               const Workspace& w, Stream& stream) const {
  const LayerWeights& layer = engine->weights.layers[idx];
  RETURN_IF_ERROR(ops.qkv_rope_kv({.x = {.values = w.x},
                                   .weight = layer.qkv,
                                   .bias = layer.qkv_bias,
                                   .num_heads = config().num_heads,
                                   .rope = rope,
                                   .batch = batch.paged,
                                   .kv = kv,
                                   .layer = static_cast<int>(idx),
                                   .workspace = w.qkv,
                                   .scratch = w.scratch,
                                   .q = w.q},
                                  stream));
  RETURN_IF_ERROR(ops.attention({.q = w.q,
                                 .batch = batch.paged,
                                 .kv = kv,
                                 .layer = static_cast<int>(idx),
                                 .scale = 1.0F / std::sqrt(static_cast<float>(config().head_dim)),
                                 .y = w.attention},
                                stream));
  RETURN_IF_ERROR(ops.linear({.x = {.values = w.attention},
                              .weight = layer.dense,
                              .bias = layer.dense_bias,
                              .y = w.delta,
                              .scratch = w.scratch},
                             stream));
  RETURN_IF_ERROR(ops.add_norm({.residual = w.residual,
                                .delta = w.delta,
                                .norm = NormOf(layer.post_norm_weight, layer.post_norm_bias),
                                .y = w.x},
                               stream));
  RETURN_IF_ERROR(RunMlp(layer, w, stream));
  return ops.add_norm(
      {.residual = w.residual, .delta = w.delta, .norm = InputNorm(idx + 1), .y = w.x}, stream);
}

Status Decoder::Impl::RunMlp(const LayerWeights& layer, const Workspace& w, Stream& stream) const {
  if (config().gated_mlp) {
    RETURN_IF_ERROR(ops.gated_linear({.x = {.values = w.x},
                                      .gate = layer.fc,  // the names cross: engine.h
                                      .up = layer.gate,
                                      .gate_bias = layer.fc_bias,
                                      .up_bias = layer.gate_bias,
                                      .activation = config().activation,
                                      .y = w.inner,
                                      .scratch = w.scratch},
                                     stream));
  } else {
    RETURN_IF_ERROR(ops.linear({.x = {.values = w.x},
                                .weight = layer.fc,
                                .bias = layer.fc_bias,
                                .activation = config().activation,
                                .y = w.inner,
                                .scratch = w.scratch},
                               stream));
  }
  return ops.linear({.x = {.values = w.inner},
                     .weight = layer.proj,
                     .bias = layer.proj_bias,
                     .activation = ops::ActivationKind::kNone,
                     .y = w.delta,
                     .scratch = w.scratch},
                    stream);
}

}  // namespace inflight::model
