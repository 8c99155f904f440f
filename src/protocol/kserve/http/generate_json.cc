// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/generate_json.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "json/json_reader.h"
#include "protocol/kserve/http/infer_response.h"
#include "protocol/kserve/http/model_tensors.h"
#include "protocol/kserve/http/parameters.h"
#include "protocol/kserve/http/tensor_json.h"
#include "serving/tensors/data_types.h"

namespace inflight::kserve_http {
namespace {

using json::Value;

constexpr std::string_view kMessages = "messages";

// The shape of `count` elements: the last -1 takes what the fixed dimensions leave, others are 1.
Result<std::vector<int64_t>> FitShape(const std::string& name, std::vector<int64_t> shape,
                                      uint64_t count) {
  const Status misfit = InvalidArgument("The schema can not convert input '" + name +
                                        "' to tensor with proper shape");
  int64_t* variable = nullptr;
  auto left = static_cast<int64_t>(count);
  for (int64_t& dim : shape) {
    if (dim < 0) {
      dim = 1;
      variable = &dim;
    } else if (dim == 0 || left % dim != 0) {
      return misfit;
    } else {
      left /= dim;
    }
  }
  if (variable != nullptr) {
    *variable = left;
  } else if (left != 1) {
    return misfit;
  }
  return shape;
}

class Parser {
 public:
  Parser(const ::inference::ModelConfig& config, size_t max_input_bytes)
      : config_(config), max_input_bytes_(max_input_bytes) {}

  Result<serving::Request> Parse(std::string_view body) {
    ASSIGN_OR_RETURN(const Value root, Value::Parse(body));
    RETURN_IF_ERROR(ParseMembers(root, /*is_top=*/true));
    return std::move(request_);
  }

 private:
  Status ParseMembers(const Value& object, bool is_top) {
    return object.ForEachMember([this, is_top](std::string_view name, Value value) {
      return ParseMember(name, value, is_top);
    });
  }

  Status ParseMember(std::string_view name, const Value& value, bool is_top) {
    if (is_top && name == "parameters") return ParseParameters(value);
    const ::inference::ModelInput* input = FindInput(config_, name);
    if (name == "id") {
      auto id = value.AsString();
      if (!id.ok()) return id.status().WithPrefix("Unable to parse 'id'");
      request_.id = *std::move(id);
    }
    return input != nullptr ? ParseInput(*input, value)
                            : AddParameter(name, value, request_.parameters);
  }

  Status ParseParameters(const Value& value) {
    if (FindInput(config_, "parameters") != nullptr) {
      return InvalidArgument(
          "'parameters' is a keyword of this endpoint, so the input of that name of model '" +
          config_.name() + "' cannot be given; use the infer endpoint");
    }
    if (value.kind() != Value::Kind::kObject) {
      return Internal(
          "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as "
          "object");
    }
    return ParseMembers(value, /*is_top=*/false).WithPrefix("Converting keyword: 'parameters'");
  }

  Status ParseInput(const ::inference::ModelInput& input, const Value& value) {
    const std::string& name = input.name();
    for (const auto& tensor : request_.inputs) {
      if (tensor.name != name) continue;
      return InvalidArgument(
          "[request id: " + (request_.id.empty() ? "<id_unknown>" : request_.id) + "] input '" +
          name + "' already exists in request");
    }
    const InputLimit limit{max_input_bytes_, input_bytes_};  // of all inputs together
    if (input.data_type() == ::inference::TYPE_STRING && name == kMessages)
      return ParseMessages(input, value, limit);
    const bool is_array = value.kind() == Value::Kind::kArray;
    uint64_t count = 1;
    if (is_array) {
      ASSIGN_OR_RETURN(count, value.NumElements());
    }
    ASSIGN_OR_RETURN(std::vector<int64_t> shape,
                     FitShape(name, MetadataShape(config_, input), count));
    const serving::DataType type = serving::FromProto(input.data_type());
    ASSIGN_OR_RETURN(serving::Tensor tensor,
                     is_array ? TensorFromArray(name, type, std::move(shape), value, limit)
                              : TensorFromScalar(name, type, std::move(shape), value, limit));
    input_bytes_ += tensor.data.size();
    request_.inputs.push_back(std::move(tensor));
    return Status::Ok();
  }

  // A conversation is one text, its JSON.
  Status ParseMessages(const ::inference::ModelInput& input, const Value& value,
                       const InputLimit& limit) {
    const std::string& name = input.name();
    if (value.kind() != Value::Kind::kArray && value.kind() != Value::Kind::kObject)
      return InvalidArgument(name, "must be a list of messages, or an object that has it");
    const std::string text(value.text());
    RETURN_IF_ERROR(
        CheckInputSize("input '" + name + "'", limit.used_bytes + text.size(), limit.max_bytes));
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, FitShape(name, MetadataShape(config_, input), 1));
    request_.inputs.push_back(
        serving::Tensor::FromStrings(name, std::move(shape), std::span(&text, 1)));
    input_bytes_ += request_.inputs.back().data.size();
    return Status::Ok();
  }

  const ::inference::ModelConfig& config_;
  const size_t max_input_bytes_;
  size_t input_bytes_ = 0;
  serving::Request request_;
};

}  // namespace

Result<serving::Request> ParseGenerate(const ::inference::ModelConfig& config,
                                       std::string_view body, size_t max_input_bytes) {
  return Parser(config, max_input_bytes).Parse(body);
}

Status GenerateWriter::Write(const serving::Response& response, std::string& out) {
  members_.clear();
  if (!response.id.empty()) Add({.name = "id", .text = response.id});
  Add({.name = "model_name", .text = response.model_name});
  Add({.name = "model_version", .text = response.model_version});
  for (const auto& [name, value] : response.parameters) Add({.name = name, .parameter = &value});
  for (const auto& tensor : response.outputs) Add({.name = tensor.name, .tensor = &tensor});

  const size_t old_size = out.size();
  json::Writer writer(out);
  writer.BeginObject();
  std::string_view last_name;
  for (const Member& member : members_) {
    if (&member != members_.data() && member.name == last_name) continue;
    last_name = member.name;
    writer.Key(member.name);
    if (Status status = WriteMember(member, writer); !status.ok()) {
      out.resize(old_size);
      return status;
    }
  }
  writer.EndObject();
  return Status::Ok();
}

// In the order of their names. Of equal names the first wins: reserved ones, then parameters, then
// outputs.
void GenerateWriter::Add(const Member& member) {
  const auto place = std::ranges::upper_bound(members_, member.name, {}, &Member::name);
  members_.insert(place, member);
}

Status GenerateWriter::WriteMember(const Member& member, json::Writer& out) {
  if (member.parameter != nullptr) {
    WriteParameter(*member.parameter, out);
    return Status::Ok();
  }
  if (member.tensor == nullptr) {
    out.String(member.text);
    return Status::Ok();
  }
  const bool is_scalar = member.tensor->num_elements() == 1;
  if (!is_scalar) out.BeginArray();
  RETURN_IF_ERROR(WriteElements(*member.tensor, out));
  if (!is_scalar) out.EndArray();
  return Status::Ok();
}

}  // namespace inflight::kserve_http
