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
          size_t payload_idx) {
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
  return {{"inputs", inputs}, {"outputs", outputs}};
}

}  // namespace

std::vector<std::string> HttpInferRequests(const LoadOptions& options, const ServedModel& model,
                                           const std::vector<Payload>& payloads,
                                           const Placement* placement) {
  std::vector<std::string> requests;
  for (size_t p = 0; p < payloads.size(); ++p) {
    const std::string head = Head(model, payloads[p], placement, p).dump();
    std::string body = head;
    if (placement == nullptr)
      for (const TensorValue& tensor : payloads[p]) body += tensor.bytes;
    requests.push_back(fmt::format(
        "POST /v2/models/{}/versions/{}/infer HTTP/1.1\r\nHost: {}:{}\r\n"
        "Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {}\r\n"
        "Content-Length: {}\r\n\r\n{}",
        model.name, model.version, options.host, options.port, head.size(), body.size(), body));
  }
  return requests;
}

}  // namespace inflight::bench
