// SPDX-License-Identifier: Apache-2.0
// Engines that TensorRT-LLM built, known by their files: config.json and *rank0.engine. They hold
// compiled code of NVIDIA GPUs and cannot be read; what they were built with can be said again.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "inflight/status.h"

namespace inflight::builder {

struct TensorRtEngine {
  std::string release;       // of TensorRT-LLM, "0.10.0"; empty before 0.8, which wrote none
  std::string architecture;  // "LlamaForCausalLM"; empty where the file does not say
  std::string dtype;
  int num_ranks = 1;
  // As given at the build; 0 where the file does not say.
  int max_batch_size = 0;
  int max_input_len = 0;
  int max_seq_len = 0;
  int max_beam_width = 0;
  int max_prompt_rows = 0;  // max_prompt_embedding_table_size

  // "engine of TensorRT-LLM 0.10.0, LlamaForCausalLM float16, 4 ranks"
  std::string Name() const;
  std::string RebuildCommand() const;  // from CHECKPOINT to ENGINE, with the same limits
};

// None where `dir` holds no such engine.
std::optional<TensorRtEngine> FindTensorRtEngine(const std::filesystem::path& dir);

// An error that names the engine and the command that makes another, where `dir` holds one.
Status RefuseTensorRtEngine(const std::filesystem::path& dir);

}  // namespace inflight::builder
