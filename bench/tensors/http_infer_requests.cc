// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/tensors/infer_requests.h"

namespace inflight::bench {
namespace {

using nlohmann::json;

json InRegion(const Placement& placement, int64_t offset, int64_t byte_size) {
  return {{"shared_memory_region", placement.region},
          {"shared_memory_offset", offset},
          {"shared_memory_byte_size", byte_size}};
}

json Head(const ServedModel& model, const Payload& payload, const Placement* placement,
          size_t payload_idx, const SequenceStep& step) {
  json inputs = json::array();
  for (size_t i = 0; i < payload.size(); ++i) {
    const TensorValue& tensor = payload[i];
    const auto byte_size = static_cast<int64_t>(tensor.bytes.size());
    inputs.push_back(
        {{"name", tensor.name},
         {"datatype", tensor.datatype},
         {"shape", tensor.shape},
         {"parameters", placement == nullptr
                            ? json{{"binary_data_size", byte_size}}
                            : InRegion(*placement, placement->inputs[payload_idx][i], byte_size)}});
  }
  json outputs = json::array();
  for (size_t i = 0; i < model.outputs.size(); ++i)
    outputs.push_back(
        {{"name", model.outputs[i].name},
         {"parameters", placement == nullptr ? json{{"binary_data", true}}
                                             : InRegion(*placement, placement->outputs[i],
                                                        placement->output_bytes)}});
  json head = {{"inputs", inputs}, {"outputs", outputs}};
  if (step.id != 0)
    head["parameters"] = {
        {"sequence_id", step.id}, {"sequence_start", step.is_start}, {"sequence_end", step.is_end}};
  return head;
}

}  // namespace

std::string HttpInferRequest(const LoadOptions& options, const ServedModel& model,
                             const std::vector<Payload>& payloads, const Placement* placement,
                             size_t payload_idx, const SequenceStep& step) {
  const Payload& payload = payloads[payload_idx];
  const std::string head = Head(model, payload, placement, payload_idx, step).dump();
  std::string body = head;
  if (placement == nullptr)
    for (const TensorValue& tensor : payload) body += tensor.bytes;
  return fmt::format(
      "POST /v2/models/{}/versions/{}/infer HTTP/1.1\r\nHost: {}:{}\r\n"
      "Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {}\r\n"
      "Content-Length: {}\r\n\r\n{}",
      model.name, model.version, options.host, options.port, head.size(), body.size(), body);
}

}  // namespace inflight::bench
