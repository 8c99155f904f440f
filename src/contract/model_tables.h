// SPDX-License-Identifier: Apache-2.0
// The tensors of the four serving models, as the 0.11 release declares them, and what later ones
// added for requests of several rows and for counts of tokens: what a server without a
// repository offers, and by which names the models of a repository are recognised.
//
// Shapes leave out the batch dimension (docs/reference/requests.md).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "contract/tensor.h"

namespace inflight::contract {

struct TensorSpec {
  std::string_view name;
  DataType type = DataType::kInvalid;
  std::vector<int64_t> dims;  // -1 = any
  bool optional = false;
  bool is_scalar = false;  // declared [1] with an empty reshape: the model sees [batch]
  bool is_ragged = false;  // requests of unequal shape may be grouped
};

struct TensorLink {
  std::string_view from;
  std::string_view to;
};

std::span<const TensorSpec> PreprocessingInputs();
std::span<const TensorSpec> PreprocessingOutputs();
std::span<const TensorSpec> LlmInputs();
std::span<const TensorSpec> LlmOutputs();
std::span<const TensorSpec> PostprocessingInputs();
std::span<const TensorSpec> PostprocessingOutputs();
std::span<const TensorSpec> EnsembleInputs();
std::span<const TensorSpec> EnsembleOutputs();

// The ensemble's graph. Inputs: {input of the member, ensemble tensor}; outputs: {output of the
// member, ensemble tensor}, the order of Triton's input_map and output_map.
std::span<const TensorLink> PreprocessingStepInputs();
std::span<const TensorLink> PreprocessingStepOutputs();
std::span<const TensorLink> LlmStepInputs();
std::span<const TensorLink> LlmStepOutputs();
std::span<const TensorLink> PostprocessingStepInputs();
std::span<const TensorLink> PostprocessingStepOutputs();

}  // namespace inflight::contract
