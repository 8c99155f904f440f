// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/infer_request.h"

#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/status_macros.h"
#include "json/json_reader.h"
#include "protocol/kserve/http/parameters.h"
#include "protocol/kserve/http/raw_request.h"
#include "protocol/kserve/http/tensor_json.h"

namespace inflight::kserve_http {
namespace {

using json::Value;
using serving::DataType;
using serving::Tensor;

constexpr size_t kMaxTensors = 4096;  // of inputs, of outputs; models have a few dozen

Status In(std::string_view field, const Status& status) {
  return status.WithPrefix("Unable to parse '" + std::string(field) + "'");
}

template <typename T>
Status In(std::string_view field, const Result<T>& result) {
  return In(field, result.status());
}

Status CheckPresent(std::string_view field, const std::optional<Value>& value) {
  if (value) return Status::Ok();
  return In(field,
            Internal("attempt to access non-existing object member '" + std::string(field) + "'"));
}

Result<std::string> RequiredString(std::string_view field, const std::optional<Value>& value) {
  RETURN_IF_ERROR(CheckPresent(field, value));
  auto text = value->AsString();
  if (!text.ok()) return In(field, text);
  return text;
}

// Parses one body. Members are in the order in which Triton looks at them, which decides which of
// several errors is told.
class Parser {
 public:
  Parser(const ::inference::ModelConfig& config, const serving::ClientRegions& regions,
         std::shared_ptr<const std::string> body, size_t json_length, size_t max_input_bytes,
         MemoryCharge& charge)
      : config_(config),
        regions_(regions),
        body_(std::move(body)),
        max_input_bytes_(max_input_bytes),
        charge_(charge),
        binary_(std::as_bytes(std::span(*body_)).subspan(json_length)) {}

  Result<ParsedInfer> Parse(std::string_view json_text) {
    RETURN_IF_ERROR(CheckJsonSize(json_text.size(), max_input_bytes_));
    ASSIGN_OR_RETURN(const Value root, Value::Parse(json_text));
    const auto [id, parameters, inputs, outputs] =
        root.Pick<4>({"id", "parameters", "inputs", "outputs"});
    if (id) {
      ASSIGN_OR_RETURN(parsed_.request.id, RequiredString("id", id));
    }
    if (parameters) RETURN_IF_ERROR(ParseParameters(*parameters));
    RETURN_IF_ERROR(ParseInputs(inputs));
    if (!binary_.empty()) {
      return InvalidArgument("unexpected additional input data for model '" + config_.name() + "'");
    }
    if (outputs) RETURN_IF_ERROR(ParseOutputs(*outputs));
    return std::move(parsed_);
  }

 private:
  Status ParseParameters(const Value& parameters) {
    Status status = parameters.ForEachMember(
        [this](std::string_view name, Value value) { return ParseParameter(name, value); });
    if (parameters.kind() == Value::Kind::kObject) return status;
    return status.WithPrefix("failed to get request params.");
  }

  Status ParseParameter(std::string_view name, const Value& value) {
    serving::Request& request = parsed_.request;
    if (name == "sequence_id") return ParseSequenceId(value);
    if (name == "sequence_start") return Assign(name, value.AsBool(), request.sequence_start);
    if (name == "sequence_end") return Assign(name, value.AsBool(), request.sequence_end);
    if (name == "priority") return Assign(name, value.AsUint(), request.priority);
    if (name == "timeout") return Assign(name, value.AsUint(), request.timeout_us);
    if (name == "binary_data_output") {
      return Assign(name, value.AsBool(), parsed_.form.is_binary_by_default);
    }
    if (name.starts_with("triton_")) {
      return InvalidArgument(
          "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
          "specified.");
    }
    return AddParameter(name, value, request.parameters);
  }

  Status ParseSequenceId(const Value& value) {
    if (auto number = value.AsUint(); number.ok()) {
      parsed_.request.sequence_id = *number;
      return Status::Ok();
    }
    auto text = value.AsString();
    if (!text.ok()) return In("sequence_id", text);
    return serving::SetSequenceName(*std::move(text), parsed_.request);
  }

  template <typename T>
  static Status Assign(std::string_view field, Result<T> from, T& to) {
    if (!from.ok()) return In(field, from);
    to = *from;
    return Status::Ok();
  }

  Status ParseInputs(const std::optional<Value>& inputs) {
    RETURN_IF_ERROR(CheckPresent("inputs", inputs));
    if (inputs->kind() != Value::Kind::kArray) return In("inputs", inputs->NumElements());
    return inputs->ForEachElement([this](Value input) { return ParseInput(input); });
  }

