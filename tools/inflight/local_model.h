// SPDX-License-Identifier: Apache-2.0
// A model opened in this process for `run` and `bench`: device, engine, tokenizer, executor.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "builder/builder.h"
#include "inflight/executor.h"
#include "tensor/device.h"
#include "tokenizer/tokenizer.h"

namespace inflight::tool {

struct LocalModelOptions {
  std::optional<std::string> dtype;            // float32, bfloat16, float16
  std::optional<model::QuantAlgo> quant_algo;  // empty = the model's own
  std::optional<int> num_threads;              // of CPU kernels
  std::string ops;                             // operator table by name; empty = the best one
  ExecutorOptions executor;
};

// Members are destroyed in reverse order: the executor first, the device last.
struct LocalModel {
  std::unique_ptr<Device> device;
  std::shared_ptr<const model::Engine> engine;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  // null where the directory has none
  std::unique_ptr<Executor> executor;
};

// `dir` is a directory, or a hub id (artifact/hub_cache.h).
Result<LocalModel> OpenLocalModel(const std::filesystem::path& dir,
                                  const LocalModelOptions& options);

}  // namespace inflight::tool
