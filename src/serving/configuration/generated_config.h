// SPDX-License-Identifier: Apache-2.0
// The configurations of the four models that `inflight serve DIR` offers when there is no
// repository: the tensors of contract/model_tables.h, as a config.pbtxt of the 0.11 release would
// declare them.
#pragma once

#include <string>

#include "model_config.pb.h"

namespace inflight::serving {

struct GeneratedConfigOptions {
  std::string model_dir;
  std::string tokenizer_dir;  // empty: left unset
  int max_batch_size = 1;
  bool decoupled = true;  // streaming needs it
  // Off, a non-streaming answer contains the prompt, as upstream's default has it, and then differs
  // from what the same request streams.
  bool exclude_input_in_output = true;
};

::inference::ModelConfig PreprocessingConfig(const GeneratedConfigOptions& options);
::inference::ModelConfig LlmConfig(const GeneratedConfigOptions& options);
::inference::ModelConfig PostprocessingConfig(const GeneratedConfigOptions& options);
::inference::ModelConfig EnsembleConfig(const GeneratedConfigOptions& options);

}  // namespace inflight::serving
