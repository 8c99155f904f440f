// SPDX-License-Identifier: Apache-2.0
// How the server gets an executor for a directory. Tests put a fake one here; everything else of
// the server is the same code.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "serving/llm_model.h"
#include "serving/server.h"

namespace inflight::serving {

struct LoadedEngine {
  LlmBackend backend;
  std::filesystem::path tokenizer_dir;  // where the tokenizer's files are expected
};

// Opens `dir` (Hugging Face directory, checkpoint or engine) and starts an executor on it.
using EngineLoader = std::function<Result<LoadedEngine>(const std::filesystem::path& dir,
                                                        const ExecutorOptions& options)>;

// Builds where needed and runs on this process's device.
Result<EngineLoader> LocalEngineLoader(const ServerOptions& options);

// CreateServer with another way to executors.
Result<std::unique_ptr<Server>> CreateServerWith(const ServerOptions& options, EngineLoader load);

}  // namespace inflight::serving
