// SPDX-License-Identifier: Apache-2.0
#include "serving/sequences/sequence_controls.h"

#include <algorithm>
#include <iterator>
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

Status CheckCorrelationId(const std::string& model, const Control& control) {
  const std::string kind = Control::Kind_Name(control.kind());
  if (control.int32_false_true_size() + control.fp32_false_true_size() +
          control.bool_false_true_size() >
      0) {
    return InvalidArgument(
        "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
        "'bool_false_true' for " +
        kind + " for " + model);
  }
  switch (FromProto(control.data_type())) {
    case DataType::kUint64:
    case DataType::kInt64:
    case DataType::kUint32:
    case DataType::kInt32:
    case DataType::kBytes:
      return Status::Ok();
    default:
      return InvalidArgument("unexpected data type for control " + kind + " for " + model +
                             ". Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, "
                             "TYPE_INT32 and TYPE_STRING");
  }
}

// A value for false and one for true, of one type.
Status CheckFlag(const std::string& model, const Control& control) {
  const std::string where = "for " + Control::Kind_Name(control.kind()) + " for " + model;
  struct Values {
    const char* field;
    int count;
  };
  const Values all[] = {{"int32_false_true", control.int32_false_true_size()},
                        {"fp32_false_true", control.fp32_false_true_size()},
                        {"bool_false_true", control.bool_false_true_size()}};
  const auto num_given =
      std::count_if(std::begin(all), std::end(all), [](const Values& v) { return v.count > 0; });
  if (num_given == 0) {
    return InvalidArgument(
        "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
        "'bool_false_true' " +
        where);
  }
  if (num_given > 1) {
    return InvalidArgument(
        "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
        "'bool_false_true' " +
        where);
  }
  for (const Values& values : all) {
    if (values.count == 0 || values.count == 2) continue;
    return InvalidArgument("sequence batching control '" + std::string(values.field) +
                           "' must have exactly 2 entries " + where);
  }
  return Status::Ok();
}

// The tensors that give this one.
Status CheckControl(const ::inference::ModelConfig& config, Control::Kind kind) {
  const std::string& model = config.name();
  std::set<std::string> names;
  bool is_given = false;
  for (const auto& input : config.sequence_batching().control_input()) {
    if (input.name().empty()) {
      return InvalidArgument("sequence batching control tensor must have a name for " + model);
    }
    if (!names.insert(input.name()).second) {
      return InvalidArgument("sequence batching control tensor '" + input.name() +
                             "' is specified for multiple control kinds for " + model);
    }
    for (const Control& control : input.control()) {
      if (control.kind() != kind) continue;
      if (is_given) {
        return InvalidArgument("sequence batching specifies multiple " + Control::Kind_Name(kind) +
                               " tensors for " + model);
      }
      is_given = true;
      RETURN_IF_ERROR(kind == Control::CONTROL_SEQUENCE_CORRID ? CheckCorrelationId(model, control)
                                                               : CheckFlag(model, control));
    }
  }
  return Status::Ok();
}

}  // namespace

// One kind after the other: what is wrong with the first of them is told.
Status CheckSequenceControls(const ::inference::ModelConfig& config) {
  for (const auto kind : {Control::CONTROL_SEQUENCE_START, Control::CONTROL_SEQUENCE_END,
                          Control::CONTROL_SEQUENCE_READY, Control::CONTROL_SEQUENCE_CORRID}) {
    RETURN_IF_ERROR(CheckControl(config, kind));
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
