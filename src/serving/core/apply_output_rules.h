// SPDX-License-Identifier: Apache-2.0
// Turns a model's outputs into what its client asked for (output_rule.h).
#pragma once

#include "serving/core/model.h"
#include "serving/core/output_rule.h"

namespace inflight::serving {

// kInternal when a window is too small for its output, kInvalidArgument for a datatype that cannot
// be classified. What went to shared memory has no bytes left here.
Status ApplyOutputRules(const OutputRules& rules, const Model& model, Response& response);

// The `num_classes` largest elements of each item of the batch, as "value:index" or
// "value:index:label" (docs/reference/protocol/common.md); of equal ones the first.
Result<Tensor> Classify(const Tensor& tensor, bool has_batch, uint64_t num_classes,
                        const std::vector<std::string>& labels);

}  // namespace inflight::serving
