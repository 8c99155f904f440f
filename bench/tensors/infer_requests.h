// SPDX-License-Identifier: Apache-2.0
// Infer requests of payloads, and the transport that sends them over gRPC.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/load/load.h"
#include "bench/tensors/served_model.h"
#include "bench/tensors/tensor_data.h"

namespace inflight::bench {

// Where tensors lie in a registered region of shared memory.
struct Placement {
  std::string region;
  std::vector<std::vector<int64_t>> inputs;  // offsets by payload and input
  std::vector<int64_t> outputs;              // offsets by output; every request writes there
  int64_t output_bytes = 0;                  // room of each
};

// A whole HTTP request of a payload, with tensors in binary form; `placement` null: within it.
std::string HttpInferRequest(const LoadOptions& options, const ServedModel& model,
                             const std::vector<Payload>& payloads, const Placement* placement,
                             size_t payload_idx, const SequenceStep& step = {});

// Calls of ModelInfer, or requests on kept streams, one stream per request under way, whose last
// response ends the request. kUnimplemented in a build without gRPC.
Result<std::unique_ptr<LoadTransport>> CreateGrpcInferTransport(
    const LoadOptions& options, const ServedModel& model, const std::vector<Payload>& payloads,
    const Placement* placement, bool is_streaming);

}  // namespace inflight::bench
