// SPDX-License-Identifier: Apache-2.0
// What of a model's description a backend computes. Everything that ModelConfig can say and a
// backend cannot do is refused here, by name; which kernels a GPU has is ops/backend.h's
// CheckRunnable.
#pragma once

#include <optional>
#include <string_view>

#include "model/config.h"
#include "tensor/device.h"

namespace inflight::model {

// What a backend's operators do that others do not.
struct BackendFacts {
  std::string_view name;
  // float32 beside weights and keys of fewer bits, and on ranks.
  bool has_all_of_float32 = false;
  bool has_fp8 = false;              // weights and activations of a scale per row, and KV cache
  bool has_all_grouped_fp8 = false;  // weights in groups beside float16, too
  bool has_all_experts = false;      // also those of HasExpertsToWiden
  bool has_column_order = false;     // linears whose columns have an order of their own
  bool has_scale_blocks = false;     // scales of groups in blocks
  bool has_integer_tables = false;   // embedding tables of integers, also such as are the head
};
BackendFacts FactsOf(DeviceKind device);

// What the option quantize_lm_head makes of a model for that backend (QuantizeHead); none leaves it
// as it is.
void SetHead(ModelConfig& config, std::optional<bool> quantize_lm_head,
             const BackendFacts& backend);

// kUnimplemented names the field, its value, the backend, what that supports and what to do.
// `config` has passed Validate.
Status CheckSupported(const ModelConfig& config, const BackendFacts& backend);

// The same of a model that so many ranks share.
Status CheckRanks(const ModelConfig& config, int num_ranks, const BackendFacts& backend);

// Whether a model runs on this very device: that its kernels can (ops/backend.h), and its backend.
Status CheckRuns(const ModelConfig& config, const Device& device);

}  // namespace inflight::model
