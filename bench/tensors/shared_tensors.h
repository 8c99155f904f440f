// SPDX-License-Identifier: Apache-2.0
// Payloads in a POSIX shared-memory object that the server has registered; both end with this.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/tensors/infer_requests.h"
#include "bench/tensors/server_calls.h"

namespace inflight::bench {

class SharedTensors {
 public:
  // `output_bytes` of room for each output. `calls` stays valid as long as this.
  static Result<std::unique_ptr<SharedTensors>> Create(ServerCalls& calls, const ServedModel& model,
                                                       const std::vector<Payload>& payloads,
                                                       int64_t output_bytes);
  ~SharedTensors();

  const Placement& placement() const { return placement_; }

 private:
  explicit SharedTensors(ServerCalls& calls) : calls_(calls) {}

  ServerCalls& calls_;
  Placement placement_;
  bool is_registered_ = false;
};

}  // namespace inflight::bench
