// SPDX-License-Identifier: Apache-2.0
// The tensors that requests carry: random, zeros, or read from files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/tensors/served_model.h"

namespace inflight::bench {

struct TensorValue {
  std::string name;
  std::string datatype;
  std::vector<int64_t> shape;  // with the batch dimension where the model has one
  std::string bytes;           // little endian; BYTES elements behind their 4-byte sizes
};

// The inputs of one request. Optional inputs without data are left out.
using Payload = std::vector<TensorValue>;

struct DataOptions {
  std::string source = "random";                       // random, zero, a JSON file or a directory
  std::map<std::string, std::vector<int64_t>> shapes;  // of inputs whose dimensions are not fixed
  int batch_size = 1;
  int string_length = 128;                 // of random BYTES elements
  std::optional<std::string> string_data;  // every BYTES element, instead of random letters
  uint64_t seed = 1;
};

// At least one; requests take them in turns. A JSON file has an object per item under "data", by
// input an array of values, {"content": array, "shape": dims} or {"b64": bytes}; consecutive items
// make a batch, round and round. A directory has a file per input, named like it: its bytes, or of
// BYTES a text with an element a line. kInvalidArgument names the input and what is missing.
Result<std::vector<Payload>> MakePayloads(const ServedModel& model, const DataOptions& options);

}  // namespace inflight::bench
