// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/raw_request.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "protocol/kserve/http/tensor_json.h"
#include "serving/tensors/data_types.h"

namespace inflight::kserve_http {
namespace {

using serving::DataType;
using serving::Tensor;

Status Invalid(const std::string& message) {
  return InvalidArgument("[request id: <id_unknown>] " + message);
}

// The only -1 of `dims` becomes what `num_elements` and the other dimensions leave.
Result<std::vector<int64_t>> DeduceShape(const std::string& name, DataType type,
                                         std::vector<int64_t> dims, uint64_t num_elements) {
  int64_t* variable = nullptr;
  std::vector<int64_t> fixed;
  for (int64_t& dim : dims) {
    if (dim >= 0) {
      fixed.push_back(dim);
    } else if (variable != nullptr) {
      return Invalid("The shape of the raw input '" + name +
                     "' can not be deduced because there are more than one variable-sized "
                     "dimension");
    } else {
      variable = &dim;
    }
  }
  if (variable != nullptr) {
    ASSIGN_OR_RETURN(const uint64_t fixed_elements, NumElements(name, type, fixed));
    *variable = fixed_elements == 0 ? 0 : static_cast<int64_t>(num_elements / fixed_elements);
  }
  return dims;
}

}  // namespace

Result<Tensor> RawInput(const ::inference::ModelConfig& config,
                        const std::shared_ptr<const std::string>& body) {
  if (config.input_size() != 1) {
    return Invalid("Raw request must only have 1 input (found 1) to be deduced but got " +
                   std::to_string(config.input_size()) + " inputs in '" + config.name() +
                   "' model configuration");
  }
  const ::inference::ModelInput& input = config.input(0);
  const DataType type = serving::FromProto(input.data_type());
  std::vector<int64_t> dims(input.dims().begin(), input.dims().end());
  if (type == DataType::kBytes) {
    if (dims != std::vector<int64_t>{1}) {
      return Invalid("For BYTE datatype raw input '" + input.name() +
                     "', the model must have input shape [1]");
    }
    if (config.max_batch_size() > 0) dims.insert(dims.begin(), 1);
    return Tensor::FromStrings(input.name(), std::move(dims), std::span(body.get(), 1));
  }
  const uint64_t num_elements = body->size() / std::max<size_t>(serving::DataTypeSize(type), 1);
  ASSIGN_OR_RETURN(std::vector<int64_t> shape,
                   DeduceShape(input.name(), type, std::move(dims), num_elements));
  if (config.max_batch_size() > 0) shape.insert(shape.begin(), 1);
  ASSIGN_OR_RETURN(const uint64_t expected, NumElements(input.name(), type, shape));
  const uint64_t expected_bytes = expected * serving::DataTypeSize(type);
  if (expected_bytes != body->size()) {
    return Invalid("input byte size mismatch for input 'raw_input' for model '" + config.name() +
                   "'. Expected " + std::to_string(expected_bytes) + ", got " +
                   std::to_string(body->size()));
  }
  return Tensor{.name = input.name(),
                .datatype = type,
                .shape = std::move(shape),
                .data = std::as_bytes(std::span(*body)),
                .owner = body};
}

}  // namespace inflight::kserve_http