  Status ParseInput(const Value& input) {
    const auto [name, datatype, shape, parameters, data] =
        input.Pick<5>({"name", "datatype", "shape", "parameters", "data"});
    std::optional<Value> region;
    std::optional<uint64_t> binary_size;
    if (parameters) {
      const auto [size, shm] = parameters->Pick<2>({"binary_data_size", "shared_memory_region"});
      region = shm;
      if (size) RETURN_IF_ERROR(Assign("binary_data_size", size->AsUint(), binary_size.emplace()));
    }
    RETURN_IF_ERROR(CheckOneSource(data.has_value(), binary_size.has_value(), region.has_value()));

    ASSIGN_OR_RETURN(std::string name_text, RequiredString("name", name));
    ASSIGN_OR_RETURN(const std::string type_name, RequiredString("datatype", datatype));
    ASSIGN_OR_RETURN(std::vector<int64_t> dims, ParseShape(name_text, shape));
    const auto type = serving::DataTypeFromName(type_name);
    if (!type) return InvalidArgument("invalid datatype for input " + name_text);
    RETURN_IF_ERROR(CheckNew("input", name_text, input_names_));

    if (region) {
      ASSIGN_OR_RETURN(serving::SharedWindow window, Window(*parameters, *region));
      parsed_.request.regions.push_back(window.TakeUse());
      RETURN_IF_ERROR(charge_.Resize(charge_.bytes() + window.byte_size()));
      ASSIGN_OR_RETURN(std::string bytes, window.Read(shared_left_));
      parsed_.request.inputs.push_back(
          Tensor::FromBytes(std::move(name_text), *type, std::move(dims), std::move(bytes)));
    } else if (binary_size) {
      ASSIGN_OR_RETURN(Tensor tensor,
                       TakeBinary(std::move(name_text), *type, std::move(dims), *binary_size));
      parsed_.request.inputs.push_back(std::move(tensor));
    } else {
      ASSIGN_OR_RETURN(Tensor tensor, TensorFromArray(std::move(name_text), *type, std::move(dims),
                                                      *data, InputLimit{max_input_bytes_}));
      parsed_.request.inputs.push_back(std::move(tensor));
    }
    return Status::Ok();
  }

  static Status CheckOneSource(bool has_data, bool has_binary, bool has_region) {
    if (has_data + has_binary + has_region == 1) return Status::Ok();
    std::string message =
        "Input must set only one of the following fields: 'data', 'binary_data_size' in "
        "'parameters', 'shared_memory_region' in 'parameters'. But ";
    if (!has_data && !has_binary && !has_region)
      return InvalidArgument(message + "no field is set");
    message += "set";
    if (has_data) message += " 'data'";
    if (has_binary) message += " 'binary_data_size'";
    if (has_region) message += " 'shared_memory_region'";
    return InvalidArgument(message);
  }

  static Result<std::vector<int64_t>> ParseShape(const std::string& name,
                                                 const std::optional<Value>& shape) {
    constexpr size_t kMaxRank = 64;
    RETURN_IF_ERROR(CheckPresent("shape", shape));
    std::vector<int64_t> dims;
    const Status status = shape->ForEachElement([&](Value dim) -> Status {
      ASSIGN_OR_RETURN(const uint64_t value, dim.AsUint());
      if (dims.size() == kMaxRank) {
        return InvalidArgument("invalid shape for input '" + name + "': it has more than " +
                               std::to_string(kMaxRank) + " dimensions");
      }
      dims.push_back(static_cast<int64_t>(value));  // the largest wrap, and are refused below 0
      return Status::Ok();
    });
    if (status.code() == StatusCode::kInternal) return In("shape", status);
    RETURN_IF_ERROR(status);
    return dims;
  }

  Result<Tensor> TakeBinary(std::string name, DataType type, std::vector<int64_t> dims,
                            uint64_t size) {
    if (size > binary_.size()) {
      return InvalidArgument("unexpected size for input '" + name + "', expecting " +
                             std::to_string(size - binary_.size()) +
                             " additional bytes for model '" + config_.name() + "'");
    }
    Tensor tensor{.name = std::move(name),
                  .datatype = type,
                  .shape = std::move(dims),
                  .data = binary_.first(size),
                  .owner = body_};
    binary_ = binary_.subspan(size);
    return tensor;
  }

  Status ParseOutputs(const Value& outputs) {
    if (outputs.kind() != Value::Kind::kArray) return In("outputs", outputs.NumElements());
    return outputs.ForEachElement([this](Value output) { return ParseOutput(output); });
  }

  Status ParseOutput(const Value& output) {
    const auto [name, parameters] = output.Pick<2>({"name", "parameters"});
    ASSIGN_OR_RETURN(std::string name_text, RequiredString("name", name));
    DataPlace place = DataPlace::kJson;
    serving::OutputRule rule;
    if (parameters) RETURN_IF_ERROR(ParseOutputParameters(*parameters, rule, place));
    RETURN_IF_ERROR(CheckNew("output", name_text, output_names_));
    parsed_.form.listed.emplace(name_text, place);
    if (rule.window) parsed_.request.regions.push_back(rule.window->TakeUse());
    if (rule.num_classes > 0 || rule.window) {
      parsed_.request.output_rules.emplace(name_text, std::move(rule));
    }
    parsed_.request.requested_outputs.push_back(std::move(name_text));
    return Status::Ok();
  }

