// SPDX-License-Identifier: Apache-2.0
#include "serving/core/validate.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <string>

#include "base/status_macros.h"
#include "serving/tensors/data_types.h"

namespace inflight::serving {
namespace {

using ::inference::ModelConfig;
using ::inference::ModelInput;

const ModelInput* FindInputConfig(const ModelConfig& config, std::string_view name) {
  for (const ModelInput& input : config.input()) {
    if (input.name() == name) return &input;
  }
  return nullptr;
}

template <typename Dims>
std::string ShapeText(const Dims& dims, bool with_batch) {
  std::string text = with_batch ? "[-1" : "[";
  for (const int64_t dim : dims) {
    if (text.size() > 1) text += ",";
    text += std::to_string(dim);
  }
  return text + "]";
}

void AppendName(std::string& list, const std::string& name) {
  if (!list.empty()) list += ",";
  list += "'" + name + "'";
}

// Only the number is checked, as clients of old servers rely on; a required input that is missing
// beside extra optional ones is for the model to report.
Status CheckInputCount(const ModelConfig& config, const Request& request) {
  size_t num_required = 0;
  for (const ModelInput& input : config.input()) num_required += input.optional() ? 0 : 1;
  const auto num_all = static_cast<size_t>(config.input_size());
  const size_t num_got = request.inputs.size();
  if (num_got >= num_required && num_got <= num_all) return Status::Ok();

  std::string got, missing;
  for (const Tensor& input : request.inputs) AppendName(got, input.name);
  for (const ModelInput& input : config.input()) {
    if (!input.optional() && request.FindInput(input.name()) == nullptr) {
      AppendName(missing, input.name());
    }
  }
  const std::string expected = num_required == num_all
                                   ? "expected " + std::to_string(num_all) + " inputs but got "
                                   : "expected number of inputs between " +
                                         std::to_string(num_required) + " and " +
                                         std::to_string(num_all) + " but got ";
  return InvalidArgument(
      expected + std::to_string(num_got) + " inputs for model '" + config.name() +
      "'. Got input(s) [" + got + "], but missing required input(s) " +
      (missing.empty() ? "]" : "[" + missing + "]") + ". Please provide all required input(s).");
}

// BYTES elements: each has its length before it, and there are as many as the shape says.
Status CheckStrings(const ModelConfig& config, const Tensor& input, int64_t expected) {
  const std::string where =
      "for inference input '" + input.name + "' for model '" + config.name() + "'";
  int64_t count = 0;
  size_t pos = 0;
  while (pos < input.data.size()) {
    uint32_t length = 0;
    if (input.data.size() - pos < sizeof(length)) {
      return InvalidArgument("incomplete string length indicator " + where +
                             ", expecting 4 bytes but only " +
                             std::to_string(input.data.size() - pos) +
                             " bytes available. Please make sure the string length indicator is in "
                             "one buffer.");
    }
    std::memcpy(&length, input.data.data() + pos, sizeof(length));
    pos += sizeof(length);
    // A last string that is cut short is for the model to reject.
    pos += std::min<size_t>(length, input.data.size() - pos);
    if (++count > expected) {
      return InvalidArgument("unexpected number of string elements " + std::to_string(count) + " " +
                             where + ", expecting " + std::to_string(expected));
    }
  }
  if (count != expected) {
    return InvalidArgument("expected " + std::to_string(expected) + " string elements " + where +
                           ", got " + std::to_string(count));
  }
  return Status::Ok();
}

Status CheckShape(const ModelConfig& config, const ModelInput& expected, const Tensor& input) {
  const bool batching = config.max_batch_size() > 0;
  const size_t skip = batching ? 1 : 0;
  bool matches = input.shape.size() == static_cast<size_t>(expected.dims_size()) + skip;
  for (size_t i = 0; matches && i < static_cast<size_t>(expected.dims_size()); ++i) {
    const int64_t want = expected.dims(static_cast<int>(i));
    const int64_t got = input.shape[i + skip];
    matches = got >= 0 && (want == -1 || want == got);
  }
  if (matches) return Status::Ok();
  std::string message = "unexpected shape for input '" + input.name + "' for model '" +
                        config.name() + "'. Expected " + ShapeText(expected.dims(), batching) +
                        ", got " + ShapeText(input.shape, /*with_batch=*/false) + ".";
  if (batching) {
    message +=
        " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension "
        "to be prepended to each input shape. If you want to specify the full shape including the "
        "batch dim in your input dims config, try setting max_batch_size to zero. See the model "
        "configuration docs for more info on max_batch_size.";
  } else {
    message += " ";  // the place of that note; old servers leave the blank, and texts are compared
  }
  return InvalidArgument(std::move(message));
}

Status CheckBatch(const ModelConfig& config, const Tensor& input, int64_t& batch_size) {
  if (input.shape.empty()) {
    return InvalidArgument("input '" + input.name +
                           "' has no shape but model requires batch dimension for '" +
                           config.name() + "'");
  }
  if (batch_size == -1) batch_size = input.shape.front();
  if (input.shape.front() == batch_size) return Status::Ok();
  return InvalidArgument("input '" + input.name + "' batch size does not match other inputs for '" +
                         config.name() + "'");
}

// An empty batch has the bytes of a batch of one, as old servers count them.
int64_t NumElements(const ModelConfig& config, const Tensor& input) {
  if (config.max_batch_size() == 0 || input.shape.front() != 0) return input.num_elements();
  Tensor one{.shape = input.shape};
  one.shape.front() = 1;
  return one.num_elements();
}

Status CheckInput(const ModelConfig& config, const ModelInput& expected, const Tensor& input) {
  if (const DataType type = FromProto(expected.data_type()); input.datatype != type) {
    return InvalidArgument("inference input '" + input.name + "' data-type is '" +
                           std::string(DataTypeName(input.datatype)) + "', but model '" +
                           config.name() + "' expects '" + std::string(DataTypeName(type)) + "'");
  }
  RETURN_IF_ERROR(CheckShape(config, expected, input));
  const int64_t num_elements = NumElements(config, input);
  if (num_elements < 0) {
    return InvalidArgument("input '" + input.name + "' for model '" + config.name() +
                           "' has a shape of too many elements");
  }
  if (input.datatype == DataType::kBytes) return CheckStrings(config, input, num_elements);
  const auto element = static_cast<uint64_t>(DataTypeSize(input.datatype));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(num_elements), element, &bytes) ||
      bytes != input.data.size()) {
    return InvalidArgument("input byte size mismatch for input '" + input.name + "' for model '" +
                           config.name() + "'. Expected " + std::to_string(bytes) + ", got " +
                           std::to_string(input.data.size()));
  }
  return Status::Ok();
}

