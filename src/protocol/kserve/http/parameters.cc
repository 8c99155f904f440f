// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/parameters.h"

#include <string>
#include <utility>

#include "base/status_macros.h"

namespace inflight::kserve_http {
namespace {

constexpr size_t kMaxParameters = 1024;  // each costs a map node; no client sends more than a few

Result<serving::ParameterValue> ParseParameter(std::string_view name, const json::Value& value) {
  using Kind = json::Value::Kind;
  switch (value.kind()) {
    case Kind::kString: {
      ASSIGN_OR_RETURN(std::string text, value.AsString());
      return serving::ParameterValue(std::move(text));
    }
    case Kind::kBool: {
      ASSIGN_OR_RETURN(const bool flag, value.AsBool());
      return serving::ParameterValue(flag);
    }
    case Kind::kNumber: {
      if (const auto integer = value.AsInt(); integer.ok())
        return serving::ParameterValue(*integer);
      ASSIGN_OR_RETURN(const double number, value.AsDouble());
      return serving::ParameterValue(number);
    }
    default:
      return InvalidArgument("parameter '" + std::string(name) +
                             "' has invalid type. It should be either 'int', 'bool', or 'string'.");
  }
}

}  // namespace

Status AddParameter(std::string_view name, const json::Value& value,
                    serving::Parameters& parameters) {
  ASSIGN_OR_RETURN(auto parsed, ParseParameter(name, value));
  if (parameters.size() == kMaxParameters) {
    return InvalidArgument("request has more than " + std::to_string(kMaxParameters) +
                           " parameters");
  }
  parameters.emplace(std::string(name), std::move(parsed));
  return Status::Ok();
}

}  // namespace inflight::kserve_http
