// SPDX-License-Identifier: Apache-2.0
#include "serving/core/validate.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
    if (got == -1) {
      return InvalidArgument("All input dimensions should be specified for input '" + input.name +
                             "' for model '" + config.name() + "', got " +
                             ShapeText(input.shape, /*with_batch=*/false));
    }
    matches = want == -1 || want == got;
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

Status CheckBatch(const ModelConfig& config, const Tensor& input,
                  std::optional<int64_t>& batch_size) {
  if (input.shape.empty()) {
    return InvalidArgument("input '" + input.name +
                           "' has no shape but model requires batch dimension for '" +
                           config.name() + "'");
  }
  const bool is_first = !batch_size;
  if (is_first) batch_size = input.shape.front();
  if (is_first || (input.shape.front() == *batch_size && *batch_size >= 0)) return Status::Ok();
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

Status CheckTypeAndShape(const ModelConfig& config, const ModelInput& expected,
                         const Tensor& input) {
  if (const DataType type = FromProto(expected.data_type()); input.datatype != type) {
    return InvalidArgument("inference input '" + input.name + "' data-type is '" +
                           std::string(DataTypeName(input.datatype)) + "', but model '" +
                           config.name() + "' expects '" + std::string(DataTypeName(type)) + "'");
  }
  return CheckShape(config, expected, input);
}

// Shapes that no data has. Carries no request id, like unknown names.
Status CheckCountable(const ModelConfig& config, const Tensor& input) {
  const bool is_text = input.datatype == DataType::kBytes;
  if (std::ranges::any_of(input.shape, [](int64_t dim) { return dim < 0; })) {
    return InvalidArgument("tensor '" + input.name + "' contains an invalid dimension " +
                           (is_text ? "in shape " : "") +
                           ShapeText(input.shape, /*with_batch=*/false));
  }
  const int64_t num_elements = NumElements(config, input);
  const int64_t element = is_text ? 1 : DataTypeSize(input.datatype);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (num_elements >= 0 && num_elements <= kMax / element) return Status::Ok();
  return InvalidArgument((is_text ? "element count for tensor '" : "byte size for tensor '") +
                         input.name + "' exceeds maximum size of " + std::to_string(kMax));
}

Status CheckBytes(const ModelConfig& config, const Tensor& input) {
  const int64_t num_elements = NumElements(config, input);
  if (input.datatype == DataType::kBytes) return CheckStrings(config, input, num_elements);
  const auto bytes =
      static_cast<uint64_t>(num_elements) * static_cast<uint64_t>(DataTypeSize(input.datatype));
  if (bytes != input.data.size()) {
    return InvalidArgument("input byte size mismatch for input '" + input.name + "' for model '" +
                           config.name() + "'. Expected " + std::to_string(bytes) + ", got " +
                           std::to_string(input.data.size()));
  }
  return Status::Ok();
}

// From the last input to the first: of two that are wrong, old servers name the later one.
Status CheckInputs(const ModelConfig& config, const Request& request) {
  const auto last_first = std::views::reverse(request.inputs);
  const auto with_id = [&request](const Status& status) { return WithRequestId(status, request); };
  std::optional<int64_t> batch_size;
  const std::string batch = "inference request batch-size must be ";
  if (config.max_batch_size() > 0) {
    for (const Tensor& input : last_first) {
      RETURN_IF_ERROR(with_id(CheckBatch(config, input, batch_size)));
    }
    // A negative batch is read as a large one.
    if (batch_size && (*batch_size < 0 || *batch_size > config.max_batch_size())) {
      return with_id(InvalidArgument(batch + "<= " + std::to_string(config.max_batch_size()) +
                                     " for '" + config.name() + "'"));
    }
  }
  for (const Tensor& input : last_first) {
    const ModelInput& expected = *FindInputConfig(config, input.name);
    RETURN_IF_ERROR(with_id(CheckTypeAndShape(config, expected, input)));
    RETURN_IF_ERROR(CheckCountable(config, input));
    RETURN_IF_ERROR(with_id(CheckBytes(config, input)));
  }
  if (batch_size == 0) {
    return with_id(InvalidArgument(batch + ">= 1 for '" + config.name() + "'"));
  }
  return Status::Ok();
}

// Unknown names carry no request id: that is how the messages are known.
Status CheckNames(const ModelConfig& config, const Request& request) {
  for (const Tensor& input : request.inputs) {
    if (FindInputConfig(config, input.name) != nullptr) continue;
    return InvalidArgument("unexpected inference input '" + input.name + "' for model '" +
                           config.name() + "'");
  }
  return Status::Ok();
}

// Refuses what stands twice in `names`, which is sorted here.
Status CheckDistinct(const char* what, std::vector<std::string_view> names) {
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return Status::Ok();
  return InvalidArgument(std::string(what) + " '" + std::string(*twice) +
                         "' already exists in request");
}

Status CheckGivenOnce(const Request& request) {
  if (request.inputs.size() > 1) {
    std::vector<std::string_view> names;
    for (const Tensor& input : request.inputs) names.emplace_back(input.name);
    RETURN_IF_ERROR(CheckDistinct("input", std::move(names)));
  }
  const std::vector<std::string>& outputs = request.requested_outputs;
  if (outputs.size() < 2) return Status::Ok();
  return CheckDistinct("output", {outputs.begin(), outputs.end()});
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
  RETURN_IF_ERROR(WithRequestId(CheckGivenOnce(request), request));
  RETURN_IF_ERROR(CheckOutputNames(config, request));
  RETURN_IF_ERROR(WithRequestId(CheckInputCount(config, request), request));
  RETURN_IF_ERROR(CheckNames(config, request));
  return CheckInputs(config, request);
}

}  // namespace inflight::serving
