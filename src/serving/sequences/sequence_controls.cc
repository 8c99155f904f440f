// SPDX-License-Identifier: Apache-2.0
#include "serving/sequences/sequence_controls.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "serving/tensors/data_types.h"

namespace inflight::serving {
namespace {

using ::inference::ModelSequenceBatching;
using Control = ModelSequenceBatching::Control;

template <typename T>
Tensor OneElement(const std::string& name, DataType type, std::vector<int64_t> shape, T value) {
  return Tensor::FromValues<T>(name, type, std::move(shape), {&value, 1});
}

Tensor Flag(const std::string& name, const Control& control, bool value,
            std::vector<int64_t> shape) {
  const int index = value ? 1 : 0;
  if (control.int32_false_true_size() == 2) {
    return OneElement<int32_t>(name, DataType::kInt32, std::move(shape),
                               control.int32_false_true(index));
  }
  if (control.fp32_false_true_size() == 2) {
    return OneElement<float>(name, DataType::kFp32, std::move(shape),
                             control.fp32_false_true(index));
  }
  return OneElement<uint8_t>(name, DataType::kBool, std::move(shape),
                             control.bool_false_true(index) ? 1 : 0);
}

// A text has no number: models that want one see 0.
Tensor CorrelationId(const std::string& name, const Control& control, const Request& request,
                     std::vector<int64_t> shape) {
  const DataType type = FromProto(control.data_type());
  if (type == DataType::kBytes) {
    const std::string text =
        request.sequence_name.empty() ? std::to_string(request.sequence_id) : request.sequence_name;
    return Tensor::FromStrings(name, std::move(shape), {&text, 1});
  }
  if (DataTypeSize(type) == sizeof(uint32_t)) {
    return OneElement<uint32_t>(name, type, std::move(shape),
                                static_cast<uint32_t>(request.sequence_id));
  }
  return OneElement<uint64_t>(name, type, std::move(shape), request.sequence_id);
}

Status CheckControl(const std::string& model, const std::string& input, const Control& control) {
  const std::string where = "sequence batching control '" + input + "' of model '" + model + "'";
  if (control.kind() == Control::CONTROL_SEQUENCE_CORRID) {
    switch (FromProto(control.data_type())) {
      case DataType::kUint64:
      case DataType::kInt64:
      case DataType::kUint32:
      case DataType::kInt32:
      case DataType::kBytes:
        return Status::Ok();
      default:
        return InvalidArgument(where +
                               " must have data_type UINT64, INT64, UINT32, INT32 or STRING");
    }
  }
  const int sizes[] = {control.int32_false_true_size(), control.fp32_false_true_size(),
                       control.bool_false_true_size()};
  int num_set = 0;
  for (const int size : sizes) {
    if (size == 0) continue;
    ++num_set;
    if (size != 2) {
      return InvalidArgument(where + " must have 2 values, for false and true, got " +
                             std::to_string(size));
    }
  }
  if (num_set == 1) return Status::Ok();
  return InvalidArgument(where +
                         " must have exactly one of int32_false_true, fp32_false_true and "
                         "bool_false_true");
}

}  // namespace

Status CheckSequenceControls(const ::inference::ModelConfig& config) {
  std::set<int> kinds;
  for (const auto& input : config.sequence_batching().control_input()) {
    if (input.name().empty()) {
      return InvalidArgument("sequence batching control tensor must have a name for model '" +
                             config.name() + "'");
    }
    for (const Control& control : input.control()) {
      if (!kinds.insert(control.kind()).second) {
        return InvalidArgument("sequence batching control '" + input.name() + "' of model '" +
                               config.name() + "' repeats the kind " +
                               Control::Kind_Name(control.kind()));
      }
      RETURN_IF_ERROR(CheckControl(config.name(), input.name(), control));
    }
  }
  return Status::Ok();
}

void AddSequenceControls(const ::inference::ModelConfig& config, Request& request) {
  const std::vector<int64_t> shape(config.max_batch_size() > 0 ? 2 : 1, 1);
  for (const auto& input : config.sequence_batching().control_input()) {
    for (const Control& control : input.control()) {
      switch (control.kind()) {
        case Control::CONTROL_SEQUENCE_START:
          request.inputs.push_back(Flag(input.name(), control, request.sequence_start, shape));
          break;
        case Control::CONTROL_SEQUENCE_END:
          request.inputs.push_back(Flag(input.name(), control, request.sequence_end, shape));
          break;
        case Control::CONTROL_SEQUENCE_READY:
          request.inputs.push_back(Flag(input.name(), control, /*value=*/true, shape));
          break;
        default:
          request.inputs.push_back(CorrelationId(input.name(), control, request, shape));
          break;
      }
    }
  }
}

}  // namespace inflight::serving
