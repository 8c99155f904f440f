// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "model/decoder_workspace.h"
#include "model/expert_mlp.h"
#include "model/kv_places.h"
#include "model/layers_at_once.h"
#include "model/rope.h"

namespace inflight::model {
using Workspace = DecoderWorkspace;

struct Decoder::Impl {
  std::shared_ptr<const Engine> engine;
  WeightStream* weight_stream = nullptr;  // null: all weights are where operators read them
  comm::RankGroups groups;
  bool last_stage_leads = false;  // on CUDA
  ops::OpTable ops;
  Buffer buffer;
  Workspace workspace;
  ops::Rope rope;
  ops::Rope no_rope;       // of layers that are not rotated
  ops::Rope sliding_rope;  // of layers with a window; the same unless they have their own
  KvPlaces kv_places;
  LayersAtOnce layers_at_once;
  int64_t num_tokens = 0;         // of the last Forward
  HeadInputs head_inputs;         // of several stages
  std::vector<int32_t> all_rows;  // [max_logits] 0, 1, ...
  float attention_scale = 1;      // of q k^T
  bool defers_scales = false;     // dense and proj leave their FP8 scales to what adds them up

  const ModelConfig& config() const { return engine->config; }
  const DecoderWeights& weights() const {
    return weight_stream == nullptr ? engine->weights : weight_stream->weights();
  }
  // What follows on `stream` reads weights of `layer`; none of those before it is read again.
  Status BeginLayer(size_t layer, Stream& stream) const {
    return weight_stream == nullptr ? Status::Ok() : weight_stream->BeginLayer(layer, stream);
  }
  Status EndLayer(size_t layer, Stream& stream) const {
    return weight_stream == nullptr ? Status::Ok() : weight_stream->EndLayer(layer, stream);
  }
  ops::Norm NormOf(const TensorView& weight, const TensorView& bias) const {
    return {config().norm, weight, bias, config().norm_eps};
  }
  ops::Norm InputNorm(size_t layer) const;
  ops::Norm MlpNorm(const LayerWeights& layer) const;
  const ops::Rope& RopeOf(size_t layer) const {
    const int of_model = config().part.first_layer + static_cast<int>(layer);
    if (!HasRope(config(), of_model)) return no_rope;
    return IsSliding(config(), of_model) ? sliding_rope : rope;
  }
  Status NormInPlace(const TensorView& values, const TensorView& weight, Stream& stream) const;
  Status Enter(const Batch& batch, const Workspace& w, Stream& stream) const;
  // Of w.delta: the norm behind it adds up over the ranks; null: what it reads is whole.
  const ops::cuda::Peers* PeersOfNorm(const TensorView& delta) const {
    const bool is_next = config().norm_placement == NormPlacement::kPre;
    if (groups.tensor == nullptr || !is_next) return nullptr;
    return groups.tensor->PeersOfNorm(delta.shape[0], delta.shape[1]);
  }
  // Ranks add up what has its scales: in the norm, or in the linear where that is not next.
  bool Defers(const TensorView& delta) const {
    return defers_scales && (groups.tensor == nullptr || PeersOfNorm(delta) != nullptr);
  }
  // Over the ranks that share the layers, but for what the norm adds up.
  Status AddUpDelta(const TensorView& delta, Stream& stream) const {
    return PeersOfNorm(delta) == nullptr ? AddUp(delta, stream) : Status::Ok();
  }
  Status AddUp(const TensorView& values, Stream& stream) const {
    return groups.tensor == nullptr ? Status::Ok() : groups.tensor->AllReduce(values, stream);
  }
  // Of what is added up, the first rank alone adds it.
  TensorView AddedOnce(const TensorView& bias) const {
    return config().part.tp_rank == 0 ? bias : TensorView{};
  }
  Status ApplyHead(ops::LmHeadParams params, Stream& stream) const;
  Status LogitsToLeader(const TensorView& logits, Stream& stream) const;
  bool IsBrought(int layer) const {
    return std::ranges::find(head_inputs.layers, layer) != head_inputs.layers.end();
  }
  Status KeepResidual(const Batch& batch, int layer, const Workspace& w, Stream& stream) const;
  Status TakeHeadInputs(const Batch& batch, const Workspace& w, Stream& stream) const;
  TensorView StatesOf(int64_t num_tokens) const {
    return Rows(workspace.final_x.empty() ? workspace.x : workspace.final_x, num_tokens);
  }
  Workspace ForTokens(int64_t num_tokens) const;
  Status PlanAttention(const Batch& batch, const ops::KvCacheView& kv, Stream& stream) const;
  Status RunLayer(size_t idx, const Batch& batch, const ops::KvCacheView& kv, const Workspace& w,
                  Stream& stream) const;
  Status RunParallelLayer(size_t idx, const Batch& batch, const ops::KvCacheView& kv,
                          const Workspace& w, Stream& stream) const;
  Status EnterNextLayer(size_t idx, const Workspace& w, Stream& stream) const;
  Status RunMlp(size_t idx, const Batch& batch, const Workspace& w, Stream& stream) const;
  Status RunAttention(size_t idx, const Batch& batch, const ops::KvCacheView& kv,
                      const Workspace& w, Stream& stream) const;
  // What `linear` left to the reader of its output.
  ops::PendingScales Pending(const TensorView& delta, const TensorView& token_scales,
                             const ops::Weight& linear) const {
    if (!Defers(delta)) return {};
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

Result<std::unique_ptr<Decoder>> Decoder::Create(std::shared_ptr<const Engine> engine,
                                                 ops::OpTable ops, Device& device,
                                                 int max_num_tokens, int max_logits,
                                                 AttentionWindows windows,
                                                 WeightStream* weight_stream,
                                                 comm::RankGroups groups) {
  const ModelConfig& config = engine->config;
  CHECK_EQ(groups.tensor != nullptr, config.part.tp_size > 1);
  CHECK_EQ(groups.pipeline != nullptr, config.part.pp_size > 1);
  const int max_seq_len = engine->limits.max_seq_len;
  auto impl = std::make_unique<Impl>();
  const DeviceKind kind = device.kind();
  ASSIGN_OR_RETURN(impl->buffer, Buffer::Allocate(device, "workspace",
                                                  WorkspaceBytes(config, kind, max_seq_len,
                                                                 max_num_tokens, max_logits)));
  LayOut(config, kind, max_seq_len, max_num_tokens, max_logits, impl->buffer.data(),
         impl->workspace);
  impl->defers_scales = HasFp8Activations(config) && !config.dense_bias && !config.mlp_bias &&
                        config.norm_placement == NormPlacement::kPre;
  if (config.position != PositionKind::kLearnedAbsolute) {
    RETURN_IF_ERROR(FillRopeTable(config, impl->workspace.cos_sin, device));
    impl->rope = {RopeStyleOf(config.position), RotaryDim(config), impl->workspace.cos_sin};
    impl->sliding_rope = impl->rope;
  }
  if (config.sliding_rope_theta) {
    impl->sliding_rope.cos_sin = impl->workspace.sliding_cos_sin;
    RETURN_IF_ERROR(FillRopeTable(OfSlidingRope(config), impl->sliding_rope.cos_sin, device));
  }
  impl->attention_scale =
      config.attention_multiplier.value_or(1.0F / std::sqrt(static_cast<float>(config.head_dim)));
  windows = LayerWindows(config, windows);
  for (int& window : windows.windows)
    if (window >= max_seq_len) window = 0;  // hides nothing
  impl->kv_places = KvPlaces(config, windows);
  if (engine->host_layers.empty() && impl->kv_places.windows() == std::vector{ops::SlidingWindow{}})
    impl->layers_at_once = LayersAtOnce(*engine, impl->rope, impl->attention_scale);
  impl->all_rows.resize(static_cast<size_t>(max_logits));
  std::iota(impl->all_rows.begin(), impl->all_rows.end(), 0);
  impl->engine = std::move(engine);
  impl->weight_stream = weight_stream;
  impl->groups = groups;
  impl->last_stage_leads = kind == DeviceKind::kCuda;
  if (groups.tensor != nullptr) groups.tensor->Share({impl->buffer.data(), impl->buffer.size()});
  impl->ops = std::move(ops);
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Result<TensorView> Decoder::Forward(const Batch& batch, const ops::KvCacheView& kv,
                                    Stream& stream) {
  const Impl& m = *impl_;
  const DecoderWeights& weights = m.weights();
  const Workspace w = m.ForTokens(batch.paged.num_tokens);
  if (batch.moves_rows) RETURN_IF_ERROR(TakeRows(batch.paged.num_tokens, stream));
  RETURN_IF_ERROR(m.Enter(batch, w, stream));
  if (const int64_t most = m.layers_at_once.MostRows(batch, kv, w, m.ops, stream);
      most >= batch.paged.num_tokens) {
    RETURN_IF_ERROR(m.layers_at_once.Run(batch, kv, w, m.ops, stream));
    impl_->num_tokens = batch.paged.num_tokens;
    return Logits(batch.logit_rows, stream);
  }
  RETURN_IF_ERROR(m.BeginLayer(0, stream));
  RETURN_IF_ERROR(m.ops.add_norm({.residual = w.residual,
                                  .delta = {},
                                  .norm = m.InputNorm(0),
                                  .y = w.x,
                                  .y_scales = w.x_scales},
                                 stream));
  RETURN_IF_ERROR(m.PlanAttention(batch, kv, stream));
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    RETURN_IF_ERROR(
        m.KeepResidual(batch, m.config().part.first_layer + static_cast<int>(i), w, stream));
    RETURN_IF_ERROR(m.RunLayer(i, batch, kv, w, stream));
  }
  if (batch.moves_rows) RETURN_IF_ERROR(HandRows(batch.paged.num_tokens, stream));
  impl_->num_tokens = batch.paged.num_tokens;
  RETURN_IF_ERROR(m.TakeHeadInputs(batch, w, stream));
  return Logits(batch.logit_rows, stream);
}

Status Decoder::TakeRows(int64_t num_tokens, Stream& stream) {
  const RankPart& part = impl_->config().part;
  if (part.is_first_stage()) return Status::Ok();
  return impl_->groups.pipeline->Receive(impl_->ForTokens(num_tokens).residual, part.pp_rank - 1,
                                         stream);
}

Status Decoder::HandRows(int64_t num_tokens, Stream& stream) {
  const RankPart& part = impl_->config().part;
  if (part.is_last_stage()) return Status::Ok();
  return impl_->groups.pipeline->Send(impl_->ForTokens(num_tokens).residual, part.pp_rank + 1,
                                      stream);
}

Result<TensorView> Decoder::Logits(const TensorView& rows, Stream& stream) {
  const Impl& m = *impl_;
  const int64_t num_logits = rows.empty() ? 0 : rows.shape[0];
  const TensorView logits = Rows(m.workspace.logits, num_logits);
  if (num_logits == 0) return logits;
  RETURN_IF_ERROR(m.ApplyHead({.x = {.values = States()},
                               .rows = rows,
                               .logits = logits,
                               .scale = m.config().logits_scale,
                               .softcap = m.config().logits_softcap},
                              stream));
  return logits;
}

TensorView Decoder::States() const { return impl_->StatesOf(impl_->num_tokens); }

void Decoder::Bring(const HeadInputs& inputs) {
  if (impl_->config().part.pp_size > 1 && impl_->config().part.tp_rank == 0)
    impl_->head_inputs = inputs;
}

Result<TensorView> Decoder::Embed(const TensorView& ids, const TensorView& y, Stream& stream) {
  const Impl& m = *impl_;
  const RankPart& part = m.config().part;
  const int64_t n = ids.shape[0];
  const int64_t most = m.workspace.delta.shape[0];
  const TensorView all = y.empty() ? Rows(m.workspace.delta, std::min(n, most)) : y;
  if (!part.is_first_stage()) return all;
  for (int64_t done = 0; done < n; done += most) {
    const int64_t count = std::min(most, n - done);
    TensorView rows = Rows(m.workspace.delta, count);  // a follower's part of the sums
    if (!y.empty()) rows.data = y.as<std::byte>() + BytesOf(y.dtype, done * y.shape[1]);
    const TensorView some = {ids.as<int32_t>() + done, DType::kI32, {count}};
    RETURN_IF_ERROR(m.ops.embed({.ids = some,
                                 .positions = {},
                                 .table = m.weights().vocab_embedding,
                                 .position_table = {},
                                 .is_part = part.tp_size > 1,
                                 .first_id = int64_t{part.tp_rank} * VocabRows(m.config()),
                                 .y = rows},
                                stream));
    RETURN_IF_ERROR(m.AddUp(rows, stream));
  }
  return all;
}

Result<TensorView> Decoder::HeadLogits(const TensorView& x, const TensorView& rows,
                                       const TensorView& logits, Stream& stream) {
  const int64_t n = rows.empty() ? x.shape[0] : rows.shape[0];
  const TensorView every_row = {impl_->all_rows.data(), DType::kI32, {n}};
  const TensorView all = logits.empty() ? Rows(impl_->workspace.logits, n) : logits;
  RETURN_IF_ERROR(impl_->ApplyHead(
      {.x = {.values = x}, .rows = rows.empty() ? every_row : rows, .logits = all}, stream));
  return all;
}

// The logits of all ranks, in params.logits, where they go; the weight is the model's.
Status Decoder::Impl::ApplyHead(ops::LmHeadParams params, Stream& stream) const {
  const TensorView all = params.logits;
  if (config().part.is_last_stage()) {
    const bool is_part = config().part.tp_size > 1;
    if (is_part) params.logits = Rows(workspace.rank_logits, all.shape[0]);
    params.weight = weights().lm_head;
    params.bias = weights().lm_head_bias;
    params.scratch = workspace.scratch;
    RETURN_IF_ERROR(ops.lm_head(params, stream));
    if (is_part) RETURN_IF_ERROR(groups.tensor->GatherColumns(params.logits, all, stream));
  }
  return LogitsToLeader(all, stream);
}

// The residual that enters a layer, where heads read it: kept by the leader, sent by others.
Status Decoder::Impl::KeepResidual(const Batch& batch, int layer, const Workspace& w,
                                   Stream& stream) const {
  if (batch.kept != nullptr) RETURN_IF_ERROR(Keep(*batch.kept, layer, w.residual, stream));
  if (config().part.is_first_stage() || !IsBrought(layer)) return Status::Ok();
  return groups.pipeline->Send(w.residual, 0, stream);
}

// Of several stages: what heads read of the others comes to the leader, in the order of layers. It
// lies in what the leader's own layers do not need any more.
Status Decoder::Impl::TakeHeadInputs(const Batch& batch, const Workspace& w, Stream& stream) const {
  const RankPart& part = config().part;
  const TensorView states = StatesOf(batch.paged.num_tokens);
  if (!part.is_first_stage())
    return part.is_last_stage() && head_inputs.states ? groups.pipeline->Send(states, 0, stream)
                                                      : Status::Ok();
  int first_layer = config().num_layers;
  for (const int layer : head_inputs.layers) {
    if (layer < first_layer) continue;
    RETURN_IF_ERROR(groups.pipeline->Receive(w.delta, part.StageOf(layer), stream));
    RETURN_IF_ERROR(Keep(*batch.kept, layer, w.delta, stream));
  }
  if (!head_inputs.states) return Status::Ok();
  return groups.pipeline->Receive(states, part.pp_size - 1, stream);
}

// w.residual of the first stage's first layer; others take theirs.
Status Decoder::Impl::Enter(const Batch& batch, const Workspace& w, Stream& stream) const {
  const RankPart& part = config().part;
  if (!part.is_first_stage()) return Status::Ok();
  const bool is_part = part.tp_size > 1;
  const bool adds_once = part.tp_rank == 0;  // what is not the table's
  RETURN_IF_ERROR(
      ops.embed({.ids = batch.ids,
                 .positions = batch.paged.positions,
                 .table = weights().vocab_embedding,
                 .position_table = adds_once ? weights().position_embedding : TensorView{},
                 .prompt_rows = adds_once ? batch.prompt_rows : nullptr,
                 .prompt_dtype = config().dtype,
                 .is_part = is_part,
                 .first_id = int64_t{part.tp_rank} * VocabRows(config()),
                 .scale = EmbeddingScale(config()),
                 .y = w.residual},
                stream));
  return AddUp(w.residual, stream);
}

// From the last stage to the first, where that one draws.
Status Decoder::Impl::LogitsToLeader(const TensorView& logits, Stream& stream) const {
  const RankPart& part = config().part;
  if (part.pp_size == 1 || part.tp_rank != 0 || last_stage_leads) return Status::Ok();
  if (part.is_last_stage()) return groups.pipeline->Send(logits, 0, stream);
  return part.is_first_stage() ? groups.pipeline->Receive(logits, part.pp_size - 1, stream)
                               : Status::Ok();
}

// The norm that layer `layer` reads through; past the last one, the final norm. What the last layer
// of another stage is followed by is of no use: the next stage has its own.
ops::Norm Decoder::Impl::InputNorm(size_t layer) const {
  const DecoderWeights& weights = this->weights();
  if (layer == weights.layers.size() && !config().part.is_last_stage()) layer = 0;
  if (layer == weights.layers.size())
    return NormOf(weights.final_norm_weight, weights.final_norm_bias);
  if (config().norm_placement == NormPlacement::kPost) return {ops::NormKind::kNone, {}, {}};
  return NormOf(weights.layers[layer].input_norm_weight, weights.layers[layer].input_norm_bias);
}

// What the feed-forward reads through.
ops::Norm Decoder::Impl::MlpNorm(const LayerWeights& layer) const {
  switch (config().norm_placement) {
    case NormPlacement::kPre:
      return NormOf(layer.post_norm_weight, layer.post_norm_bias);
    case NormPlacement::kBoth:
      return NormOf(layer.pre_feedforward_norm_weight, {});
    case NormPlacement::kPost:
      break;
  }
  return {ops::NormKind::kNone, {}, {}};
}

// RunLayer where parallel_residual. MlpNorm's own input is the h that w.x is the norm of; without
// such a norm the feed-forward reads w.x, too:
//   h' = h + m Dense(Attention(x)) + m Mlp(MlpNorm(h));  x = NextNorm(h')
Status Decoder::Impl::RunParallelLayer(size_t idx, const Batch& batch, const ops::KvCacheView& kv,
                                       const Workspace& w, Stream& stream) const {
  const LayerWeights& layer = weights().layers[idx];
  RETURN_IF_ERROR(RunAttention(idx, batch, kv, w, stream));
  if (!config().has_shared_norm)
    RETURN_IF_ERROR(ops.add_norm(
        {.residual = w.residual, .norm = MlpNorm(layer), .y = w.x, .y_scales = w.x_scales},
        stream));
  RETURN_IF_ERROR(ops.add_norm({.residual = w.residual,
                                .delta = w.delta,
                                .delta_factor = config().residual_multiplier,
                                .delta_scales = Pending(w.delta, w.attention_scales, layer.dense),
                                .peers = PeersOfNorm(w.delta),
                                .norm = {ops::NormKind::kNone, {}, {}},
                                .y = w.residual},
                               stream));
  RETURN_IF_ERROR(RunMlp(idx, batch, w, stream));
  return EnterNextLayer(idx, w, stream);
}

Status Decoder::Impl::NormInPlace(const TensorView& values, const TensorView& weight,
                                  Stream& stream) const {
  return ops.add_norm({.residual = values, .delta = {}, .norm = NormOf(weight, {}), .y = values},
                      stream);
}

Workspace Decoder::Impl::ForTokens(int64_t num_tokens) const {
  Workspace w = workspace;
  for (TensorView* view : {&w.residual, &w.delta, &w.x, &w.qkv, &w.q, &w.attention, &w.inner,
                           &w.gate_up, &w.wide_inner, &w.final_x, &w.attention_codes, &w.x_scales,
                           &w.attention_scales, &w.inner_scales})
    *view = Rows(*view, num_tokens);
  w.experts = model::ForTokens(workspace.experts, num_tokens);
  return w;
}

// Of each window that layers here have.
Status Decoder::Impl::PlanAttention(const Batch& batch, const ops::KvCacheView& kv,
                                    Stream& stream) const {
  if (ops.plan_attention == nullptr) return Status::Ok();
  for (size_t i = 0; i < kv_places.windows().size(); ++i) {
    if (!kv_places.has_layers(i)) continue;
    const auto window = static_cast<int>(i);
    const KvPlaces::Inputs of_window = kv_places.Of(window, batch, kv);
    RETURN_IF_ERROR(ops.plan_attention({.batch = *of_window.paged,
                                        .kv = *of_window.kv,
                                        .num_heads = config().num_heads,
                                        .sliding = kv_places.windows()[i],
                                        .plan = window},
                                       stream));
  }
  return Status::Ok();
}

// w.x enters as this layer's normed input and leaves as the next one's, h in w.residual:
//   h = h + m Behind(Dense(Attention(x)));  h = h + m Behind(Mlp(MlpNorm(h)));  x = NextNorm(h)
// Behind: the layer's norms behind attention and feed-forward, where it has such.
Status Decoder::Impl::RunLayer(size_t idx, const Batch& batch, const ops::KvCacheView& kv,
                               const Workspace& w, Stream& stream) const {
  if (config().parallel_residual) return RunParallelLayer(idx, batch, kv, w, stream);
  const LayerWeights& layer = weights().layers[idx];
  const bool has_norms_behind = config().norm_placement != NormPlacement::kPre;
  // The router reads what is not rounded.
  const bool is_wide = !layer.router.empty() && !w.final_x.empty();
  RETURN_IF_ERROR(RunAttention(idx, batch, kv, w, stream));
  if (has_norms_behind) RETURN_IF_ERROR(NormInPlace(w.delta, layer.post_norm_weight, stream));
  RETURN_IF_ERROR(ops.add_norm({.residual = w.residual,
                                .delta = w.delta,
                                .delta_factor = config().residual_multiplier,
                                .delta_scales = Pending(w.delta, w.attention_scales, layer.dense),
                                .peers = PeersOfNorm(w.delta),
                                .norm = MlpNorm(layer),
                                .y = is_wide ? w.final_x : w.x,
                                .y_scales = is_wide ? TensorView{} : w.x_scales},
                               stream));
  RETURN_IF_ERROR(RunMlp(idx, batch, w, stream));
  if (has_norms_behind)
    RETURN_IF_ERROR(NormInPlace(w.delta, layer.post_feedforward_norm_weight, stream));
  return EnterNextLayer(idx, w, stream);
}

// h = h + m w.delta;  w.x = NextNorm(h)
Status Decoder::Impl::EnterNextLayer(size_t idx, const Workspace& w, Stream& stream) const {
  const LayerWeights& layer = weights().layers[idx];
  const bool is_last = idx + 1 == weights().layers.size();
  const bool for_head = is_last && !w.final_x.empty();
  if (!is_last) RETURN_IF_ERROR(BeginLayer(idx + 1, stream));  // whose norm comes here
  RETURN_IF_ERROR(ops.add_norm(
      {.residual = w.residual,
       .delta = w.delta,
       .delta_factor = config().residual_multiplier,
       .delta_scales = layer.router.empty() ? Pending(w.delta, w.inner_scales, layer.proj)
                                            : ops::PendingScales{},
       .peers = PeersOfNorm(w.delta),
       .norm = InputNorm(idx + 1),
       .y = for_head ? w.final_x : w.x,
       .y_scales = for_head ? TensorView{} : w.x_scales},
      stream));
  return EndLayer(idx, stream);
}

// w.delta = Dense(Attention(w.x))
Status Decoder::Impl::RunAttention(size_t idx, const Batch& batch, const ops::KvCacheView& kv,
                                   const Workspace& w, Stream& stream) const {
  const LayerWeights& layer = weights().layers[idx];
  const ops::LoraTerm lora = {batch.adapters, static_cast<int>(idx)};
  const int64_t q_stride = w.q.data == w.qkv.data ? w.qkv.shape[1] : 0;
  const int window = kv_places.window_of(idx);
  const KvPlaces::Inputs of_window = kv_places.Of(window, batch, kv);
  RETURN_IF_ERROR(ops.qkv_rope_kv({.x = {.values = w.x, .scales = w.x_scales},
                                   .weight = layer.qkv,
                                   .bias = layer.qkv_bias,
                                   .num_heads = config().num_heads,
                                   .q_norm = layer.q_norm_weight,
                                   .k_norm = layer.k_norm_weight,
                                   .norm_eps = config().norm_eps,
                                   .rope = RopeOf(idx),
                                   .batch = *of_window.paged,
                                   .kv = *of_window.kv,
                                   .layer = kv_places.kv_layer_of(idx),
                                   .workspace = w.qkv,
                                   .scratch = w.scratch,
                                   .lora = lora,
                                   .q = w.q,
                                   .q_stride = q_stride},
                                  stream));
  RETURN_IF_ERROR(ops.attention({.q = w.q,
                                 .q_stride = q_stride,
                                 .batch = *of_window.paged,
                                 .kv = *of_window.kv,
                                 .layer = kv_places.kv_layer_of(idx),
                                 .scale = attention_scale,
                                 .softcap = config().attention_softcap,
                                 .sink_logits = layer.sink_logits,
                                 .sliding = kv_places.windows()[static_cast<size_t>(window)],
                                 .plan = window,
                                 .y = w.attention},
                                stream));
  ops::Activation attention = {.values = w.attention};
  if (!w.attention_codes.empty()) {
    RETURN_IF_ERROR(ops.quantize(
        {.x = w.attention, .y = w.attention_codes, .scales = w.attention_scales}, stream));
    attention = {.values = w.attention_codes, .scales = w.attention_scales};
  }
  RETURN_IF_ERROR(ops.linear({.x = attention,
                              .weight = layer.dense,
                              .bias = AddedOnce(layer.dense_bias),
                              .y = w.delta,
                              .scratch = w.scratch,
                              .lora = lora,
                              .site = ops::LoraSite::kDense,
                              .defer_scales = Defers(w.delta)},
                             stream));
  return AddUpDelta(w.delta, stream);
}

// w.delta = Mlp(w.x)
Status Decoder::Impl::RunMlp(size_t idx, const Batch& batch, const Workspace& w,
                             Stream& stream) const {
  const LayerWeights& layer = weights().layers[idx];
  if (!layer.router.empty()) {
    RETURN_IF_ERROR(RunExpertMlp(config(), ops,
                                 {.layer = &layer,
                                  .x = {.values = w.x, .scales = w.x_scales},
                                  .wide_x = w.final_x,
                                  .scratch = w.scratch,
                                  .workspace = w.experts,
                                  .delta = w.delta},
                                 stream));
    return AddUpDelta(w.delta, stream);
  }
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
                                .site = ops::LoraSite::kFc,
                                .workspace = w.gate_up},
                               stream));
    if (is_rounded)
      RETURN_IF_ERROR(
          ops.quantize({.x = w.wide_inner, .y = w.inner, .scales = w.inner_scales}, stream));
  }
  RETURN_IF_ERROR(ops.linear({.x = {.values = w.inner, .scales = w.inner_scales},
                              .weight = layer.proj,
                              .bias = AddedOnce(layer.proj_bias),
                              .activation = ops::ActivationKind::kNone,
                              .y = w.delta,
                              .scratch = w.scratch,
                              .lora = lora,
                              .site = ops::LoraSite::kProj,
                              .defer_scales = Defers(w.delta)},
                             stream));
  return AddUpDelta(w.delta, stream);
}

}  // namespace inflight::model
