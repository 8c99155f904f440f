// SPDX-License-Identifier: Apache-2.0
// Rules for configurations of models (docs/reference/repositories.md).
#include "serving/repository/validate_config.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status_macros.h"
#include "serving/ensemble/ensemble_graph.h"
#include "serving/sequences/sequence_controls.h"
#include "serving/sequences/sequence_states.h"

namespace inflight::serving {
namespace {

using ::inference::ModelConfig;
using ::inference::ModelInput;
using ::inference::ModelInstanceGroup;
using ::inference::ModelOutput;

// The least compute capability that the server's clients are told of.
constexpr char kMinCapability[] = "6.000000";
constexpr int64_t kMaxInstances = 1024;  // of a model; each has a thread

// The products between the variable dimensions: of [2, 4, -1, 6] 8 and 6.
std::vector<int64_t> Products(const google::protobuf::RepeatedField<int64_t>& dims) {
  std::vector<int64_t> products = {1};
  for (const int64_t dim : dims) {
    if (dim == -1) {
      products.push_back(1);
    } else if (__builtin_mul_overflow(products.back(), dim, &products.back())) {
      products.back() = -1;
    }
  }
  return products;
}

template <typename Io>
Status ValidateReshape(const ModelConfig& config, const Io& io, const std::string& where) {
  if (!io.has_reshape()) return Status::Ok();
  for (const int64_t dim : io.reshape().shape()) {
    if (dim < 1 && dim != -1) {
      return InvalidArgument(where +
                             " reshape dimensions must be integer >= 1, or -1 to indicate a "
                             "variable-size dimension for " +
                             config.name());
    }
  }
  const std::vector<int64_t> dims = Products(io.dims());
  const std::vector<int64_t> reshaped = Products(io.reshape().shape());
  if (dims == reshaped) return Status::Ok();
  const bool vary_both = dims.size() > 1 && reshaped.size() > 1;
  const std::string why = vary_both && dims.size() != reshaped.size()
                              ? " has different number of variable-size dimensions for dims and "
                                "reshape for "
                              : " has different size for dims and reshape for ";
  return InvalidArgument(where + why + config.name());
}

template <typename Io>
Status ValidateIo(const ModelConfig& config, const Io& io, std::string_view kind) {
  const std::string who = "model " + std::string(kind);
  if (io.name().empty()) return InvalidArgument(who + " must specify 'name' for " + config.name());
  const std::string where = who + " '" + io.name() + "'";
  if (io.data_type() == ::inference::TYPE_INVALID) {
    return InvalidArgument(where + " must specify 'data_type' for " + config.name());
  }
  if (io.dims_size() == 0) {
    return InvalidArgument(where + " must specify 'dims' for " + config.name());
  }
  if (io.has_reshape() && io.reshape().shape().empty() && config.max_batch_size() == 0) {
    return InvalidArgument(where +
                           " cannot have empty reshape for non-batching model as scalar tensors "
                           "are not supported for " +
                           config.name());
  }
  for (const int64_t dim : io.dims()) {
    if (dim < 1 && dim != -1) {
      return InvalidArgument(where +
                             " dimension must be integer >= 1, or -1 to indicate a variable-size "
                             "dimension for " +
                             config.name());
    }
  }
  return ValidateReshape(config, io, where);
}

// What is given only to engines of TensorRT.
template <typename Io>
Status ValidateLayout(const ModelConfig& config, const Io& io) {
  if (config.platform() == "tensorrt_plan") return Status::Ok();
  if (io.is_shape_tensor()) {
    return InvalidArgument("shape tensors are only supported for TensorRT platform for " +
                           config.name());
  }
  if (!io.is_non_linear_format_io()) return Status::Ok();
  return InvalidArgument("Non-linear IO format is only supported for the TensorRT platform for " +
                         config.name());
}

Status ValidateFormat(const ModelConfig& config, const ModelInput& input) {
  constexpr int kImageDims = 3;
  if (input.format() == ModelInput::FORMAT_NONE || input.dims_size() == kImageDims) {
    return Status::Ok();
  }
  return InvalidArgument("model input NHWC/NCHW require 3 dims for " + config.name());
}

template <typename Ios>
bool HasIo(const Ios& ios, const std::string& name) {
  return std::any_of(ios.begin(), ios.end(), [&](const auto& io) { return io.name() == name; });
}

// `what`: "input" or "output".
template <typename BatchIo>
Status ValidateSources(const ModelConfig& config, const BatchIo& io, const std::string& what) {
  if (io.source_input_size() != 1) {
    return InvalidArgument("batch " + what + " kind '" + BatchIo::Kind_Name(io.kind()) +
                           "' expects 1 source input, got " +
                           std::to_string(io.source_input_size()) + " for " + config.name());
  }
  if (HasIo(config.input(), io.source_input(0))) return Status::Ok();
  return InvalidArgument("unknown source input name '" + io.source_input(0) + "' for " +
                         config.name());
}

Status ValidateBatchTensors(const ModelConfig& config) {
  for (const auto& io : config.batch_input()) {
    RETURN_IF_ERROR(ValidateSources(config, io, "input"));
    if (io.data_type() != ::inference::TYPE_INT32 && io.data_type() != ::inference::TYPE_FP32) {
      return InvalidArgument("batch input data type must be TYPE_INT32 or TYPE_FP32 for " +
                             config.name());
    }
  }
  for (const auto& io : config.batch_output()) {
    RETURN_IF_ERROR(ValidateSources(config, io, "output"));
    std::set<std::string> targets;
    for (const std::string& target : io.target_name()) {
      if (!HasIo(config.output(), target)) {
        return InvalidArgument("unknown target output name '" + target + "' for " + config.name());
      }
      if (targets.insert(target).second) continue;
      return InvalidArgument("target output name '" + target + "' can only be specified once for " +
                             config.name());
    }
  }
  return Status::Ok();
}

Status ValidatePreferred(const ModelConfig& config,
                         const google::protobuf::RepeatedField<int32_t>& sizes,
                         const std::string& what) {
  for (const int size : sizes) {
    if (size <= 0) return InvalidArgument(what + " size must be positive for " + config.name());
    if (size <= config.max_batch_size()) continue;
    return InvalidArgument(what + " size must be <= max batch size for " + config.name());
  }
  return Status::Ok();
}

Status ValidatePriorities(const ModelConfig& config) {
  const auto& batching = config.dynamic_batching();
  const uint64_t levels = batching.priority_levels();
  if (levels == 0) return Status::Ok();
  const std::string range = "in range [1, " + std::to_string(levels) + "] for " + config.name();
  if (batching.default_priority_level() < 1 || batching.default_priority_level() > levels) {
    return InvalidArgument("default priority level must be " + range);
  }
  for (const auto& [level, policy] : batching.priority_queue_policy()) {
    if (level < 1 || level > levels) {
      return InvalidArgument("priority queue policy must have priority level " + range);
    }
  }
  return Status::Ok();
}

// Responses in order of requests, and requests that overtake others, exclude each other.
Status ValidateOrdering(const ModelConfig& config) {
  const auto& batching = config.dynamic_batching();
  if (!batching.preserve_ordering()) return Status::Ok();
  const std::string where = " when 'preserve_ordering' is true for " + config.name();
  if (batching.priority_levels() > 1) {
    return InvalidArgument("Only one priority level is allowed" + where);
  }
  const auto delays = [](const ::inference::ModelQueuePolicy& policy) {
    return policy.default_timeout_microseconds() > 0 &&
           policy.timeout_action() == ::inference::ModelQueuePolicy::DELAY;
  };
  bool any_delays = delays(batching.default_queue_policy());
  for (const auto& [level, policy] : batching.priority_queue_policy()) any_delays |= delays(policy);
  if (any_delays) {
    return InvalidArgument("Queue policy can not have DELAY as timeout action" + where);
  }
  return Status::Ok();
}

// The bound is that of docs/reference/repositories.md; 0 is what a file that leaves it out has.
Status ValidateUtilization(const ModelConfig& config) {
  const float share = config.sequence_batching().direct().minimum_slot_utilization();
  if (share >= 0 && share <= 1) return Status::Ok();
  return InvalidArgument(
      "sequence batching minimum slot utilization must be in range (0.0, 1.0] for " +
      config.name());
}

Status ValidateScheduling(const ModelConfig& config) {
  RETURN_IF_ERROR(ValidatePreferred(config, config.dynamic_batching().preferred_batch_size(),
                                    "dynamic batching preferred"));
  RETURN_IF_ERROR(ValidatePriorities(config));
  RETURN_IF_ERROR(ValidateOrdering(config));
  if (config.has_sequence_batching() && config.response_cache().enable()) {
    return NoCacheOf(config.name(), "sequence batching scheduler");
  }
  RETURN_IF_ERROR(CheckSequenceControls(config));
  RETURN_IF_ERROR(ValidatePreferred(config,
                                    config.sequence_batching().oldest().preferred_batch_size(),
                                    "sequence batching preferred batch"));
  RETURN_IF_ERROR(ValidateUtilization(config));
  return CheckSequenceStates(config);
}

Status ValidateCaching(const ModelConfig& config) {
  if (!config.response_cache().enable()) return Status::Ok();
  if (!config.model_transaction_policy().decoupled()) return Status::Ok();
  return NoCacheOf(config.name(), "'decoupled' transaction policy");
}

Status ValidateMetrics(const ModelConfig& config) {
  for (const auto& control : config.model_metrics().metric_control()) {
    if (!control.has_metric_identifier()) {
      return InvalidArgument("metric control must specify 'metric_identifier'");
    }
    if (control.metric_identifier().family().empty()) {
      return InvalidArgument("metric identifier must specify non-empty 'family'");
    }
    if (!control.has_histogram_options()) {
      return InvalidArgument("metric control must specify 'histogram_options'");
    }
    const auto& buckets = control.histogram_options().buckets();
    if (buckets.empty()) {
      return InvalidArgument("histogram options must specify non-empty 'buckets'");
    }
    if (!std::is_sorted(buckets.begin(), buckets.end())) {
      return InvalidArgument("model_metrics of '" + config.name() + "': buckets of family '" +
                             control.metric_identifier().family() + "' must ascend");
    }
  }
  return Status::Ok();
}

// Platforms that name their back-end; other back-ends have none.
struct Platform {
  std::string_view name, backend;
};
constexpr Platform kPlatforms[] = {
    {"tensorrt_plan", "tensorrt"},         {"onnxruntime_onnx", "onnxruntime"},
    {"pytorch_libtorch", "pytorch"},       {"torch_aoti", "pytorch"},
    {"tensorflow_graphdef", "tensorflow"}, {"tensorflow_savedmodel", "tensorflow"}};

// A platform has its back-end; which others there are, nobody knows.
Status ValidatePlatform(const ModelConfig& config) {
  const std::string& platform = config.platform();
  const std::string& backend = config.backend();
  if (platform == "ensemble") {
    if (backend.empty()) return Status::Ok();
    return InvalidArgument("Ensemble model '" + config.name() +
                           "' must have platform type 'ensemble' and empty backend type");
  }
  if (platform.empty()) return Status::Ok();
  const auto* known = std::ranges::find(kPlatforms, std::string_view(platform), &Platform::name);
  if (backend.empty() && known == std::end(kPlatforms)) {
    return InvalidArgument("unexpected platform type '" + platform + "' for " + config.name());
  }
  const bool is_pair = known != std::end(kPlatforms) && known->backend == backend;
  const bool has_platforms = std::ranges::any_of(
      kPlatforms, [&](const Platform& other) { return other.backend == backend; });
  if (is_pair || !has_platforms) return Status::Ok();
  return InvalidArgument("unexpected 'platform' and 'backend' pair, got:" + platform + ", " +
                         backend);
}

// What belongs to models that run in instances.
Status ValidateEnsembleFields(const ModelConfig& config) {
  const std::string where = " be specified for ensemble '" + config.name() + "'";
  if (!config.instance_group().empty()) {
    return InvalidArgument("instance group should not" + where);
  }
  if (config.has_optimization()) return InvalidArgument("optimization should not" + where);
  if (!config.model_warmup().empty()) return InvalidArgument("model_warmup can not" + where);
  return Status::Ok();
}

Status ValidateGroup(const ModelConfig& config, const ModelInstanceGroup& group) {
  const std::string where = "instance group " + group.name() + " of model " + config.name();
  if (group.count() < 0) {
    return InvalidArgument(where + " has count " + std::to_string(group.count()) +
                           ", must be at least 1");
  }
  if (group.kind() == ModelInstanceGroup::KIND_CPU ||
      group.kind() == ModelInstanceGroup::KIND_MODEL) {
    if (group.gpus().empty()) return Status::Ok();
    return InvalidArgument(where + " has kind " + ModelInstanceGroup::Kind_Name(group.kind()) +
                           " but specifies one or more GPUs");
  }
  if (group.gpus().empty()) {
    return InvalidArgument(where + " has kind " + ModelInstanceGroup::Kind_Name(group.kind()) +
                           " but no GPUs are available");
  }
  return InvalidArgument(
      where + " specifies invalid or unsupported gpu id " + std::to_string(group.gpus(0)) +
      ". GPUs with at least the minimum required CUDA compute compatibility of " + kMinCapability +
      " are: ");
}

}  // namespace

Status NoCacheOf(const std::string& model, const std::string& what) {
  return InvalidArgument("Response Cache does not currently support model " + model + " with " +
                         what + ". Please disable the response cache.");
}

// In the order of docs/reference/protocol/checks.md: what comes first is told.
Status ValidateModelConfig(const ModelConfig& config) {
  if (config.backend().empty() && config.platform().empty()) {
    return InvalidArgument("Invalid model name: Could not determine backend for model '" +
                           config.name() +
                           "' with no backend in model configuration. Expected model name of the "
                           "form 'model.<backend_name>'.");
  }
  RETURN_IF_ERROR(ValidatePlatform(config));
  if (config.max_batch_size() < 0) {
    return InvalidArgument("'max_batch_size' must be non-negative value for " + config.name());
  }
  RETURN_IF_ERROR(ValidateScheduling(config));
  const bool is_ensemble = config.platform() == "ensemble";
  if (config.has_ensemble_scheduling() && !is_ensemble) {
    return InvalidArgument("ensemble scheduling cannot be set for model '" + config.name() +
                           "' whose platform is not ensemble");
  }
  if (is_ensemble && !config.has_ensemble_scheduling()) {
    return InvalidArgument("ensemble scheduling must be set for ensemble " + config.name() +
                           " whose platform is ensemble");
  }
  if (is_ensemble) {
    RETURN_IF_ERROR(ValidateEnsembleFields(config));
    RETURN_IF_ERROR(ValidateEnsemble(config));
  }
  RETURN_IF_ERROR(ValidateCaching(config));
  return ValidateMetrics(config);
}

Status ValidateTensors(const ModelConfig& config) {
  for (const ModelInput& input : config.input()) {
    RETURN_IF_ERROR(ValidateIo(config, input, "input"));
    RETURN_IF_ERROR(ValidateFormat(config, input));
    RETURN_IF_ERROR(ValidateLayout(config, input));
  }
  for (const ModelOutput& output : config.output()) {
    RETURN_IF_ERROR(ValidateIo(config, output, "output"));
    RETURN_IF_ERROR(ValidateLayout(config, output));
  }
  return ValidateBatchTensors(config);
}

Status ValidateInstances(const ModelConfig& config) {
  int64_t count = 0;
  for (const ModelInstanceGroup& group : config.instance_group()) {
    RETURN_IF_ERROR(ValidateGroup(config, group));
    count += group.count();
  }
  if (count > kMaxInstances) {
    return InvalidArgument("instance groups of model " + config.name() + " ask for " +
                           std::to_string(count) + " instances, at most " +
                           std::to_string(kMaxInstances) + " are possible");
  }
  return Status::Ok();
}

}  // namespace inflight::serving
