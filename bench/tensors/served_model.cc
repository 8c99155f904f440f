// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/served_model.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"

namespace inflight::bench {
namespace {

using nlohmann::json;

Result<json> Parse(const std::string& text, const char* what) {
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return DataLoss(std::string(what) + ": the answer is no JSON object");
  return parsed;
}

// A member, or null: members with default values are left out over gRPC.
const json& At(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string Text(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

int64_t Int(const json& value) {
  if (value.is_number()) return value.get<int64_t>();
  const std::string text = Text(value);
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool IsTrue(const json& value) { return value.is_boolean() && value.get<bool>(); }

std::vector<ServedTensor> Tensors(const json& list, bool is_batched) {
  std::vector<ServedTensor> tensors;
  for (const json& entry : list) {
    ServedTensor tensor{
        .name = Text(At(entry, "name")), .datatype = Text(At(entry, "datatype")), .shape = {}};
    for (const json& dim : At(entry, "shape")) tensor.shape.push_back(Int(dim));
    if (is_batched && !tensor.shape.empty()) tensor.shape.erase(tensor.shape.begin());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::string LatestVersion(const json& versions) {
  std::string latest;
  for (const json& version : versions)
    if (latest.empty() || Int(version) > Int(json(latest))) latest = Text(version);
  return latest;
}

int64_t Nanoseconds(const json& stats, const char* phase) {
  return Int(At(At(stats, phase), "ns"));
}

}  // namespace

Result<ServedModel> DescribeModel(ServerCalls& calls, const std::string& name,
                                  const std::string& version) {
  ASSIGN_OR_RETURN(const std::string metadata_text, calls.ModelMetadata(name, version));
  ASSIGN_OR_RETURN(const json metadata, Parse(metadata_text, "model metadata"));
  ASSIGN_OR_RETURN(const std::string config_text, calls.ModelConfig(name, version));
  ASSIGN_OR_RETURN(const json config, Parse(config_text, "model configuration"));

  ServedModel model;
  model.name = name;
  model.version = version.empty() ? LatestVersion(At(metadata, "versions")) : version;
  model.max_batch_size = static_cast<int>(Int(At(config, "max_batch_size")));
  model.is_decoupled = IsTrue(At(At(config, "model_transaction_policy"), "decoupled"));
  model.has_sequences = config.contains("sequence_batching");
  model.inputs = Tensors(At(metadata, "inputs"), model.max_batch_size > 0);
  model.outputs = Tensors(At(metadata, "outputs"), model.max_batch_size > 0);
  for (const json& input : At(config, "input"))
    for (ServedTensor& tensor : model.inputs)
      if (tensor.name == Text(At(input, "name")))
        tensor.is_optional = IsTrue(At(input, "optional"));
  for (const json& step : At(At(config, "ensemble_scheduling"), "step")) {
    const std::string composing = Text(At(step, "model_name"));
    if (std::ranges::find(model.composing, composing) == model.composing.end())
      model.composing.push_back(composing);
  }
  return model;
}

ModelCounters ModelCounters::operator-(const ModelCounters& before) const {
  return {num_inferences - before.num_inferences,
          num_executions - before.num_executions,
          num_successes - before.num_successes,
          success_ns - before.success_ns,
          queue_ns - before.queue_ns,
          input_ns - before.input_ns,
          infer_ns - before.infer_ns,
          output_ns - before.output_ns};
}

ModelCounters ModelCounters::operator+(const ModelCounters& other) const {
  return {num_inferences + other.num_inferences,
          num_executions + other.num_executions,
          num_successes + other.num_successes,
          success_ns + other.success_ns,
          queue_ns + other.queue_ns,
          input_ns + other.input_ns,
          infer_ns + other.infer_ns,
          output_ns + other.output_ns};
}

Result<ServerCounters> ReadCounters(ServerCalls& calls, const ServedModel& model) {
  const bool is_alone = model.composing.empty();
  ASSIGN_OR_RETURN(const std::string text,
                   calls.Statistics(is_alone ? model.name : "", is_alone ? model.version : ""));
  ASSIGN_OR_RETURN(const json answer, Parse(text, "statistics"));
  ServerCounters counters;
  for (const json& entry : At(answer, "model_stats")) {
    const std::string name = Text(At(entry, "name"));
    if (name != model.name && std::ranges::find(model.composing, name) == model.composing.end())
      continue;
    const json& stats = At(entry, "inference_stats");
    const ModelCounters counts = {.num_inferences = Int(At(entry, "inference_count")),
                                  .num_executions = Int(At(entry, "execution_count")),
                                  .num_successes = Int(At(At(stats, "success"), "count")),
                                  .success_ns = Nanoseconds(stats, "success"),
                                  .queue_ns = Nanoseconds(stats, "queue"),
                                  .input_ns = Nanoseconds(stats, "compute_input"),
                                  .infer_ns = Nanoseconds(stats, "compute_infer"),
                                  .output_ns = Nanoseconds(stats, "compute_output")};
    counters[name] = counters[name] + counts;
  }
  return counters;
}

}  // namespace inflight::bench
