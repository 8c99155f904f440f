// SPDX-License-Identifier: Apache-2.0
#include "serving/core/apply_output_rules.h"

#include "base/status_macros.h"
#include "serving/tensors/tensor_values.h"

namespace inflight::serving {
namespace {

Status Place(const SharedWindow& window, Tensor& tensor) {
  if (tensor.data.size() > window.byte_size()) {
    return Internal("shared memory size specified with the request for output '" + tensor.name +
                    "' (" + std::to_string(window.byte_size()) + " bytes) should be at least " +
                    std::to_string(tensor.data.size()) + " bytes to hold the results");
  }
  RETURN_IF_ERROR(window.Write(tensor.data));
  tensor.data = {};
  tensor.owner = nullptr;
  return Status::Ok();
}

}  // namespace

Status ApplyOutputRules(const OutputRules& rules, const Model& model, Response& response) {
  for (Tensor& tensor : response.outputs) {
    const auto rule = rules.find(tensor.name);
    if (rule == rules.end()) continue;
    if (rule->second.num_classes > 0) {
      const bool has_batch = model.config().max_batch_size() > 0;
      ASSIGN_OR_RETURN(
          tensor, Classify(tensor, has_batch, rule->second.num_classes, model.labels(tensor.name)));
    }
    if (rule->second.window) RETURN_IF_ERROR(Place(*rule->second.window, tensor));
  }
  return Status::Ok();
}

}  // namespace inflight::serving
