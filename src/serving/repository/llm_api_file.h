// SPDX-License-Identifier: Apache-2.0
// model.yaml of a model of TensorRT-LLM's LLM API: which model it serves, and what it says of
// itself in place of config.pbtxt.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "inflight/status.h"

namespace inflight::serving {

struct LlmApiFile {
  std::string model;  // a directory, or org/name
  int max_batch_size = 0;
  bool decoupled = false;
  std::vector<std::string> without_effect;  // keys that steer what is not here
};

// kInvalidArgument and kUnimplemented name the file and the key.
Result<LlmApiFile> ReadLlmApiFile(const std::filesystem::path& path);

}  // namespace inflight::serving
