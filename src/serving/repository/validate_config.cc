// SPDX-License-Identifier: Apache-2.0
// Rules for configurations of models (docs/reference/repositories.md).
#include "serving/repository/validate_config.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/status_macros.h"
#include "serving/ensemble/ensemble_graph.h"
#include "serving/instances/request_queue.h"
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

// -1 = variable.
int64_t Product(const google::protobuf::RepeatedField<int64_t>& dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) {
    if (dim == -1 || __builtin_mul_overflow(product, dim, &product)) return -1;
  }
  return product;
}

template <typename Io>
Status ValidateReshape(const ModelConfig& config, const Io& io, const std::string& where) {
  if (!io.has_reshape()) return Status::Ok();
  const auto& shape = io.reshape().shape();
  if (shape.empty() && config.max_batch_size() == 0) {
    return InvalidArgument(where +
                           " cannot have empty reshape for non-batching model as scalar "
                           "tensors are not supported for " +
                           config.name());
  }
  for (const int64_t dim : shape) {
    if (dim < 1 && dim != -1) {
      return InvalidArgument(where +
                             " reshape dimensions must be integer >= 1, or -1 to indicate a "
                             "variable-size dimension for " +
                             config.name());
    }
  }
  const auto count = [](const auto& dims) { return std::count(dims.begin(), dims.end(), -1); };
  if (count(shape) != count(io.dims())) {
    return InvalidArgument(
        where + " has different number of variable dims for dims and reshape for " + config.name());
  }
  if (Product(shape) != Product(io.dims())) {
    return InvalidArgument(where + " has different size for dims and reshape for " + config.name());
  }
  return Status::Ok();
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

Status ValidateFormat(const ModelConfig& config, const ModelInput& input) {
  constexpr int kImageDims = 3;
  if (input.format() == ModelInput::FORMAT_NONE || input.dims_size() == kImageDims) {
    return Status::Ok();
  }
  return InvalidArgument("model input NHWC/NCHW require 3 dims for " + config.name());
}

Status ValidatePreferred(const ModelConfig& config,
                         const google::protobuf::RepeatedField<int32_t>& sizes,
                         std::string_view batcher) {
  for (const int size : sizes) {
    if (size >= 1 && size <= config.max_batch_size()) continue;
    return InvalidArgument(std::string(batcher) + " preferred size must be between 1 and " +
                           std::to_string(config.max_batch_size()) + " for '" + config.name() +
                           "', got " + std::to_string(size));
  }
  return Status::Ok();
}

Status ValidatePriorities(const ModelConfig& config) {
  const auto& batching = config.dynamic_batching();
  const uint64_t levels = batching.priority_levels();
  if (levels == 0) return Status::Ok();
  if (levels > kMaxPriorityLevels) {
    return InvalidArgument("priority_levels: got " + std::to_string(levels) + ", must be at most " +
                           std::to_string(kMaxPriorityLevels) + " for '" + config.name() + "'");
  }
  const std::string range =
      "must be in range [1, " + std::to_string(levels) + "] for '" + config.name() + "'";
  if (batching.default_priority_level() < 1 || batching.default_priority_level() > levels) {
    return InvalidArgument("default priority level " + range);
  }
  for (const auto& [level, policy] : batching.priority_queue_policy()) {
    if (level < 1 || level > levels) {
      return InvalidArgument("priority level of a queue policy " + range + ", got " +
                             std::to_string(level));
    }
  }
  return Status::Ok();
}

// Responses in order of requests, and requests that overtake others, exclude each other.
Status ValidateOrdering(const ModelConfig& config) {
  const auto& batching = config.dynamic_batching();
  if (!batching.preserve_ordering()) return Status::Ok();
  const std::string where = " when 'preserve_ordering' is true for '" + config.name() + "'";
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
      "sequence batching minimum slot utilization must be in range (0.0, 1.0] "
      "for '" +
      config.name() + "'");
}

Status ValidateScheduling(const ModelConfig& config) {
  RETURN_IF_ERROR(ValidatePreferred(config, config.dynamic_batching().preferred_batch_size(),
                                    "dynamic batching"));
  RETURN_IF_ERROR(ValidatePriorities(config));
  RETURN_IF_ERROR(ValidateOrdering(config));
  RETURN_IF_ERROR(ValidateUtilization(config));
  RETURN_IF_ERROR(ValidatePreferred(
      config, config.sequence_batching().oldest().preferred_batch_size(), "sequence batching"));
  RETURN_IF_ERROR(CheckSequenceControls(config));
  return CheckSequenceStates(config);
}

