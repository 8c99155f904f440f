// SPDX-License-Identifier: Apache-2.0
#include "model/expert_mlp.h"

#include "base/status_macros.h"
#include "model/decoder.h"

namespace inflight::model {
namespace {

TensorView Cut(TensorView view, int64_t rows) {
  view.shape = view.shape.rank() == 1 ? Shape{rows} : Shape{rows, view.shape[1]};
  return view;
}

}  // namespace

void LayOutExperts(const ModelConfig& config, DeviceKind device, int64_t max_num_tokens,
                   TensorLayout& layout, ExpertWorkspace& out) {
  if (config.num_experts == 0) return;
  // Ranks read each other's tensors, which lie in the same places on all: each has room for what
  // the last one holds, which is the most.
  const int ep_size = config.part.moe_ep_size;
  const ops::HeldExperts held = ExpertsOfRank(config);
  const ops::HeldExperts most =
      ExpertsOfRank(config.num_experts, config.num_shared_experts, ep_size, ep_size - 1);
  const int64_t num_places = max_num_tokens * ExpertsOfToken(config);
  const int64_t most_places = max_num_tokens * (config.experts_per_token + most.num_shared);
  const auto place = [&](DType dtype, int64_t width = 0) {
    return Cut(layout.Place(dtype, width == 0 ? Shape{most_places} : Shape{most_places, width}),
               num_places);
  };
  out.logits = layout.Place(DType::kF32, {max_num_tokens, RouterRows(config)});
  out.routes.begins = Cut(layout.Place(DType::kI32, {most.size() + 1}), held.size() + 1);
  out.routes.tokens = place(DType::kI32);
  out.routes.weights = place(DType::kF32);
  out.routes.num_holders = ep_size;
  out.chosen = place(DType::kI32);
  out.chosen_weights = place(DType::kF32);
  out.inner = place(ActivationDType(config, device), config.expert_intermediate_size);
  if (device == DeviceKind::kCpu) return;
  out.routes.places = place(DType::kI32);
  out.parts = place(DType::kF32, config.hidden_size);
  if (!HasFp8Activations(config)) return;
  out.wide_inner = place(config.dtype, config.expert_intermediate_size);
  out.inner_scales = place(DType::kF32);
}

ExpertWorkspace ForTokens(const ExpertWorkspace& workspace, int64_t num_tokens) {
  if (workspace.logits.empty()) return workspace;
  const int64_t most_places = workspace.inner.shape[0];
  const int64_t num_places = num_tokens * (most_places / workspace.logits.shape[0]);
  ExpertWorkspace w = workspace;
  w.logits = Cut(w.logits, num_tokens);
  for (TensorView* view : {&w.routes.tokens, &w.routes.weights, &w.routes.places, &w.chosen,
                           &w.chosen_weights, &w.inner, &w.parts, &w.wide_inner, &w.inner_scales})
    if (!view->empty()) *view = Cut(*view, num_places);
  return w;
}

Status RunExpertMlp(const ModelConfig& config, const ops::OpTable& ops, const ExpertMlpParams& p,
                    Stream& stream) {
  const ExpertWorkspace& w = p.workspace;
  const bool is_added = config.part.moe_tp_rank() == 0;  // once, where ranks add up their parts
  std::optional<ops::HeldExperts> held;
  if (config.part.moe_ep_size > 1) held = ExpertsOfRank(config);
  if (!p.wide_x.empty())
    RETURN_IF_ERROR(ops.quantize({.x = p.wide_x, .y = p.x.values, .scales = p.x.scales}, stream));
  RETURN_IF_ERROR(ops.linear({.x = {.values = p.wide_x.empty() ? p.x.values : p.wide_x},
                              .weight = p.layer->router,
                              .bias = p.layer->router_bias,
                              .y = w.logits},
                             stream));
  RETURN_IF_ERROR(ops.route({.logits = w.logits,
                             .experts_per_token = config.experts_per_token,
                             .num_shared = config.num_shared_experts,
                             .renormalizes = config.has_renormalized_experts,
                             .held = held,
                             .routes = w.routes,
                             .chosen = w.chosen,
                             .chosen_weights = w.chosen_weights},
                            stream));
  RETURN_IF_ERROR(ops.expert_gated_linear({.x = p.x,
                                           .routes = w.routes,
                                           .weight = p.layer->fc,
                                           .bias = p.layer->fc_bias,
                                           .activation = config.activation,
                                           .limit = config.expert_limit,
                                           .y = w.inner,
                                           .y_scales = w.inner_scales,
                                           .scratch = p.scratch,
                                           .workspace = w.wide_inner},
                                          stream));
  return ops.expert_linear({.x = {.values = w.inner, .scales = w.inner_scales},
                            .routes = w.routes,
                            .weight = p.layer->proj,
                            .bias = is_added ? p.layer->proj_bias : TensorView{},
                            .y = p.delta,
                            .scratch = p.scratch,
                            .workspace = w.parts},
                           stream);
}

}  // namespace inflight::model
