// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/parameters.h"

#include <string_view>
#include <type_traits>
#include <variant>

#include "base/status_macros.h"

namespace inflight::kserve_grpc {
namespace {

using ::inference::InferParameter;

Status WrongType(std::string_view key, std::string_view expected) {
  return InvalidArgument("invalid value type for '" + std::string(key) + "' parameter, expected " +
                         std::string(expected) + ".");
}

Status Negative(std::string_view key) {
  return InvalidArgument("invalid value for '" + std::string(key) + "', expected value >= 0.");
}

Status ParseBool(const std::string& key, const InferParameter& value, bool& out) {
  if (value.parameter_choice_case() != InferParameter::kBoolParam) {
    return WrongType(key, "bool_param");
  }
  out = value.bool_param();
  return Status::Ok();
}

Status ParseSequenceId(const std::string& key, const InferParameter& value,
                       serving::Request& request) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kInt64Param:  // a negative number wraps
      request.sequence_id = static_cast<uint64_t>(value.int64_param());
      return Status::Ok();
    case InferParameter::kStringParam:
      return serving::SetSequenceName(value.string_param(), request);
    default:
      return WrongType(key, "int64_param or string_param");
  }
}

Status ParsePriority(const std::string& key, const InferParameter& value,
                     serving::Request& request) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kInt64Param:
      if (value.int64_param() < 0) return Negative(key);
      request.priority = static_cast<uint64_t>(value.int64_param());
      return Status::Ok();
    case InferParameter::kUint64Param:
      request.priority = value.uint64_param();
      return Status::Ok();
    default:
      return WrongType(key, "int64_param or uint64_param");
  }
}

Status ParseTimeout(const std::string& key, const InferParameter& value,
                    serving::Request& request) {
  if (value.parameter_choice_case() != InferParameter::kInt64Param) {
    return WrongType(key, "int64_param");
  }
  request.timeout_us = static_cast<uint64_t>(value.int64_param());  // a negative number wraps
  return Status::Ok();
}

Status ParseCustom(const std::string& key, const InferParameter& value, serving::Request& request) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      request.parameters[key] = value.bool_param();
      return Status::Ok();
    case InferParameter::kInt64Param:
      request.parameters[key] = static_cast<int64_t>(value.int64_param());
      return Status::Ok();
    case InferParameter::kStringParam:
      request.parameters[key] = value.string_param();
      return Status::Ok();
    case InferParameter::kDoubleParam:
      request.parameters[key] = value.double_param();
      return Status::Ok();
    default:  // the text leaves out double_param, as clients compare it
      return InvalidArgument("invalid value type for '" + key +
                             "' parameter, expected int64_param, bool_param, or string_param.");
  }
}

}  // namespace

Status ParseParameters(const ParameterMap& parameters, serving::Request& request,
                       bool& enable_empty_final) {
  for (const auto& [key, value] : parameters) {
    if (key == "sequence_id") {
      RETURN_IF_ERROR(ParseSequenceId(key, value, request));
    } else if (key == "sequence_start") {
      RETURN_IF_ERROR(ParseBool(key, value, request.sequence_start));
    } else if (key == "sequence_end") {
      RETURN_IF_ERROR(ParseBool(key, value, request.sequence_end));
    } else if (key == "priority") {
      RETURN_IF_ERROR(ParsePriority(key, value, request));
    } else if (key == "timeout") {
      RETURN_IF_ERROR(ParseTimeout(key, value, request));
    } else if (key == "triton_enable_empty_final_response") {
      RETURN_IF_ERROR(ParseBool(key, value, enable_empty_final));
    } else if (key.starts_with("triton_")) {
      return InvalidArgument(
          "parameter keys starting with 'triton_' are reserved for Triton usage. Only the "
          "following keys starting with 'triton_' are allowed: "
          "triton_enable_empty_final_response");
    } else {
      RETURN_IF_ERROR(ParseCustom(key, value, request));
    }
  }
  return Status::Ok();
}

void WriteParameters(const serving::Parameters& parameters, ParameterMap& out) {
  for (const auto& [key, value] : parameters) {
    InferParameter& parameter = out[key];
    std::visit(
        [&parameter](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, bool>) {
            parameter.set_bool_param(v);
          } else if constexpr (std::is_same_v<T, int64_t>) {
            parameter.set_int64_param(v);
          } else if constexpr (std::is_same_v<T, uint64_t>) {
            parameter.set_uint64_param(v);
          } else if constexpr (std::is_same_v<T, double>) {
            parameter.set_double_param(v);
          } else {
            parameter.set_string_param(v);
          }
        },
        value);
  }
}

}  // namespace inflight::kserve_grpc
