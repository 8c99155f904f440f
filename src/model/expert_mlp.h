// SPDX-License-Identifier: Apache-2.0
// The feed-forward of a layer with experts (ops/experts.h).
#pragma once

#include "model/config.h"
#include "model/engine.h"
#include "ops/backend.h"
#include "tensor/stream.h"
#include "tensor/tensor_layout.h"

namespace inflight::model {

// What it computes in, of the largest step. num_places = max_num_tokens * ExpertsOfToken.
struct ExpertWorkspace {
  TensorView logits;  // [max_num_tokens, RouterRows] float32
  ops::ExpertRoutes routes;
  TensorView chosen, chosen_weights;  // of ops::RouteParams
  TensorView inner;  // [num_places, expert_intermediate_size] the dtype that linears read
  TensorView parts;  // CUDA: [num_places, hidden_size] float32
  // FP8 activations only: inner before it is rounded, and its scales, [num_places] float32.
  TensorView wide_inner, inner_scales;
};

// Places it; of a model without experts nothing.
void LayOutExperts(const ModelConfig& config, DeviceKind device, int64_t max_num_tokens,
                   TensorLayout& layout, ExpertWorkspace& out);

// What of it a step of `num_tokens` computes in.
ExpertWorkspace ForTokens(const ExpertWorkspace& workspace, int64_t num_tokens);

// delta = sum of the chosen experts' outputs. Of a model that is split each rank gives its part.
struct ExpertMlpParams {
  const LayerWeights* layer = nullptr;
  ops::Activation x;   // [num_tokens, hidden_size] the dtype that linears read
  TensorView wide_x;   // FP8 activations only: what x becomes here, and the router reads
  TensorView scratch;  // of linears
  ExpertWorkspace workspace;
  TensorView delta;  // [num_tokens, hidden_size] float32; on CUDA the model's dtype
};
Status RunExpertMlp(const ModelConfig& config, const ops::OpTable& ops,
                    const ExpertMlpParams& params, Stream& stream);

}  // namespace inflight::model
