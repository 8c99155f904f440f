// SPDX-License-Identifier: Apache-2.0
// What a model's tokens cost in bytes and operations, and the time that a device with given limits
// needs for them at least (docs/reference/kernels.md, "Limits of the hardware").
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace inflight::tool {

struct ModelCost {
  explicit ModelCost(const model::ModelConfig& config);

  double layer_flops = 0;   // of the layers' linears for one token: two per weight
  double head_flops = 0;    // of lm_head for one token
  double layer_bytes = 0;   // of the layers' linear weights but for those of routed experts
  double expert_bytes = 0;  // of one routed expert of each layer that has such
  int num_experts = 0;      // of those
  int experts_per_token = 0;
  double head_bytes = 0;
  double kv_bytes = 0;         // K and V of one token, all layers
  double attention_flops = 0;  // of one token for each token of its context

  // Of the layers' weights that a step of so many tokens reads, if each one's experts are drawn
  // from all with equal chances.
  double LayerBytes(double num_tokens) const;
};

// Measured rates of a device.
struct Rates {
  double bytes_per_s = 0;
  double layer_flops = 0;  // in the dtype that the layers compute in
  double head_flops = 0;
  double attention_flops = 0;
};

// `requests` prompts of `input_len` tokens, each continued by `output_len`, all at once.
struct Scenario {
  int requests = 1;
  int input_len = 1;
  int output_len = 1;
  std::string ToString() const;  // "64x1024/256"
};
Result<std::vector<Scenario>> ParseScenarios(const std::string& text);  // "64x1024/256,1x128/256"

// Sums without overlap: prompts at the arithmetic rates; each decode step the weights' bytes or the
// arithmetic, whichever takes longer, and the bytes of K and V.
double LeastPrefillSeconds(const ModelCost& cost, const Rates& rates, const Scenario& scenario);
double LeastDecodeSeconds(const ModelCost& cost, const Rates& rates, const Scenario& scenario);

}  // namespace inflight::tool
