// SPDX-License-Identifier: Apache-2.0
// What a server tells of a model, as far as a client needs it to make requests and to read counts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/tensors/server_calls.h"

namespace inflight::bench {

struct ServedTensor {
  std::string name;
  std::string datatype;        // of the wire: "INT32", "BYTES"
  std::vector<int64_t> shape;  // without the batch dimension; -1: any size
  bool is_optional = false;
};

struct ServedModel {
  std::string name;
  std::string version;     // the one that answers
  int max_batch_size = 0;  // 0: requests have no batch dimension
  bool is_decoupled = false;
  bool has_sequences = false;
  std::vector<ServedTensor> inputs, outputs;
  std::vector<std::string> composing;  // of an ensemble: its steps' models, each once
};

// `version` empty: the latest.
Result<ServedModel> DescribeModel(ServerCalls& calls, const std::string& name,
                                  const std::string& version);

// Of the server, since the model was loaded.
struct ModelCounters {
  int64_t num_inferences = 0, num_executions = 0;
  int64_t num_successes = 0;
  int64_t success_ns = 0, queue_ns = 0, input_ns = 0, infer_ns = 0, output_ns = 0;

  ModelCounters operator-(const ModelCounters& before) const;
  ModelCounters operator+(const ModelCounters& other) const;
};

// By name, the sum of versions: of the model and of what it is composed of.
using ServerCounters = std::map<std::string, ModelCounters>;
Result<ServerCounters> ReadCounters(ServerCalls& calls, const ServedModel& model);

}  // namespace inflight::bench