Status ValidateCaching(const ModelConfig& config) {
  if (!config.response_cache().enable()) return Status::Ok();
  if (config.has_sequence_batching())
    return NoCacheOf(config.name(), "'Sequence Batching' scheduler");
  if (!config.model_transaction_policy().decoupled()) return Status::Ok();
  return NoCacheOf(config.name(), "'decoupled' transaction policy");
}

Status ValidateMetrics(const ModelConfig& config) {
  for (const auto& control : config.model_metrics().metric_control()) {
    const std::string& family = control.metric_identifier().family();
    if (family.empty()) {
      return InvalidArgument("model_metrics of '" + config.name() +
                             "': metric_identifier must specify 'family'");
    }
    if (control.histogram_options().buckets().empty()) {
      return InvalidArgument("model_metrics of '" + config.name() + "': family '" + family +
                             "' must specify histogram_options 'buckets'");
    }
    const auto& buckets = control.histogram_options().buckets();
    if (!std::is_sorted(buckets.begin(), buckets.end())) {
      return InvalidArgument("model_metrics of '" + config.name() + "': buckets of family '" +
                             family + "' must ascend");
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

Status ValidatePlatform(const ModelConfig& config) {
  const std::string& platform = config.platform();
  if (platform.empty() || platform == "ensemble") return Status::Ok();
  const auto* known = std::ranges::find(kPlatforms, std::string_view(platform), &Platform::name);
  if (known == std::end(kPlatforms)) {
    return InvalidArgument("platform: got '" + platform + "' for '" + config.name() +
                           "', which is none; name a 'backend' instead");
  }
  if (config.backend().empty() || config.backend() == known->backend) return Status::Ok();
  return InvalidArgument("platform: got '" + platform + "' with backend '" + config.backend() +
                         "' for '" + config.name() + "', its backend is '" +
                         std::string(known->backend) + "'");
}

// What belongs to models that run in instances.
Status ValidateEnsembleFields(const ModelConfig& config) {
  const char* field = nullptr;
  if (!config.backend().empty()) field = "backend";
  if (!config.instance_group().empty()) field = "instance_group";
  if (config.has_optimization()) field = "optimization";
  if (!config.model_warmup().empty()) field = "model_warmup";
  if (field == nullptr) return Status::Ok();
  return InvalidArgument(std::string("'") + field + "' must not be set for ensemble model '" +
                         config.name() + "': its steps are models of their own");
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
  return InvalidArgument("Response cache does not currently support model " + model + " with " +
                         what + ". Please disable the response cache.");
}

Status ValidateModelConfig(const ModelConfig& config) {
  if (config.max_batch_size() < 0) {
    return InvalidArgument("'max_batch_size' must be non-negative value for '" + config.name() +
                           "'");
  }
  if (config.backend().empty() && config.platform().empty()) {
    return InvalidArgument("must specify 'platform' or 'backend' for '" + config.name() + "'");
  }
  if (config.has_ensemble_scheduling() != (config.platform() == "ensemble")) {
    return InvalidArgument(
        "ensemble scheduling must be set, and must be set only, for platform "
        "'ensemble': model '" +
        config.name() + "'");
  }
  RETURN_IF_ERROR(ValidatePlatform(config));
  if (config.has_ensemble_scheduling()) RETURN_IF_ERROR(ValidateEnsembleFields(config));
  RETURN_IF_ERROR(ValidateScheduling(config));
  RETURN_IF_ERROR(ValidateCaching(config));
  RETURN_IF_ERROR(ValidateMetrics(config));
  return config.has_ensemble_scheduling() ? ValidateEnsemble(config) : Status::Ok();
}

Status ValidateTensors(const ModelConfig& config) {
  for (const ModelInput& input : config.input()) {
    RETURN_IF_ERROR(ValidateIo(config, input, "input"));
    RETURN_IF_ERROR(ValidateFormat(config, input));
  }
  for (const ModelOutput& output : config.output()) {
    RETURN_IF_ERROR(ValidateIo(config, output, "output"));
  }
  return Status::Ok();
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
