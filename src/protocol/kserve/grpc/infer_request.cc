// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/infer_request.h"

#include <optional>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "protocol/kserve/grpc/parameters.h"
#include "protocol/kserve/grpc/tensor_contents.h"

namespace inflight::kserve_grpc {
namespace {

using ::inference::InferParameter;
using ::inference::ModelInferRequest;
using serving::Tensor;

constexpr char kRegion[] = "shared_memory_region";
constexpr char kRegionOffset[] = "shared_memory_offset";
constexpr char kRegionSize[] = "shared_memory_byte_size";

Status CheckInt64(const ParameterMap& parameters, const char* key, const std::string& tensor) {
  const auto it = parameters.find(key);
  if (it == parameters.end() || it->second.parameter_choice_case() == InferParameter::kInt64Param) {
    return Status::Ok();
  }
  return InvalidArgument(std::string("invalid value type for '") + key +
                         "' parameter for tensor '" + tensor + "', expected int64_param.");
}

// None where the tensor is not in shared memory.
Result<std::optional<serving::SharedWindow>> FindWindow(const ParameterMap& parameters,
                                                        const std::string& tensor,
                                                        const serving::ClientRegions& regions) {
  const auto region = parameters.find(kRegion);
  if (region == parameters.end()) {
    for (const char* key : {kRegionOffset, kRegionSize}) {
      if (!parameters.contains(key)) continue;
      return InvalidArgument(std::string("'") + key +
                             "' can not be specified without 'shared_memory_region' parameter for "
                             "tensor '" +
                             tensor + "'");
    }
    return std::optional<serving::SharedWindow>();
  }
  if (region->second.parameter_choice_case() != InferParameter::kStringParam) {
    return InvalidArgument("invalid value type for 'shared_memory_region' parameter for tensor '" +
                           tensor + "', expected string_param.");
  }
  const auto size = parameters.find(kRegionSize);
  if (size == parameters.end()) {
    return InvalidArgument(
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter "
        "for tensor '" +
        tensor + "'");
  }
  RETURN_IF_ERROR(CheckInt64(parameters, kRegionSize, tensor));
  RETURN_IF_ERROR(CheckInt64(parameters, kRegionOffset, tensor));
  const auto offset = parameters.find(kRegionOffset);
  // Negative numbers become large ones, which lie outside any region.
  ASSIGN_OR_RETURN(
      serving::SharedWindow window,
      regions.Window(
          region->second.string_param(),
          offset == parameters.end() ? 0 : static_cast<uint64_t>(offset->second.int64_param()),
          static_cast<uint64_t>(size->second.int64_param())));
  return std::optional(std::move(window));
}

Status ParseOutput(const ModelInferRequest::InferRequestedOutputTensor& output,
                   const serving::ClientRegions& regions, serving::Request& request) {
  const ParameterMap& parameters = output.parameters();
  serving::OutputRule rule;
  if (const auto it = parameters.find("classification"); it != parameters.end()) {
    if (parameters.contains(kRegion)) {
      return InvalidArgument("output can't set both 'shared_memory_region' and 'classification'");
    }
    if (it->second.parameter_choice_case() != InferParameter::kInt64Param) {
      return InvalidArgument(
          "invalid value type for 'classification' parameter, expected int64_param");
    }
    if (it->second.int64_param() <= 0) {  // the text says less than the check
      return InvalidArgument("invalid value for 'classification' parameter, expected >= 0");
    }
    rule.num_classes = static_cast<uint64_t>(it->second.int64_param());
  }
  ASSIGN_OR_RETURN(rule.window, FindWindow(parameters, output.name(), regions));
  if (rule.window) request.regions.push_back(rule.window->TakeUse());
  if (rule.num_classes > 0 || rule.window) {
    request.output_rules.emplace(output.name(), std::move(rule));
  }
  request.requested_outputs.push_back(output.name());
  return Status::Ok();
}

// `raw_index`: the next entry of raw_input_contents; advanced when it is taken.
// The most that typed contents are packed to.
size_t PackedBytes(const ::inference::InferTensorContents& contents) {
  const int num_numbers = contents.bool_contents_size() + contents.int_contents_size() +
                          contents.int64_contents_size() + contents.uint_contents_size() +
                          contents.uint64_contents_size() + contents.fp32_contents_size() +
                          contents.fp64_contents_size();
  size_t bytes = sizeof(uint64_t) * static_cast<size_t>(num_numbers);
  for (const std::string& text : contents.bytes_contents()) bytes += sizeof(uint32_t) + text.size();
  return bytes;
}

// `shared_left`: serving::SharedWindow::Read. `charge` grows by what is made beside the message.
Status ParseInput(const std::shared_ptr<const ModelInferRequest>& message,
                  const ModelInferRequest::InferInputTensor& input,
                  const serving::ClientRegions& regions, int& raw_index, uint64_t& shared_left,
                  MemoryCharge& charge, serving::Request& request) {
  const ParameterMap& parameters = input.parameters();
  if (parameters.contains(kRegion) && input.has_contents()) {
    return InvalidArgument(
        "unexpected 'content' provided when using shared memory for input "
        "tensor '" +
        input.name() + "' for model '" + message->model_name() + "'");
  }
  ASSIGN_OR_RETURN(auto window, FindWindow(parameters, input.name(), regions));

  Tensor tensor;
  tensor.name = input.name();
  tensor.datatype =
      serving::DataTypeFromName(input.datatype()).value_or(serving::DataType::kInvalid);
  tensor.shape.assign(input.shape().begin(), input.shape().end());
  if (window) {
    request.regions.push_back(window->TakeUse());
    RETURN_IF_ERROR(charge.Resize(charge.bytes() + window->byte_size()));
    ASSIGN_OR_RETURN(std::string bytes, window->Read(shared_left));
    tensor = Tensor::FromBytes(std::move(tensor.name), tensor.datatype, std::move(tensor.shape),
                               std::move(bytes));
  } else if (message->raw_input_contents_size() > 0) {
    if (input.has_contents()) {
      return InvalidArgument(
          "contents field must not be specified when using raw_input_contents for '" +
          input.name() + "' for model '" + message->model_name() + "'");
    }
    if (raw_index >= message->raw_input_contents_size()) {
      return MissingData(input.name(), message->model_name());
    }
    const std::string& raw = message->raw_input_contents(raw_index++);
    tensor.data = std::as_bytes(std::span<const char>(raw.data(), raw.size()));
    tensor.owner = message;
  } else {
    if (!input.has_contents()) return MissingData(input.name(), message->model_name());
    RETURN_IF_ERROR(charge.Resize(charge.bytes() + PackedBytes(input.contents())));
    ASSIGN_OR_RETURN(std::string bytes, TensorBytes(input.contents(), tensor.datatype, input.name(),
                                                    message->model_name()));
    tensor = Tensor::FromBytes(std::move(tensor.name), tensor.datatype, std::move(tensor.shape),
                               std::move(bytes));
  }
  request.inputs.push_back(std::move(tensor));
  return Status::Ok();
}

}  // namespace

Result<InferRequest> ParseInferRequest(const std::shared_ptr<const ModelInferRequest>& message,
                                       const serving::ClientRegions& regions, int64_t received_ns,
                                       MemoryCharge charge) {
  InferRequest parsed;
  serving::Request& request = parsed.request;
  request.model_name = message->model_name();
  request.model_version = message->model_version();
  request.id = message->id();
  request.received_ns = received_ns;
  RETURN_IF_ERROR(ParseParameters(message->parameters(), request, parsed.enable_empty_final));
  for (const auto& output : message->outputs())
    RETURN_IF_ERROR(ParseOutput(output, regions, request));
  request.inputs.reserve(message->inputs_size());
  int raw_index = 0;
  uint64_t shared_left = serving::kMaxSharedInputBytes;
  for (const auto& input : message->inputs()) {
    RETURN_IF_ERROR(ParseInput(message, input, regions, raw_index, shared_left, charge, request));
  }
  request.memory = charge.share();
  if (charge.bytes() > 0) request.charge = std::make_shared<const MemoryCharge>(std::move(charge));
  return parsed;
}

}  // namespace inflight::kserve_grpc
