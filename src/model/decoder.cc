// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "model/rope.h"

namespace inflight::model {
namespace {

constexpr uint64_t kAlignment = 64;

// What one step computes in, reused by every layer. Views of the largest step; Rows() cuts them.
// "stream dtype" is float32 on the CPU and the model's on CUDA; "activation dtype" what the next
// linear reads.
struct Workspace {
  TensorView residual;   // [max_num_tokens, hidden_size] stream dtype
  TensorView delta;      // [max_num_tokens, hidden_size] stream dtype
  TensorView x;          // [max_num_tokens, hidden_size] activation dtype
  TensorView qkv;        // [max_num_tokens, (num_heads + 2 num_kv_heads) * head_dim] stream dtype
  TensorView q;          // [max_num_tokens, num_heads, head_dim] stream dtype; on CUDA in qkv
  TensorView attention;  // [max_num_tokens, num_heads * head_dim] activation dtype; the model's
                         // where activations are FP8
  TensorView inner;      // [max_num_tokens, intermediate_size] activation dtype
  TensorView gate_up;    // [max_num_tokens, 2 * intermediate_size] the model's dtype; gated models
                         // on CUDA only
  TensorView logits;     // [max_logits, vocab_size] float32
  TensorView scratch;    // [LinearScratchBytes of the widest linear] uint8; empty for float weights
  TensorView cos_sin;    // [max_seq_len, 2, RotaryDim / 2] float32; rotary models only
  // FP8 activations only: the last norm's output in the model's dtype, which lm_head reads; inner
  // before it is rounded, of models that are not gated; the rounded attention; the scales of x,
  // attention and inner, [max_num_tokens] float32.
  TensorView final_x;
  TensorView wide_inner;
  TensorView attention_codes;
  TensorView x_scales, attention_scales, inner_scales;
};

bool HasFp8Activations(const ModelConfig& config) {
  return config.quant_algo == QuantAlgo::kFp8PerChannelPerToken;
}

DType StreamDType(const ModelConfig& config, DeviceKind device) {
  return device == DeviceKind::kCpu ? DType::kF32 : config.dtype;
}

// What linear operators read (ops/linear.h): beside integer weights what they read beside the
// model's.
DType ActivationDType(const ModelConfig& config, DeviceKind device) {
  if (HasFp8Activations(config)) return DType::kF8E4M3;
  if (device == DeviceKind::kCuda || config.dtype == DType::kBF16) return config.dtype;
  return DType::kF32;
}

// Places the workspace from `base` on and returns its size; a null base only measures.
uint64_t LayOut(const ModelConfig& config, DeviceKind device, int max_seq_len, int max_num_tokens,
                int max_logits, std::byte* base, Workspace& out) {
  uint64_t size = 0;
  const auto place = [&](DType dtype, Shape shape) {
    TensorView view{base == nullptr ? nullptr : base + size, dtype, shape};
    size += (view.num_bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return view;
  };
  const bool is_cuda = device == DeviceKind::kCuda;
  const bool has_fp8 = HasFp8Activations(config);
  const DType activation = ActivationDType(config, device);
  const DType stream = StreamDType(config, device);
  const int64_t tokens = max_num_tokens;
  const int64_t q_width = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.num_kv_heads} * config.head_dim;
  out.residual = place(stream, {tokens, config.hidden_size});
  out.delta = place(stream, {tokens, config.hidden_size});
  out.x = place(activation, {tokens, config.hidden_size});
  out.qkv = place(stream, {tokens, q_width + 2 * kv_width});
  const Shape q_shape{tokens, config.num_heads, config.head_dim};
  out.q = is_cuda ? TensorView{out.qkv.data, stream, q_shape} : place(stream, q_shape);
  out.attention = place(has_fp8 ? config.dtype : activation, {tokens, q_width});
  out.inner = place(activation, {tokens, config.intermediate_size});
  if (is_cuda && config.gated_mlp)
    out.gate_up = place(config.dtype, {tokens, 2 * int64_t{config.intermediate_size}});
  if (has_fp8 && !config.gated_mlp)
    out.wide_inner = place(config.dtype, {tokens, config.intermediate_size});
  out.logits = place(DType::kF32, {max_logits, config.vocab_size});
  const int64_t widest =
      std::max({int64_t{config.hidden_size}, q_width, int64_t{config.intermediate_size}});
  const size_t scratch = is_cuda ? 0 : ops::LinearScratchBytes(LinearDType(config), tokens, widest);
  if (scratch > 0) out.scratch = place(DType::kU8, {static_cast<int64_t>(scratch)});
  if (config.position != PositionKind::kLearnedAbsolute)
    out.cos_sin = place(DType::kF32, {max_seq_len, 2, RotaryDim(config) / 2});
  if (has_fp8) {
    out.final_x = place(config.dtype, {tokens, config.hidden_size});
    out.attention_codes = place(DType::kF8E4M3, {tokens, q_width});
    for (TensorView* scales : {&out.x_scales, &out.attention_scales, &out.inner_scales})
      *scales = place(DType::kF32, {tokens});
  }
  return size;
}

// The first `n` rows of `view`.
TensorView Rows(TensorView view, int64_t n) {
  if (view.empty()) return view;
  CHECK_LE(n, view.shape[0]);
  switch (view.shape.rank()) {
    case 1:
      view.shape = {n};
      break;
    case 2:
      view.shape = {n, view.shape[1]};
      break;
    default:
      view.shape = {n, view.shape[1], view.shape[2]};
  }
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
  std::vector<ops::SlidingWindow> windows;  // those that layers have, each once
  std::vector<int> window_idx;              // [num_layers] which of them is the layer's
  int64_t num_tokens = 0;                   // of the last Forward
  float attention_scale = 1;                // of q k^T
  bool defers_scales = false;  // dense and proj leave their FP8 scales to the norms that follow

  const ModelConfig& config() const { return engine->config; }
  ops::Norm NormOf(const TensorView& weight, const TensorView& bias) const {
    return {config().norm, weight, bias, config().norm_eps};
  }
  ops::Norm InputNorm(size_t layer) const;
  Workspace ForTokens(int64_t num_tokens) const;
  Status RunLayer(size_t idx, const Batch& batch, const ops::KvCacheView& kv, const Workspace& w,
                  Stream& stream) const;
  Status RunMlp(size_t idx, const Batch& batch, const Workspace& w, Stream& stream) const;
  Status RunAttention(size_t idx, const Batch& batch, const ops::KvCacheView& kv,
                      const Workspace& w, Stream& stream) const;
  // What `linear` left to the reader of its output.
  ops::PendingScales Pending(const TensorView& token_scales, const ops::Weight& linear) const {
    if (!defers_scales) return {};
    return {.token = token_scales,
            .feature = linear.scales,
            .factor = 1 / ops::Fp8ProductScale(config().dtype, linear.in_features)};
  }
};

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

uint64_t Decoder::workspace_bytes() const { return impl_->buffer.size(); }

uint64_t Decoder::WorkspaceBytes(const ModelConfig& config, DeviceKind device, int max_seq_len,
                                 int max_num_tokens, int max_logits) {
  Workspace unused;
  return LayOut(config, device, max_seq_len, max_num_tokens, max_logits, nullptr, unused);
}

std::vector<ops::SlidingWindow> AttentionWindows::Different(int num_layers) const {
  std::vector<ops::SlidingWindow> out;
  for (int i = 0; i < num_layers; ++i) {
    const ops::SlidingWindow window = Of(static_cast<size_t>(i));
    if (std::ranges::count(out, window) == 0) out.push_back(window);
  }
  return out;
}

AttentionWindows LayerWindows(const ModelConfig& config, const AttentionWindows& options) {
  if (config.sliding_window == 0) return options;
  AttentionWindows out = {.windows = {}, .num_sinks = options.num_sinks};
  for (int i = 0; i < config.num_layers; ++i) {
    const int own = WindowOf(config, i);
    const int asked = options.Of(static_cast<size_t>(i)).window;
    out.windows.push_back(own == 0 || asked == 0 ? std::max(own, asked) : std::min(own, asked));
  }
  return out;
}

ops::ShapeClass KernelShape(const ModelConfig& config, const AttentionWindows& windows) {
  return {.weight_dtype = LinearDType(config),
          .dtype = config.dtype,
          .kv_dtype = KvDType(config),
          .head_dim = config.head_dim,
          .num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .num_windows =
              static_cast<int>(LayerWindows(config, windows).Different(config.num_layers).size())};
}

std::vector<ops::LinearShape> LinearShapes(const ModelConfig& config, int max_num_tokens,
                                           int max_logits) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t q_width = int64_t{config.num_heads} * config.head_dim;
  const int64_t qkv_width = q_width + int64_t{2} * config.num_kv_heads * config.head_dim;
  const DType operands = HasFp8Activations(config) ? DType::kF8E4M3 : config.dtype;
  std::vector<ops::LinearShape> shapes;
  for (const auto& [out, in] :
       {std::pair{qkv_width, hidden}, std::pair{hidden, q_width},
        std::pair{config.gated_mlp ? 2 * inner : inner, hidden}, std::pair{hidden, inner}})
    shapes.push_back({out, in, operands, config.dtype, max_num_tokens});
  shapes.push_back({config.vocab_size, hidden, config.quantize_lm_head ? operands : config.dtype,
                    DType::kF32, max_logits});
  return shapes;
}

Result<std::unique_ptr<Decoder>> Decoder::Create(std::shared_ptr<const Engine> engine,
                                                 ops::OpTable ops, Device& device,
                                                 int max_num_tokens, int max_logits,
                                                 AttentionWindows windows) {
  const ModelConfig& config = engine->config;
  const int max_seq_len = engine->limits.max_seq_len;
  auto impl = std::make_unique<Impl>();
  const DeviceKind kind = device.kind();
  ASSIGN_OR_RETURN(impl->buffer, Buffer::Allocate(device, "workspace",
                                                  WorkspaceBytes(config, kind, max_seq_len,
                                                                 max_num_tokens, max_logits)));
  LayOut(config, kind, max_seq_len, max_num_tokens, max_logits, impl->buffer.data(),
         impl->workspace);
  impl->defers_scales = HasFp8Activations(config) && !config.dense_bias && !config.mlp_bias;
  if (config.position != PositionKind::kLearnedAbsolute) {
    RETURN_IF_ERROR(FillRopeTable(config, impl->workspace.cos_sin, device));
    impl->rope = {StyleOf(config.position), RotaryDim(config), impl->workspace.cos_sin};
  }
  impl->attention_scale =
      config.attention_multiplier.value_or(1.0F / std::sqrt(static_cast<float>(config.head_dim)));
  windows = LayerWindows(config, windows);
  for (int& window : windows.windows)
    if (window >= max_seq_len) window = 0;  // hides nothing
  impl->windows = windows.Different(config.num_layers);
  for (int i = 0; i < config.num_layers; ++i) {
    const auto it = std::ranges::find(impl->windows, windows.Of(static_cast<size_t>(i)));
    impl->window_idx.push_back(static_cast<int>(it - impl->windows.begin()));
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
                               .prompt_rows = batch.prompt_rows,
                               .prompt_dtype = m.config().dtype,
                               .y = w.residual},
                              stream));
  RETURN_IF_ERROR(m.ops.add_norm({.residual = w.residual,
                                  .delta = {},
                                  .norm = m.InputNorm(0),
                                  .y = w.x,
                                  .y_scales = w.x_scales},
                                 stream));
  if (m.ops.plan_attention != nullptr) {
    for (size_t i = 0; i < m.windows.size(); ++i)
      RETURN_IF_ERROR(m.ops.plan_attention({.batch = batch.paged,
                                            .kv = kv,
                                            .num_heads = m.config().num_heads,
                                            .sliding = m.windows[i],
                                            .plan = static_cast<int>(i)},
                                           stream));
  }
  for (size_t i = 0; i < weights.layers.size(); ++i)
    RETURN_IF_ERROR(m.RunLayer(i, batch, kv, w, stream));

  impl_->num_tokens = batch.paged.num_tokens;
  return Logits(batch.logit_rows, stream);
}