// From the last input to the first: of two that are wrong, old servers name the later one.
Status CheckInputs(const ModelConfig& config, const Request& request) {
  const auto last_first = std::views::reverse(request.inputs);
  int64_t batch_size = -1;
  if (config.max_batch_size() > 0) {
    for (const Tensor& input : last_first) RETURN_IF_ERROR(CheckBatch(config, input, batch_size));
    if (batch_size > config.max_batch_size()) {
      return InvalidArgument(
          "inference request batch-size must be <= " + std::to_string(config.max_batch_size()) +
          " for '" + config.name() + "'");
    }
  }
  for (const Tensor& input : last_first) {
    RETURN_IF_ERROR(CheckInput(config, *FindInputConfig(config, input.name), input));
  }
  if (batch_size == 0) {
    return InvalidArgument("inference request batch-size must be >= 1 for '" + config.name() + "'");
  }
  return Status::Ok();
}

// Unknown names carry no request id: that is how the messages are known.
Status CheckNames(const ModelConfig& config, const Request& request) {
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const std::string& name = request.inputs[i].name;
    if (FindInputConfig(config, name) == nullptr) {
      return InvalidArgument("unexpected inference input '" + name + "' for model '" +
                             config.name() + "'");
    }
    for (size_t j = 0; j < i; ++j) {
      if (request.inputs[j].name == name) {
        return WithRequestId(InvalidArgument("input '" + name + "' already exists in request"),
                             request);
      }
    }
  }
  return Status::Ok();
}

Status CheckOutputNames(const ModelConfig& config, const Request& request) {
  for (const std::string& name : request.requested_outputs) {
    bool known = false;
    for (const auto& output : config.output()) known |= output.name() == name;
    if (!known) {
      return InvalidArgument("unexpected inference output '" + name + "' for model '" +
                             config.name() + "'");
    }
  }
  return Status::Ok();
}

}  // namespace

Status WithRequestId(const Status& status, const Request& request) {
  if (status.ok()) return status;
  return status.WithMessage("[request id: " + (request.id.empty() ? "<id_unknown>" : request.id) +
                            "] " + status.message());
}

Status ValidateRequest(const ModelConfig& config, const Request& request) {
  RETURN_IF_ERROR(CheckOutputNames(config, request));
  RETURN_IF_ERROR(WithRequestId(CheckInputCount(config, request), request));
  RETURN_IF_ERROR(CheckNames(config, request));
  return WithRequestId(CheckInputs(config, request), request);
}

}  // namespace inflight::serving
