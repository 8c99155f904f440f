// SPDX-License-Identifier: Apache-2.0
#include "model/medusa_heads.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "model/decoder.h"
#include "tensor/element.h"
#include "tensor/tensor_layout.h"

namespace inflight::model {
namespace {

struct HeadWorkspace {
  TensorView x, operand, delta, all, logits;
};

// Places the workspace from `base` on and returns its size; a null base only measures.
uint64_t Place(const ModelConfig& config, int max_rows, std::byte* base, HeadWorkspace& out) {
  TensorLayout layout(base);
  const Shape hidden = {max_rows, config.hidden_size};
  out.x = layout.Place(DType::kF32, hidden);
  out.operand = layout.Place(ActivationDType(config, DeviceKind::kCpu), hidden);
  out.delta = layout.Place(DType::kF32, hidden);
  out.all = layout.Place(DType::kI32, {max_rows});
  out.logits = layout.Place(DType::kF32, {max_rows, config.vocab_size});
  return layout.num_bytes();
}

TensorView FirstRows(TensorView view, int64_t num_rows) {
  view.shape = view.shape.rank() == 1 ? Shape{num_rows} : Shape{num_rows, view.shape[1]};
  return view;
}

}  // namespace

uint64_t MedusaHeads::Bytes(const ModelConfig& config, int max_rows) {
  HeadWorkspace unused;
  return Place(config, max_rows, nullptr, unused);
}

Result<std::unique_ptr<MedusaHeads>> MedusaHeads::Create(std::shared_ptr<const Engine> engine,
                                                         ops::OpTable ops, Device& device,
                                                         int max_rows) {
  const ModelConfig& config = engine->config;
  std::unique_ptr<MedusaHeads> heads(new MedusaHeads());
  ASSIGN_OR_RETURN(heads->buffer_,
                   Buffer::Allocate(device, "Medusa's heads", Bytes(config, max_rows)));
  HeadWorkspace w;
  Place(config, max_rows, heads->buffer_.data(), w);
  heads->x_ = w.x;
  heads->operand_ = w.operand;
  heads->delta_ = w.delta;
  heads->all_ = w.all;
  heads->logits_ = w.logits;
  std::iota(w.all.as<int32_t>(), w.all.as<int32_t>() + max_rows, 0);
  heads->engine_ = std::move(engine);
  heads->ops_ = std::move(ops);
  return heads;
}

Result<TensorView> MedusaHeads::Logits(int head, const TensorView& states, const TensorView& rows,
                                       Stream& stream) {
  const int64_t num_rows = rows.shape[0];
  CHECK_LE(num_rows, x_.shape[0]);
  const MedusaHeadWeights& weights = engine_->weights.medusa_heads[static_cast<size_t>(head)];
  const int64_t width = engine_->config.hidden_size;
  const TensorView operand = FirstRows(operand_, num_rows);
  const TensorView delta = FirstRows(delta_, num_rows);
  auto* const x = x_.as<float>();
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t from = rows.as<const int32_t>()[r] * width;
    for (int64_t i = 0; i < width; ++i)
      x[r * width + i] = LoadFloat(states.data, states.dtype, from + i);
  }
  const auto round = [&] {
    for (int64_t i = 0; i < num_rows * width; ++i) StoreFloat(operand.data, operand.dtype, i, x[i]);
  };
  round();
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    RETURN_IF_ERROR(ops_.linear({.x = {.values = operand},
                                 .weight = weights.layers[l],
                                 .bias = weights.layer_biases[l],
                                 .activation = ops::ActivationKind::kSilu,
                                 .y = delta},
                                stream));
    for (int64_t i = 0; i < num_rows * width; ++i) x[i] += delta.as<const float>()[i];
    round();
  }
  const TensorView logits = FirstRows(logits_, num_rows);
  RETURN_IF_ERROR(ops_.lm_head({.x = {.values = operand},
                                .rows = FirstRows(all_, num_rows),
                                .weight = weights.lm_head,
                                .bias = {},
                                .logits = logits},
                               stream));
  return logits;
}

}  // namespace inflight::model
