// SPDX-License-Identifier: Apache-2.0
// Parameters of the `tensorrt_llm` model's config.pbtxt -> executor options and request defaults.
// Each key is honoured or refused by name; unset and unfilled ones take our defaults, which for
// prefix reuse and chunked prefill are on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "inflight/executor.h"
#include "inflight/status.h"

namespace inflight::contract {

struct LlmParameters {
  std::string engine_dir;  // gpt_model_path; empty = the version directory
  bool exclude_input_in_output = false;
  bool normalize_log_probs = true;
  ExecutorOptions executor;           // the server's, changed where the parameters say so
  std::vector<std::string> warnings;  // accepted, but worth a line in the log
};

// kInvalidArgument for a value that no release knows, kUnimplemented for one that is not built;
// both name the key and the value.
Result<LlmParameters> ParseLlmParameters(const std::map<std::string, std::string>& parameters,
                                         const ExecutorOptions& base);

}  // namespace inflight::contract