Result<TensorView> Decoder::Logits(const TensorView& rows, Stream& stream) {
  const Impl& m = *impl_;
  const Workspace w = m.ForTokens(m.num_tokens);
  const int64_t num_logits = rows.empty() ? 0 : rows.shape[0];
  const TensorView logits = Rows(w.logits, num_logits);
  if (num_logits == 0) return logits;
  RETURN_IF_ERROR(m.ops.lm_head({.x = {.values = w.final_x.empty() ? w.x : w.final_x},
                                 .rows = rows,
                                 .weight = m.engine->weights.lm_head,
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
  for (TensorView* view : {&w.residual, &w.delta, &w.x, &w.qkv, &w.q, &w.attention, &w.inner,
                           &w.gate_up, &w.wide_inner, &w.final_x, &w.attention_codes, &w.x_scales,
                           &w.attention_scales, &w.inner_scales})
    *view = Rows(*view, num_tokens);
  return w;
}

// w.x enters as this layer's normed input and leaves as the next one's:
//   h = h + Dense(Attention(x));  h = h + Mlp(PostNorm(h));  x = NextNorm(h)      h in w.residual
Status Decoder::Impl::RunLayer(size_t idx, const Batch& batch, const ops::KvCacheView& kv,
                               const Workspace& w, Stream& stream) const {
  const LayerWeights& layer = engine->weights.layers[idx];
  RETURN_IF_ERROR(RunAttention(idx, batch, kv, w, stream));
  RETURN_IF_ERROR(ops.add_norm({.residual = w.residual,
                                .delta = w.delta,
                                .delta_scales = Pending(w.attention_scales, layer.dense),
                                .norm = NormOf(layer.post_norm_weight, layer.post_norm_bias),
                                .y = w.x,
                                .y_scales = w.x_scales},
                               stream));
  RETURN_IF_ERROR(RunMlp(idx, batch, w, stream));
  const bool is_last = idx + 1 == engine->weights.layers.size();
  const bool for_head = is_last && !w.final_x.empty();
  return ops.add_norm({.residual = w.residual,
                       .delta = w.delta,
                       .delta_scales = Pending(w.inner_scales, layer.proj),
                       .norm = InputNorm(idx + 1),
                       .y = for_head ? w.final_x : w.x,
                       .y_scales = for_head ? TensorView{} : w.x_scales},
                      stream);
}

// w.delta = Dense(Attention(w.x))
Status Decoder::Impl::RunAttention(size_t idx, const Batch& batch, const ops::KvCacheView& kv,
                                   const Workspace& w, Stream& stream) const {
  const LayerWeights& layer = engine->weights.layers[idx];
  const ops::LoraTerm lora = {batch.adapters, static_cast<int>(idx)};
  const int64_t q_stride = w.q.data == w.qkv.data ? w.qkv.shape[1] : 0;
  RETURN_IF_ERROR(ops.qkv_rope_kv({.x = {.values = w.x, .scales = w.x_scales},
                                   .weight = layer.qkv,
                                   .bias = layer.qkv_bias,
                                   .num_heads = config().num_heads,
                                   .q_norm = layer.q_norm_weight,
                                   .k_norm = layer.k_norm_weight,
                                   .norm_eps = config().norm_eps,
                                   .rope = rope,
                                   .batch = batch.paged,
                                   .kv = kv,
                                   .layer = static_cast<int>(idx),
                                   .workspace = w.qkv,
                                   .scratch = w.scratch,
                                   .lora = lora,
                                   .q = w.q,
                                   .q_stride = q_stride},
                                  stream));
  RETURN_IF_ERROR(ops.attention({.q = w.q,
                                 .q_stride = q_stride,
                                 .batch = batch.paged,
                                 .kv = kv,
                                 .layer = static_cast<int>(idx),
                                 .scale = attention_scale,
                                 .sliding = windows[static_cast<size_t>(window_idx[idx])],
                                 .plan = window_idx[idx],
                                 .y = w.attention},
                                stream));
  ops::Activation attention = {.values = w.attention};
  if (!w.attention_codes.empty()) {
    RETURN_IF_ERROR(ops.quantize(
        {.x = w.attention, .y = w.attention_codes, .scales = w.attention_scales}, stream));
    attention = {.values = w.attention_codes, .scales = w.attention_scales};
  }
  return ops.linear({.x = attention,
                     .weight = layer.dense,
                     .bias = layer.dense_bias,
                     .y = w.delta,
                     .scratch = w.scratch,
                     .lora = lora,
                     .site = ops::LoraSite::kDense,
                     .defer_scales = defers_scales},
                    stream);
}

// w.delta = Mlp(w.x)
Status Decoder::Impl::RunMlp(size_t idx, const Batch& batch, const Workspace& w,
                             Stream& stream) const {
  const LayerWeights& layer = engine->weights.layers[idx];
  const ops::LoraTerm lora = {batch.adapters, static_cast<int>(idx)};
  const ops::Activation x = {.values = w.x, .scales = w.x_scales};
  if (config().gated_mlp) {
    RETURN_IF_ERROR(ops.gated_linear({.x = x,
                                      .gate = layer.fc,  // the names cross: engine.h
                                      .up = layer.gate,
                                      .gate_bias = layer.fc_bias,
                                      .up_bias = layer.gate_bias,
                                      .activation = config().activation,
                                      .y = w.inner,
                                      .y_scales = w.inner_scales,
                                      .lora = lora,
                                      .scratch = w.scratch,
                                      .workspace = w.gate_up},
                                     stream));
  } else {
    const bool is_rounded = !w.wide_inner.empty();
    RETURN_IF_ERROR(ops.linear({.x = x,
                                .weight = layer.fc,
                                .bias = layer.fc_bias,
                                .activation = config().activation,
                                .y = is_rounded ? w.wide_inner : w.inner,
                                .scratch = w.scratch,
                                .lora = lora,
                                .site = ops::LoraSite::kFc},
                               stream));
    if (is_rounded)
      RETURN_IF_ERROR(
          ops.quantize({.x = w.wide_inner, .y = w.inner, .scales = w.inner_scales}, stream));
  }
  return ops.linear({.x = {.values = w.inner, .scales = w.inner_scales},
                     .weight = layer.proj,
                     .bias = layer.proj_bias,
                     .activation = ops::ActivationKind::kNone,
                     .y = w.delta,
                     .scratch = w.scratch,
                     .lora = lora,
                     .site = ops::LoraSite::kProj,
                     .defer_scales = defers_scales},
                    stream);
}

}  // namespace inflight::model