  Status ParseOutputParameters(const Value& parameters, serving::OutputRule& rule,
                               DataPlace& place) const {
    const auto [classification, binary, region] =
        parameters.Pick<3>({"classification", "binary_data", "shared_memory_region"});
    if (classification) {
      const auto count = classification->AsUint();
      if (!count.ok()) return count.status().WithPrefix("Unable to set 'classification'");
      rule.num_classes = *count;
    }
    bool is_binary = false;
    if (binary) RETURN_IF_ERROR(Assign("binary_data", binary->AsBool(), is_binary));
    if (is_binary) place = DataPlace::kBinary;
    if (!region) return Status::Ok();
    if (classification) return BothSet("classification");
    if (is_binary) return BothSet("binary_data");
    ASSIGN_OR_RETURN(rule.window, Window(parameters, *region));
    place = DataPlace::kSharedMemory;
    return Status::Ok();
  }

  static Status BothSet(std::string_view other) {
    return InvalidArgument("Output can't set both 'shared_memory_region' and '" +
                           std::string(other) + "'");
  }

  // Without a size the window has none, which no region allows.
  Result<serving::SharedWindow> Window(const Value& parameters, const Value& region) const {
    auto name = region.AsString();
    if (!name.ok()) return In("shared_memory_region", name);
    const auto [offset, byte_size] =
        parameters.Pick<2>({"shared_memory_offset", "shared_memory_byte_size"});
    uint64_t offset_bytes = 0;
    uint64_t size_bytes = 0;
    if (offset) RETURN_IF_ERROR(Assign("shared_memory_offset", offset->AsUint(), offset_bytes));
    if (byte_size) {
      RETURN_IF_ERROR(Assign("shared_memory_byte_size", byte_size->AsUint(), size_bytes));
    }
    return regions_.Window(*name, offset_bytes, size_bytes);
  }

  Status CheckNew(std::string_view what, const std::string& name,
                  std::unordered_set<std::string>& names) const {
    if (names.size() == kMaxTensors) {
      return InvalidArgument("request has more than " + std::to_string(kMaxTensors) + " " +
                             std::string(what) + "s");
    }
    if (names.insert(name).second) return Status::Ok();
    const std::string& id = parsed_.request.id;
    return InvalidArgument("[request id: " + (id.empty() ? "<id_unknown>" : id) + "] " +
                           std::string(what) + " '" + name + "' already exists in request");
  }

  const ::inference::ModelConfig& config_;
  const serving::ClientRegions& regions_;
  const std::shared_ptr<const std::string> body_;
  const size_t max_input_bytes_;
  MemoryCharge& charge_;
  uint64_t shared_left_ = serving::kMaxSharedInputBytes;
  std::span<const std::byte> binary_;  // not yet taken by an input
  std::unordered_set<std::string> input_names_, output_names_;
  ParsedInfer parsed_;
};

// What the request holds once its body is gone, but for what of that it keeps.
size_t BytesBeside(const std::string& body, const serving::Request& request) {
  const auto in_body = std::as_bytes(std::span(body));
  size_t bytes = request.id.size() + serving::BytesOfParameters(request.parameters);
  for (const std::string& output : request.requested_outputs) bytes += output.size();
  for (const Tensor& input : request.inputs) {
    const bool is_within = !input.data.empty() && !in_body.empty() &&
                           input.data.data() >= in_body.data() &&
                           input.data.data() < in_body.data() + in_body.size();
    if (!is_within) bytes += input.data.size();
  }
  return bytes;
}

}  // namespace

Result<ParsedInfer> ParseInfer(const ::inference::ModelConfig& config,
                               const serving::ClientRegions& regions,
                               const std::shared_ptr<const std::string>& body,
                               std::optional<size_t> json_length, size_t max_input_bytes,
                               const std::shared_ptr<AccountShare>& memory) {
  const size_t length = json_length.value_or(body->size());
  if (length == 0) {
    RETURN_IF_ERROR(CheckInputSize("Raw input", body->size(), max_input_bytes));
    ParsedInfer parsed{.form = {.is_binary_by_default = true}};
    ASSIGN_OR_RETURN(Tensor input, RawInput(config, body));
    parsed.request.inputs.push_back(std::move(input));
    return parsed;
  }
  const std::string_view json_text = std::string_view(*body).substr(0, length);
  MemoryCharge charge(memory);
  RETURN_IF_ERROR(charge.Resize(length * kTensorBytesPerJsonByte));
  ASSIGN_OR_RETURN(ParsedInfer parsed,
                   Parser(config, regions, body, length, max_input_bytes, charge).Parse(json_text));
  if (memory != nullptr) {
    // Mostly less than it was; of very small ones that is enough.
    (void)charge.Resize(BytesBeside(*body, parsed.request));
    parsed.request.charge = std::make_shared<const MemoryCharge>(std::move(charge));
  }
  return parsed;
}

}  // namespace inflight::kserve_http
