// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_workspace.h"

#include <algorithm>

#include "base/check.h"
#include "model/adapter.h"
#include "model/decoder.h"
#include "model/rope.h"
#include "tensor/tensor_layout.h"

namespace inflight::model {
namespace {

DType StreamDType(const ModelConfig& config, DeviceKind device) {
  return device == DeviceKind::kCpu ? DType::kF32 : config.dtype;
}

}  // namespace

uint64_t LayOut(const ModelConfig& config, DeviceKind device, int max_seq_len, int max_num_tokens,
                int max_logits, std::byte* base, DecoderWorkspace& out) {
  TensorLayout layout(base);
  const bool is_cuda = device == DeviceKind::kCuda;
  const bool has_fp8 = HasFp8Activations(config);
  const DType activation = ActivationDType(config, device);
  const DType stream = StreamDType(config, device);
  const int64_t tokens = max_num_tokens;
  const int64_t q_width = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.num_kv_heads} * config.head_dim;
  out.residual = layout.Place(stream, {tokens, config.hidden_size});
  out.delta = layout.Place(stream, {tokens, config.hidden_size});
  out.x = layout.Place(activation, {tokens, config.hidden_size});
  out.qkv = layout.Place(stream, {tokens, q_width + 2 * kv_width});
  const Shape q_shape{tokens, config.num_heads, KvRowDim(config, device)};
  const bool is_q_in_qkv = is_cuda && q_shape[2] == config.head_dim;
  out.q = is_q_in_qkv ? TensorView{out.qkv.data, stream, q_shape} : layout.Place(stream, q_shape);
  out.attention = layout.Place(has_fp8 ? config.dtype : activation, {tokens, q_width});
  if (HasDenseLayers(config))
    out.inner = layout.Place(activation, {tokens, config.intermediate_size});
  LayOutExperts(config, device, tokens, layout, out.experts);
  if (is_cuda && config.gated_mlp && HasDenseLayers(config))
    out.gate_up = layout.Place(config.dtype, {tokens, 2 * int64_t{config.intermediate_size}});
  else if (is_cuda && !config.gated_mlp && TakesAdapters(config))
    out.gate_up = layout.Place(config.dtype, {tokens, config.intermediate_size});
  if (has_fp8 && !config.gated_mlp)
    out.wide_inner = layout.Place(config.dtype, {tokens, config.intermediate_size});
  if (!is_cuda || config.part.is_last_stage())
    out.logits = layout.Place(DType::kF32, {max_logits, config.vocab_size});
  if (config.part.tp_size > 1 && config.part.is_last_stage())
    out.rank_logits = layout.Place(DType::kF32, {max_logits, VocabRows(config)});
  const size_t scratch =
      is_cuda ? 0 : LinearScratchBytes(config, std::max<int64_t>(tokens, max_logits));
  if (scratch > 0) out.scratch = layout.Place(DType::kU8, {static_cast<int64_t>(scratch)});
  if (config.position != PositionKind::kLearnedAbsolute)
    out.cos_sin = layout.Place(DType::kF32, {max_seq_len, 2, RotaryDim(config) / 2});
  if (config.sliding_rope_theta)
    out.sliding_cos_sin = layout.Place(DType::kF32, {max_seq_len, 2, RotaryDim(config) / 2});
  if (has_fp8) {
    out.final_x = layout.Place(config.dtype, {tokens, config.hidden_size});
    out.attention_codes = layout.Place(DType::kF8E4M3, {tokens, q_width});
    for (TensorView* scales : {&out.x_scales, &out.attention_scales, &out.inner_scales})
      *scales = layout.Place(DType::kF32, {tokens});
  }
  return layout.num_bytes();
}

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

}  // namespace inflight::model
